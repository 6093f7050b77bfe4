// SPDX-License-Identifier: Apache-2.0
//
// Publisher: docs/protocol.md, section 2, "Publishing from buffers". Three things may exist at a
// time: the baseline, a version that is begun (builder_, put_), and one that was handed to the
// store whose place in the baseline is not settled yet (pending_).
#include "segue/publisher.h"

#include <algorithm>
#include <utility>

#include "base/limits.h"
#include "delta/delta_builder.h"
#include "delta/profile.h"
#include "store/signed_store.h"
#include "sync/acknowledge.h"
#include "sync/baseline.h"
#include "sync/lineage.h"
#include "sync/owners.h"
#include "sync/publisher_internals.h"
#include "sync/source_model.h"
#include "sync/stopwatch.h"
#include "sync/version_commit.h"

namespace segue {
namespace {

PublishOptions OptionsOf(const PublisherOptions& options) {
  PublishOptions publish;
  publish.keys = options.keys;
  publish.store = options.store;
  publish.lineage = options.lineage;
  publish.base = "baseline of the publisher";  // For messages.
  publish.profile = options.profile;
  publish.allow_branch = options.allow_branch;
  publish.threads = options.threads;
  publish.owner = options.owner;
  publish.owner_count = options.owner_count;
  publish.session = options.session;
  publish.owner_timeout_seconds = options.owner_timeout_seconds;
  publish.retain = options.retain;
  publish.anchors = options.anchors;
  return publish;
}

Result<Digest> DigestOf(const std::string& text) {
  const auto digest = Digest::FromHex(text);
  if (!digest) return InvalidArgument("'" + text + "' is no digest of 32 hexadecimal digits");
  return *digest;
}

}  // namespace

Result<std::string> AddDigests(std::span<const std::string> digests) {
  Digest sum;
  for (const std::string& text : digests) {
    SEGUE_ASSIGN_OR_RETURN(const Digest digest, DigestOf(text));
    sum += digest;
  }
  return sum.ToHex();
}

class Publisher::Impl {
 public:
  Impl(Environment& environment, PublisherOptions options)
      : environment_(environment), options_(std::move(options)), publish_(OptionsOf(options_)) {}

  Status Open(std::span<const SourceTensor> base) {
    SEGUE_ASSIGN_OR_RETURN(const std::uint64_t chunk_size, OpenStoreAndLineage());
    SEGUE_ASSIGN_OR_RETURN(SourceModel model, SourceFromTensors(base, chunk_size));
    for (const SourceTensor& tensor : base) SEGUE_RETURN_IF_ERROR(CheckPlace(tensor));
    SEGUE_ASSIGN_OR_RETURN(layout_, Layout::Generate(model.plan, options_.shard_size));
    return Start(std::move(model), "the publisher's tensors");
  }

  Status Open(std::span<const SourceTensor> base, std::span<const std::string> owned,
              const TensorReader& read) {
    SEGUE_ASSIGN_OR_RETURN(const std::uint64_t chunk_size, OpenStoreAndLineage());
    SEGUE_ASSIGN_OR_RETURN(SourceModel model, SourceFromSpecs(base, owned, chunk_size));
    SEGUE_ASSIGN_OR_RETURN(layout_, Layout::Generate(model.plan, options_.shard_size));
    return Start(std::move(model), "the publisher's tensors", [&](std::size_t tensor, auto* to) {
      const PlanTensor& known = plan_.tensors()[tensor];
      return read(known.spec.name, to, known.size);
    });
  }

  Status Open(const std::string& path, const std::optional<std::vector<std::string>>& owned) {
    SEGUE_ASSIGN_OR_RETURN(const std::uint64_t chunk_size, OpenStoreAndLineage());
    SEGUE_ASSIGN_OR_RETURN(const Checkpoint checkpoint, Checkpoint::Open(path));
    SEGUE_ASSIGN_OR_RETURN(SourceModel model, SourceFromCheckpoint(checkpoint, owned, chunk_size));
    layout_ = Layout::FromCheckpoint(checkpoint);
    return Start(std::move(model), "checkpoint '" + path + "'");
  }

  Status Begin(std::optional<std::uint64_t> version) {
    SEGUE_RETURN_IF_ERROR(broken_);
    if (begun_) return InvalidArgument("a version is begun already: commit or discard it");
    SEGUE_RETURN_IF_ERROR(SettlePending());
    if (version && version_ && *version < *version_) {
      return InvalidArgument("version " + std::to_string(*version) +
                             " comes before the one that the publisher is at, " +
                             std::to_string(*version_) + "; version numbers only grow");
    }
    publish_.version = version;
    SEGUE_RETURN_IF_ERROR(CheckPublishOptions(publish_));
    SEGUE_RETURN_IF_ERROR(ReadLineage());
    next_ = Pending();
    report_ = PublishReport();
    SEGUE_RETURN_IF_ERROR(MakeCommit().ChooseNumbers(next_.version.identity));
    SetLayouts();
    put_ = TensorSet(plan_.tensors().size());
    sums_ = {};
    begun_ = true;
    return {};
  }

  Status Put(std::string_view name, const std::byte* data, std::uint64_t size) {
    SEGUE_ASSIGN_OR_RETURN(const std::size_t tensor, FindForPut(name));
    SEGUE_RETURN_IF_ERROR(CheckSize(tensor, size));
    SEGUE_RETURN_IF_ERROR(CheckPlace({.name = std::string(name), .data = data, .size = size}));
    return PutAll({{tensor, baseline_->Tensor(tensor), data}});
  }

  Status Put(const SourceTensor& tensor) {
    std::vector<TensorChange> changes;
    SEGUE_RETURN_IF_ERROR(AddChange(tensor, changes));
    return PutAll(changes);
  }

  Status Put(std::span<const SourceTensor> tensors) {
    Status status;
    std::vector<TensorChange> changes;
    for (const SourceTensor& tensor : tensors) {
      if (tensor.data == nullptr) continue;
      status = AddChange(tensor, changes);
      if (!status.ok()) break;
    }
    // In the payload's order, so that what is complete of it can be compressed at once.
    std::ranges::sort(changes, {}, &TensorChange::tensor);
    if (status.ok()) status = PutAll(changes);
    if (!status.ok() && begun_) Discard();
    return status;
  }

  Status PutUnchanged(std::string_view name) {
    SEGUE_ASSIGN_OR_RETURN(const std::size_t tensor, FindForPut(name));
    TakeUnchanged(tensor);
    return {};
  }

  Result<VersionDigests> Digests() {
    SEGUE_RETURN_IF_ERROR(broken_);
    if (!begun_) return InvalidArgument("no version is begun");
    SEGUE_RETURN_IF_ERROR(TakeMissing());
    return VersionDigests{sums_.before.ToHex(), sums_.after.ToHex()};
  }

  Status Settle(const VersionDigests& whole) {
    SEGUE_RETURN_IF_ERROR(broken_);
    if (!begun_) return InvalidArgument("no version is begun");
    SEGUE_ASSIGN_OR_RETURN(const Digest base, DigestOf(whole.base));
    SEGUE_ASSIGN_OR_RETURN(const Digest target, DigestOf(whole.target));
    next_.version.whole = {base, target};
    SEGUE_ASSIGN_OR_RETURN(next_.is_there, MakeCommit().IsThereAlready(next_.version));
    return {};
  }

  std::string BaselineDigest() const { return baseline_->digest().ToHex(); }

  Status SettleBaseline(const std::string& whole) {
    SEGUE_ASSIGN_OR_RETURN(const Digest digest, DigestOf(whole));
    SEGUE_RETURN_IF_ERROR(ReadLineage());
    if (!lineage_) return {};
    return FindBaseline(digest, "the tensors of all owners");
  }

  Status Upload() {
    SEGUE_RETURN_IF_ERROR(broken_);
    if (!begun_) return InvalidArgument("no version is begun");
    SEGUE_RETURN_IF_ERROR(TakeMissing());
    // A single owner's payload gets its name once the commit knows the version's number.
    if (options_.owner_count == 1 || next_.encoded) return {};
    Stopwatch watch;
    Status uploaded = Encode(watch);
    if (uploaded.ok() && !next_.is_there) uploaded = MakeCommit().CommitPayload(next_.version);
    if (uploaded.ok()) return {};
    Discard();
    return uploaded.WithContext("the version was discarded");
  }

  Result<PublishReport> Commit() {
    SEGUE_RETURN_IF_ERROR(broken_);
    if (!begun_) return InvalidArgument("no version is begun");
    SEGUE_RETURN_IF_ERROR(TakeMissing());
    begun_ = false;
    Stopwatch watch;
    if (!next_.encoded) {
      const Status encoded = Encode(watch);
      if (!encoded.ok()) {
        next_ = Pending();  // The store knows nothing of it.
        return encoded;
      }
    }
    const Status sent = next_.is_there ? Status() : Send(watch);
    // A version that was there before says nothing of this one.
    if (!sent.ok() && MakeCommit().WasThere()) return sent;
    // From here on the store may have the version, whatever was returned.
    pending_ = std::move(next_);
    if (!sent.ok()) return sent;
    pending_->visible = true;
    if (!options_.cohort.engines.empty()) {
      const Status reached =
          WaitUntilReached(pending_->version.identity.target_version, options_.cohort);
      if (!reached.ok()) {
        return reached.WithContext("the version is published, and the baseline waits for it");
      }
    }
    SEGUE_RETURN_IF_ERROR(MoveBaseline());
    return report_;
  }

  void Discard() {
    begun_ = false;
    (void)builder_->Take();
  }

  Result<PublishReport> PublishAll(std::span<const SourceTensor> tensors,
                                   std::optional<std::uint64_t> version) {
    SEGUE_RETURN_IF_ERROR(Begin(version));
    SEGUE_RETURN_IF_ERROR(Put(tensors));
    Result<PublishReport> report = Commit();
    if (begun_) Discard();
    return report;
  }

  Status WaitForAcknowledgement(const Cohort& cohort) const {
    if (!version_) return InvalidArgument("nothing was published yet that an engine could have");
    return WaitUntilReached(*version_, cohort);
  }

  // After the version is visible.
  Status MoveBaseline() {
    SEGUE_RETURN_IF_ERROR(broken_);
    if (!pending_) return {};
    if (!pending_->visible) {
      SEGUE_RETURN_IF_ERROR(LookForPending());
      if (!pending_) return {};
    }
    const Status moved = baseline_->Advance(pending_->staged);
    if (!moved.ok() && moved.code() != StatusCode::kTainted) {
      return moved.WithContext("the version is published, and the baseline has not moved");
    }
    if (!moved.ok()) {
      broken_ = Tainted("the baseline could not be moved (" + moved.message() +
                        "): open the publisher anew");
      return broken_;
    }
    version_ = pending_->version.identity.target_version;
    pending_.reset();
    return {};
  }

  std::optional<std::uint64_t> version() const { return version_; }
  std::uint64_t baseline_bytes() const { return baseline_->size(); }

  Result<std::span<const std::byte>> BaselineOf(std::string_view name) const {
    SEGUE_RETURN_IF_ERROR(broken_);
    SEGUE_ASSIGN_OR_RETURN(const std::size_t tensor, FindTensor(plan_, name));
    const std::uint64_t size = plan_.tensors()[tensor].size;
    if (size != 0 && !owned_.Contains(tensor)) {
      return InvalidArgument("tensor " + Quoted(name) + " belongs to another owner");
    }
    if (baseline_->is_on_device()) {
      return Unsupported("the baseline lies in the memory of '" + options_.device + "'");
    }
    return std::span(baseline_->Tensor(tensor), size);
  }

 private:
  // A version that is handed to the store, until the baseline has moved to it.
  struct Pending {
    StagedDelta staged;
    PendingVersion version;
    bool encoded = false;   // The payload is written; its writer has it until it is uploaded.
    bool visible = false;   // Known to be; otherwise nobody knows yet.
    bool is_there = false;  // All owners have found that it was there before.
  };

  Result<std::uint64_t> OpenStoreAndLineage() {
    PublishOptions any_version = publish_;
    any_version.version = 1;
    SEGUE_RETURN_IF_ERROR(CheckPublishOptions(any_version));
    if (!options_.cohort.engines.empty() && !options_.cohort.probe) {
      return InvalidArgument("a cohort needs a way to ask its engines");
    }
    SEGUE_ASSIGN_OR_RETURN(auto store, environment_.OpenStore(options_.store, /*create=*/true));
    SEGUE_ASSIGN_OR_RETURN(store_, WithWriterKeys(std::move(store), options_.keys));
    SEGUE_ASSIGN_OR_RETURN(lineage_, Lineage::OpenIfThere(*store_, options_.lineage));
    std::uint64_t chunk_size = options_.chunk_size.value_or(limits::kChunkSizeDefault);
    if (lineage_) {
      SEGUE_ASSIGN_OR_RETURN(const Plan known, lineage_->ReadPlan(*store_));
      chunk_size = known.chunk_size();
    }
    SEGUE_RETURN_IF_ERROR(OpenDevice(chunk_size));
    return chunk_size;
  }

  Status OpenDevice(std::uint64_t chunk_size) {
    if (options_.device.empty()) return {};
    Result<std::shared_ptr<Differ>> differ = OpenDiffer(
        options_.device, {.chunk_size_max = chunk_size, .memory_max = options_.device_memory});
    if (!differ.ok() && differ.status().code() == StatusCode::kResourceExhausted) {
      return differ.status().WithContext("memory to compare in, which device_memory bounds");
    }
    SEGUE_RETURN_IF_ERROR(differ.status());
    place_.differ = std::move(differ).value();
    if (options_.baseline_on_host) return {};
    SEGUE_ASSIGN_OR_RETURN(place_.accelerator, OpenAccelerator(options_.device, options_.threads,
                                                               {.keep_batch = false}));
    return {};
  }

  // Memory of the device that the options name, where they name one.
  Status CheckPlace(const SourceTensor& tensor) const {
    if (place_.differ == nullptr || tensor.data == nullptr || tensor.size == 0) return {};
    return place_.differ->CheckMemory(tensor.data, tensor.size)
        .WithContext("tensor " + Quoted(tensor.name));
  }

  // `read`: where the model's bytes do not lie in its view.
  Status Start(SourceModel model, const std::string& name, const Baseline::Reader& read = {}) {
    plan_ = std::move(model.plan);
    owned_ = std::move(model.owned);
    if (lineage_) SEGUE_RETURN_IF_ERROR(lineage_->CheckPlan(*store_, plan_, name));
    if (options_.owner_count == 1) {
      const auto missing = owned_.FirstMissing(plan_);
      if (missing) {
        return InvalidArgument("tensor '" + plan_.tensors()[*missing].spec.name +
                               "' has no bytes, and there is no other owner");
      }
    }
    SEGUE_ASSIGN_OR_RETURN(
        baseline_, read ? Baseline::Read(plan_, owned_, read, options_.threads, place_)
                        : Baseline::Copy(plan_, owned_, model.view, options_.threads, place_));
    builder_ =
        std::make_unique<DeltaBuilder>(plan_, *ProfileFromName(options_.profile), options_.threads);
    if (!lineage_ || options_.owner_count > 1) return {};
    return FindBaseline(baseline_->digest(), name);
  }

  Status FindBaseline(const Digest& digest, const std::string& name) {
    version_ = lineage_->FindVersion(digest, limits::kVersionMax);
    if (version_) return {};
    return VersionMismatch(name + " have digest " + digest.ToHex() +
                           ", which is no version of lineage '" + options_.lineage + "'");
  }

  Status ReadLineage() {
    SEGUE_ASSIGN_OR_RETURN(lineage_, Lineage::OpenIfThere(*store_, options_.lineage));
    if (!lineage_) return {};
    return lineage_->CheckPlan(*store_, plan_, "the publisher's tensors");
  }

  VersionCommit MakeCommit() {
    return {*store_, lineage_ ? &*lineage_ : nullptr, plan_, publish_, report_, environment_};
  }

  // A lineage that exists keeps its layout; the store has it.
  void SetLayouts() {
    PendingVersion& version = next_.version;
    Sha256 digest = layout_.digest();
    if (lineage_) {
      digest = lineage_->Version(lineage_->newest())->layout;
    } else {
      version.base_layout = version.target_layout = &layout_;
    }
    version.identity.base_layout = version.identity.target_layout = digest;
    if (options_.owner_count > 1) version.tensors = &owned_;
  }

  Result<std::size_t> FindForPut(std::string_view name) const {
    SEGUE_RETURN_IF_ERROR(broken_);
    if (!begun_) return InvalidArgument("no version is begun");
    const auto found = FindTensor(plan_, name);
    if (!found.ok()) {
      return InvalidArgument("tensor " + Quoted(name) +
                             " is none of those that the publisher was opened with");
    }
    const std::size_t tensor = found.value();
    const bool has_bytes = plan_.tensors()[tensor].size != 0;
    if (has_bytes && !owned_.Contains(tensor)) {
      return InvalidArgument("tensor " + Quoted(name) + " belongs to another owner");
    }
    if (put_.Contains(tensor)) return InvalidArgument("tensor " + Quoted(name) + " is put twice");
    return tensor;
  }

  Status CheckSize(std::size_t number, std::uint64_t size) const {
    const PlanTensor& known = plan_.tensors()[number];
    if (size == known.size) return {};
    return InvalidArgument("tensor " + Quoted(known.spec.name) + " has " + std::to_string(size) +
                           " bytes, expected " + std::to_string(known.size));
  }

  // A delta of bytes cannot change what a tensor is (case C4).
  Status AddChange(const SourceTensor& tensor, std::vector<TensorChange>& changes) {
    SEGUE_ASSIGN_OR_RETURN(const std::size_t number, FindForPut(tensor.name));
    const TensorSpec& known = plan_.tensors()[number].spec;
    const auto dtype = DtypeFromName(tensor.dtype);
    if (!dtype) {
      return Unsupported("tensor " + Quoted(tensor.name) + " has the unknown dtype '" +
                         tensor.dtype + "'");
    }
    const TensorSpec given{tensor.name, *dtype, tensor.shape};
    if (given != known) {
      return InvalidArgument("tensor " + Quoted(tensor.name) + " is " + DescribeTensor(given) +
                             ", expected " + DescribeTensor(known) +
                             "; another dtype or shape needs a lineage of its own");
    }
    SEGUE_RETURN_IF_ERROR(CheckSize(number, tensor.size));
    SEGUE_RETURN_IF_ERROR(CheckPlace(tensor));
    changes.push_back({number, baseline_->Tensor(number), tensor.data});
    put_.Add(number);  // At once, so that a second one of that name is refused.
    return {};
  }

  Status PutAll(const std::vector<TensorChange>& changes) {
    Stopwatch watch;
    const auto sums = place_.differ == nullptr ? builder_->Add(changes)
                                               : builder_->AddOnDevice(changes, *place_.differ,
                                                                       !baseline_->is_on_device());
    if (!sums.ok()) {
      Discard();
      return sums.status().WithContext("the version was discarded");
    }
    sums_.before += sums->before;
    sums_.after += sums->after;
    for (const TensorChange& change : changes) put_.Add(change.tensor);
    report_.encode_s += watch.Lap();
    return {};
  }

  void TakeUnchanged(std::size_t tensor) {
    put_.Add(tensor);
    sums_.before += baseline_->TensorDigest(tensor);
    sums_.after += baseline_->TensorDigest(tensor);
  }

  // What was not put is missing, or unchanged where the caller has said so.
  Status TakeMissing() {
    std::size_t first = 0;
    std::uint64_t count = 0;
    for (std::size_t tensor = 0; tensor < plan_.tensors().size(); ++tensor) {
      if (!owned_.Contains(tensor) || put_.Contains(tensor)) continue;
      if (options_.missing_is_unchanged) {
        TakeUnchanged(tensor);
      } else if (count++ == 0) {
        first = tensor;
      }
    }
    if (count == 0) return {};
    return InvalidArgument("tensor " + Quoted(plan_.tensors()[first].spec.name) +
                           (count == 1 ? " was not put: put it, or say that it is unchanged"
                                       : " and " + std::to_string(count - 1) +
                                             " more were not put: put them, or say that they are "
                                             "unchanged") +
                           " (PutUnchanged; in Python put_unchanged, missing_is_unchanged)");
  }

  Status Encode(Stopwatch& watch) {
    PendingVersion& version = next_.version;
    EncodedGroups early;
    SEGUE_ASSIGN_OR_RETURN(next_.staged, builder_->Take(&early));
    SEGUE_RETURN_IF_ERROR(Prove());
    SEGUE_ASSIGN_OR_RETURN(version.writer, store_->StartWrite());
    SEGUE_ASSIGN_OR_RETURN(
        const PayloadSummary summary,
        WriteStagedDelta(
            plan_, next_.staged, options_.threads,
            [&](ByteSpan bytes) { return version.writer->Append(bytes); }, std::move(early)));
    version.SetPayload(options_.owner, summary, sums_.before, sums_.after);
    next_.encoded = true;
    report_.encode_s += watch.Lap();
    return {};
  }

  // Before anybody sees it: what was encoded, by whatever processor or device, is what it states.
  Status Prove() {
    const Status proven = baseline_->Prove(next_.staged, sums_.after);
    // A device may err; memory of the host that disagrees with itself was written to.
    if (proven.code() != StatusCode::kCorruption || place_.differ != nullptr) return proven;
    return InvalidArgument("a tensor was written to while it was compared (" + proven.message() +
                           "): nothing may write to it until then; nothing was published");
  }

  // Until the version is visible.
  Status Send(Stopwatch& watch) {
    VersionCommit commit = MakeCommit();
    SEGUE_RETURN_IF_ERROR(commit.Run(next_.version));
    if (options_.owner == 0) commit.CleanUp(next_.version);
    report_.commit_s = watch.Lap();
    return {};
  }

  // Enough of the lineage's record to read a manifest by.
  static LineageRecord PendingRecord(const PendingVersion& version) {
    LineageRecord record;
    record.lineage = version.identity.lineage;
    record.plan = version.identity.plan;
    return record;
  }

  // Whether the store has what was handed to it; forgotten where it has not.
  Status LookForPending() {
    const PendingVersion& version = pending_->version;
    const std::uint64_t number = version.identity.target_version;
    SEGUE_ASSIGN_OR_RETURN(const auto versions, Lineage::ListVersions(*store_, options_.lineage));
    if (std::binary_search(versions.begin(), versions.end(), number)) {
      SEGUE_ASSIGN_OR_RETURN(const Manifest manifest,
                             ReadManifest(*store_, PendingRecord(version), number));
      pending_->visible = HoldsPayload(manifest, version.payload, version.whole);
    }
    if (!pending_->visible) pending_.reset();
    return {};
  }

  // Before a version is begun, the one before has its place.
  Status SettlePending() {
    if (!pending_) return {};
    if (!pending_->visible) SEGUE_RETURN_IF_ERROR(LookForPending());
    if (!pending_) return {};
    if (!options_.cohort.engines.empty()) {
      Cohort now = options_.cohort;
      now.timeout = std::chrono::milliseconds(0);
      SEGUE_RETURN_IF_ERROR(WaitUntilReached(pending_->version.identity.target_version, now));
    }
    return MoveBaseline();
  }

  Status WaitUntilReached(std::uint64_t version, const Cohort& cohort) const {
    const auto digest_of = [this](std::uint64_t of) {
      return FindDigest(*store_, options_.lineage, of);
    };
    return WaitForCohort(cohort, options_.lineage, version, digest_of, environment_);
  }

  Environment& environment_;
  const PublisherOptions options_;
  PublishOptions publish_;  // Of the version that is begun.
  std::unique_ptr<Store> store_;
  std::optional<Lineage> lineage_;  // As it was when the version was begun.
  Plan plan_;
  Layout layout_;  // For a new lineage.
  TensorSet owned_;
  BaselinePlace place_;
  std::unique_ptr<Baseline> baseline_;
  std::optional<std::uint64_t> version_;  // Of the baseline.
  std::unique_ptr<DeltaBuilder> builder_;
  bool begun_ = false;
  Pending next_;  // Of the version that is begun.
  TensorSet put_;
  ChunkEncoder::Sums sums_;
  PublishReport report_;
  std::optional<Pending> pending_;
  Status broken_;
};

Publisher::Publisher(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Publisher::~Publisher() = default;

Result<std::unique_ptr<Publisher>> Publisher::Open(const PublisherOptions& options,
                                                   std::span<const SourceTensor> base) {
  return PublisherInternals::Open(SystemEnvironment(), options, base);
}

Result<std::unique_ptr<Publisher>> PublisherInternals::Open(Environment& environment,
                                                            const PublisherOptions& options,
                                                            std::span<const SourceTensor> base) {
  auto impl = std::make_unique<Publisher::Impl>(environment, options);
  SEGUE_RETURN_IF_ERROR(impl->Open(base));
  return std::unique_ptr<Publisher>(new Publisher(std::move(impl)));
}

Result<std::unique_ptr<Publisher>> Publisher::Open(const PublisherOptions& options,
                                                   std::span<const SourceTensor> base,
                                                   std::span<const std::string> owned,
                                                   const TensorReader& read) {
  auto impl = std::make_unique<Impl>(SystemEnvironment(), options);
  SEGUE_RETURN_IF_ERROR(impl->Open(base, owned, read));
  return std::unique_ptr<Publisher>(new Publisher(std::move(impl)));
}

Result<std::unique_ptr<Publisher>> Publisher::Open(
    const PublisherOptions& options, const std::string& checkpoint,
    const std::optional<std::vector<std::string>>& owned) {
  auto impl = std::make_unique<Impl>(SystemEnvironment(), options);
  SEGUE_RETURN_IF_ERROR(impl->Open(checkpoint, owned));
  return std::unique_ptr<Publisher>(new Publisher(std::move(impl)));
}

Status Publisher::Begin(std::optional<std::uint64_t> version) { return impl_->Begin(version); }
Status Publisher::Put(std::string_view name, const std::byte* data, std::uint64_t size) {
  return impl_->Put(name, data, size);
}
Status Publisher::Put(const SourceTensor& tensor) { return impl_->Put(tensor); }
Status Publisher::Put(std::span<const SourceTensor> tensors) { return impl_->Put(tensors); }
Status Publisher::PutUnchanged(std::string_view name) { return impl_->PutUnchanged(name); }
Result<VersionDigests> Publisher::Digests() { return impl_->Digests(); }
Status Publisher::Settle(const VersionDigests& whole) { return impl_->Settle(whole); }
std::string Publisher::BaselineDigest() const { return impl_->BaselineDigest(); }
Status Publisher::SettleBaseline(const std::string& whole) { return impl_->SettleBaseline(whole); }
Status Publisher::Upload() { return impl_->Upload(); }
Result<PublishReport> Publisher::Commit() { return impl_->Commit(); }
void Publisher::Discard() { impl_->Discard(); }
Result<PublishReport> Publisher::Publish(std::span<const SourceTensor> tensors,
                                         std::optional<std::uint64_t> version) {
  return impl_->PublishAll(tensors, version);
}
Status Publisher::WaitForAcknowledgement(const Cohort& cohort) const {
  return impl_->WaitForAcknowledgement(cohort);
}
Status Publisher::MoveBaseline() { return impl_->MoveBaseline(); }
std::optional<std::uint64_t> Publisher::version() const { return impl_->version(); }
std::uint64_t Publisher::baseline_bytes() const { return impl_->baseline_bytes(); }
Result<std::span<const std::byte>> Publisher::BaselineOf(std::string_view name) const {
  return impl_->BaselineOf(name);
}

}  // namespace segue
