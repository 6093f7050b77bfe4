// SPDX-License-Identifier: Apache-2.0
//
// Publisher: docs/protocol.md, section 2, "Publishing from buffers". Three things may exist at a
// time: the baseline (in model_), a version that is begun (put_, next_), and one that was handed to
// the store whose place in the baseline is not settled yet (pending_).
#include "segue/publisher.h"

#include <algorithm>
#include <utility>

#include "delta/profile.h"
#include "sync/acknowledge.h"
#include "sync/lineage.h"
#include "sync/owners.h"
#include "sync/published_model.h"
#include "sync/publisher_internals.h"
#include "sync/put_tensors.h"
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
  // `open` opens the model, once the options are found good.
  template <typename Open>
  static Result<std::unique_ptr<Publisher>> Make(Environment& environment,
                                                 const PublisherOptions& options,
                                                 const Open& open) {
    PublishOptions any_version = OptionsOf(options);
    any_version.version = 1;
    SEGUE_RETURN_IF_ERROR(CheckPublishOptions(any_version));
    if (!options.cohort.engines.empty() && !options.cohort.probe) {
      return InvalidArgument("a cohort needs a way to ask its engines");
    }
    SEGUE_ASSIGN_OR_RETURN(std::unique_ptr<PublishedModel> model, open());
    auto impl = std::make_unique<Impl>(environment, options, std::move(model));
    return std::unique_ptr<Publisher>(new Publisher(std::move(impl)));
  }

  Impl(Environment& environment, PublisherOptions options, std::unique_ptr<PublishedModel> model)
      : environment_(environment),
        options_(std::move(options)),
        publish_(OptionsOf(options_)),
        model_(std::move(model)),
        put_(*model_, *ProfileFromName(options_.profile), options_.threads) {}

  Status Begin(std::optional<std::uint64_t> version) {
    SEGUE_RETURN_IF_ERROR(broken_);
    if (begun_) return InvalidArgument("a version is begun already: commit or discard it");
    SEGUE_RETURN_IF_ERROR(SettlePending());
    if (version && model_->version && *version < *model_->version) {
      return InvalidArgument("version " + std::to_string(*version) +
                             " comes before the one that the publisher is at, " +
                             std::to_string(*model_->version) + "; version numbers only grow");
    }
    publish_.version = version;
    SEGUE_RETURN_IF_ERROR(CheckPublishOptions(publish_));
    SEGUE_RETURN_IF_ERROR(model_->ReadLineage());
    next_ = Pending();
    report_ = PublishReport();
    SEGUE_RETURN_IF_ERROR(MakeCommit().ChooseNumbers(next_.version.identity));
    SetLayouts();
    put_.Clear();
    begun_ = true;
    return {};
  }

  Status Put(std::string_view name, const std::byte* data, std::uint64_t size) {
    SEGUE_RETURN_IF_ERROR(CheckBegun());
    SEGUE_ASSIGN_OR_RETURN(const TensorChange change, put_.ChangeOf(name, data, size));
    return Compare({change});
  }

  Status Put(const SourceTensor& tensor) {
    SEGUE_RETURN_IF_ERROR(CheckBegun());
    SEGUE_ASSIGN_OR_RETURN(const TensorChange change, put_.ChangeOf(tensor));
    return Compare({change});
  }

  Status Put(std::span<const SourceTensor> tensors) {
    SEGUE_RETURN_IF_ERROR(CheckBegun());
    const auto changes = put_.ChangesOf(tensors);
    if (changes.ok()) return Compare(changes.value());
    Discard();
    return changes.status();
  }

  Status PutUnchanged(std::string_view name) {
    SEGUE_RETURN_IF_ERROR(CheckBegun());
    return put_.AddUnchanged(name);
  }

  Result<VersionDigests> Digests() {
    SEGUE_RETURN_IF_ERROR(CheckBegun());
    SEGUE_RETURN_IF_ERROR(put_.AddMissing(options_.missing_is_unchanged));
    return VersionDigests{put_.sums().before.ToHex(), put_.sums().after.ToHex()};
  }

  Status Settle(const VersionDigests& whole) {
    SEGUE_RETURN_IF_ERROR(CheckBegun());
    SEGUE_ASSIGN_OR_RETURN(const Digest base, DigestOf(whole.base));
    SEGUE_ASSIGN_OR_RETURN(const Digest target, DigestOf(whole.target));
    next_.version.whole = {base, target};
    SEGUE_ASSIGN_OR_RETURN(next_.is_there, MakeCommit().IsThereAlready(next_.version));
    return {};
  }

  std::string BaselineDigest() const { return model_->baseline->digest().ToHex(); }

  Status SettleBaseline(const std::string& whole) {
    SEGUE_ASSIGN_OR_RETURN(const Digest digest, DigestOf(whole));
    SEGUE_RETURN_IF_ERROR(model_->ReadLineage());
    if (!model_->lineage) return {};
    return model_->FindVersion(digest, "the tensors of all owners");
  }

  Status Upload() {
    SEGUE_RETURN_IF_ERROR(CheckBegun());
    SEGUE_RETURN_IF_ERROR(put_.AddMissing(options_.missing_is_unchanged));
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
    SEGUE_RETURN_IF_ERROR(CheckBegun());
    SEGUE_RETURN_IF_ERROR(put_.AddMissing(options_.missing_is_unchanged));
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
    put_.Clear();
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
    if (!model_->version) {
      return InvalidArgument("nothing was published yet that an engine could have");
    }
    return WaitUntilReached(*model_->version, cohort);
  }

  // After the version is visible.
  Status MoveBaseline() {
    SEGUE_RETURN_IF_ERROR(broken_);
    if (!pending_) return {};
    if (!pending_->visible) {
      SEGUE_RETURN_IF_ERROR(LookForPending());
      if (!pending_) return {};
    }
    const Status moved = model_->baseline->Advance(pending_->staged);
    if (!moved.ok() && moved.code() != StatusCode::kTainted) {
      return moved.WithContext("the version is published, and the baseline has not moved");
    }
    if (!moved.ok()) {
      broken_ = Tainted("the baseline could not be moved (" + moved.message() +
                        "): open the publisher anew");
      return broken_;
    }
    model_->version = pending_->version.identity.target_version;
    pending_.reset();
    return {};
  }

  std::optional<std::uint64_t> version() const { return model_->version; }
  std::uint64_t baseline_bytes() const { return model_->baseline->size(); }

  Result<std::span<const std::byte>> BaselineOf(std::string_view name) const {
    SEGUE_RETURN_IF_ERROR(broken_);
    SEGUE_ASSIGN_OR_RETURN(const std::size_t tensor, FindTensor(model_->plan, name));
    const std::uint64_t size = model_->plan.tensors()[tensor].size;
    if (size != 0 && !model_->owned.Contains(tensor)) {
      return InvalidArgument("tensor " + Quoted(name) + " belongs to another owner");
    }
    if (model_->baseline->is_on_device()) {
      return Unsupported("the baseline lies in the memory of '" + options_.device + "'");
    }
    return std::span(model_->baseline->Tensor(tensor), size);
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

  Status CheckBegun() const {
    SEGUE_RETURN_IF_ERROR(broken_);
    return begun_ ? Status() : InvalidArgument("no version is begun");
  }

  VersionCommit MakeCommit() {
    const Lineage* lineage = model_->lineage ? &*model_->lineage : nullptr;
    return {*model_->store, lineage, model_->plan, publish_, report_, environment_};
  }

  // A lineage that exists keeps its layout; the store has it.
  void SetLayouts() {
    PendingVersion& version = next_.version;
    Sha256 digest = model_->layout.digest();
    if (model_->lineage) {
      digest = model_->lineage->Version(model_->lineage->newest())->layout;
    } else {
      version.base_layout = version.target_layout = &model_->layout;
    }
    version.identity.base_layout = version.identity.target_layout = digest;
    if (options_.owner_count > 1) version.tensors = &model_->owned;
  }

  Status Compare(const std::vector<TensorChange>& changes) {
    Stopwatch watch;
    const Status compared = put_.Compare(changes);
    if (!compared.ok()) {
      Discard();
      return compared.WithContext("the version was discarded");
    }
    report_.encode_s += watch.Lap();
    return {};
  }

  Status Encode(Stopwatch& watch) {
    PendingVersion& version = next_.version;
    EncodedGroups early;
    SEGUE_ASSIGN_OR_RETURN(next_.staged, put_.Take(&early));
    SEGUE_RETURN_IF_ERROR(Prove());
    SEGUE_ASSIGN_OR_RETURN(version.writer, model_->store->StartWrite());
    SEGUE_ASSIGN_OR_RETURN(
        const PayloadSummary summary,
        WriteStagedDelta(
            model_->plan, next_.staged, options_.threads,
            [&](ByteSpan bytes) { return version.writer->Append(bytes); }, std::move(early)));
    version.SetPayload(options_.owner, summary, put_.sums().before, put_.sums().after);
    next_.encoded = true;
    report_.encode_s += watch.Lap();
    return {};
  }

  // Before anybody sees it: what was encoded, by whatever processor or device, is what it states.
  Status Prove() {
    Status proven = model_->baseline->Prove(next_.staged, put_.sums().after);
    // A device may err; memory of the host that disagrees with itself was written to.
    if (proven.code() != StatusCode::kCorruption || model_->place.differ != nullptr) return proven;
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
    SEGUE_ASSIGN_OR_RETURN(const auto versions,
                           Lineage::ListVersions(*model_->store, options_.lineage));
    if (std::binary_search(versions.begin(), versions.end(), number)) {
      SEGUE_ASSIGN_OR_RETURN(const Manifest manifest,
                             ReadManifest(*model_->store, PendingRecord(version), number));
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
      return FindDigest(*model_->store, options_.lineage, of);
    };
    return WaitForCohort(cohort, options_.lineage, version, digest_of, environment_);
  }

  Environment& environment_;
  const PublisherOptions options_;
  PublishOptions publish_;  // Of the version that is begun.
  const std::unique_ptr<PublishedModel> model_;
  bool begun_ = false;
  Pending next_;  // Of the version that is begun.
  PutTensors put_;
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
  return Publisher::Impl::Make(environment, options,
                               [&] { return OpenPublishedModel(environment, options, base); });
}

Result<std::unique_ptr<Publisher>> Publisher::Open(const PublisherOptions& options,
                                                   std::span<const SourceTensor> base,
                                                   std::span<const std::string> owned,
                                                   const TensorReader& read) {
  Environment& environment = SystemEnvironment();
  return Impl::Make(environment, options,
                    [&] { return OpenPublishedModel(environment, options, base, owned, read); });
}

Result<std::unique_ptr<Publisher>> Publisher::Open(
    const PublisherOptions& options, const std::string& checkpoint,
    const std::optional<std::vector<std::string>>& owned) {
  Environment& environment = SystemEnvironment();
  return Impl::Make(environment, options,
                    [&] { return OpenPublishedModel(environment, options, checkpoint, owned); });
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
