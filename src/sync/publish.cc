// SPDX-License-Identifier: Apache-2.0
//
// Publish: docs/protocol.md, section 2. The order is the point: everything durable before the
// manifest, the manifest last, and no number used twice.
#include "segue/publish.h"

#include <algorithm>
#include <chrono>
#include <memory>
#include <thread>

#include "base/limits.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/layout.h"
#include "checkpoint/plan.h"
#include "delta/encoder.h"
#include "delta/profile.h"
#include "store/store.h"
#include "sync/lineage.h"
#include "sync/prune.h"
#include "sync/stopwatch.h"

namespace segue {
namespace {

// How often owner 0 looks for the others' records.
constexpr auto kOwnerPollInterval = std::chrono::milliseconds(50);

class Publication {
 public:
  explicit Publication(const PublishOptions& options) : options_(options) {}

  Result<PublishReport> Run() {
    SEGUE_RETURN_IF_ERROR(CheckOptions());
    Stopwatch watch;
    SEGUE_RETURN_IF_ERROR(OpenAll());
    SEGUE_RETURN_IF_ERROR(ChooseVersion());
    report_.open_s = watch.Lap();
    SEGUE_RETURN_IF_ERROR(EncodePayload());
    report_.encode_s = watch.Lap();
    SEGUE_RETURN_IF_ERROR(options_.owner == 0 ? Commit() : HandIn());
    if (report_.committed && options_.retain != 0) {
      PruneReport pruned = PruneVersions(*store_, LineageIdentity(), options_.retain);
      report_.pruned = std::move(pruned.pruned);
      for (std::string& warning : pruned.warnings) report_.warnings.push_back(std::move(warning));
    }
    report_.commit_s = watch.Lap();
    return report_;
  }

 private:
  Status CheckOptions() {
    SEGUE_RETURN_IF_ERROR(CheckLineageName(options_.lineage));
    const auto profile = ProfileFromName(options_.profile);
    if (!profile) {
      return InvalidArgument("profile '" + options_.profile +
                             "' is not known; known are sparse-zstd, snappy-zstd, lz4-zstd, zstd");
    }
    profile_ = *profile;
    if (options_.version && *options_.version > limits::kVersionMax) {
      return InvalidArgument("version " + std::to_string(*options_.version) +
                             " is over the limit of " + std::to_string(limits::kVersionMax));
    }
    if (options_.owner_count == 0 || options_.owner_count > limits::kOwnerCountMax ||
        options_.owner >= options_.owner_count) {
      return InvalidArgument("owner " + std::to_string(options_.owner) + " of " +
                             std::to_string(options_.owner_count) + " does not exist");
    }
    if (options_.owner_count > 1) {
      if (!options_.version) return InvalidArgument("several owners need an explicit version");
      const Status session = CheckLineageName(options_.session);
      if (!session.ok()) return session.WithContext("session of several owners");
    }
    return {};
  }

  Status OpenAll() {
    SEGUE_ASSIGN_OR_RETURN(base_, Checkpoint::Open(options_.base));
    SEGUE_ASSIGN_OR_RETURN(target_, Checkpoint::Open(options_.target));
    for (const Checkpoint* checkpoint : {&base_, &target_}) {
      report_.warnings.insert(report_.warnings.end(), checkpoint->warnings().begin(),
                              checkpoint->warnings().end());
    }
    SEGUE_ASSIGN_OR_RETURN(store_, OpenStore(options_.store, /*create=*/true));
    std::uint64_t chunk_size = options_.chunk_size;
    Result<Lineage> lineage = Lineage::Open(*store_, options_.lineage);
    if (lineage.ok()) {
      lineage_ = std::move(lineage).value();
      SEGUE_ASSIGN_OR_RETURN(const Plan known, lineage_->ReadPlan(*store_));
      chunk_size = known.chunk_size();
    } else if (lineage.status().code() != StatusCode::kNotFound) {
      return lineage.status();
    }
    SEGUE_ASSIGN_OR_RETURN(plan_, Plan::FromCheckpoint(base_, chunk_size));
    SEGUE_ASSIGN_OR_RETURN(const Plan target_plan, Plan::FromCheckpoint(target_, chunk_size));
    SEGUE_RETURN_IF_ERROR(ComparePlans(plan_, target_plan, "base", "target"));
    if (lineage_ && lineage_->record().plan != plan_.digest()) {
      SEGUE_ASSIGN_OR_RETURN(const Plan known, lineage_->ReadPlan(*store_));
      SEGUE_RETURN_IF_ERROR(
          ComparePlans(known, plan_, "lineage '" + options_.lineage + "'", "base"));
      return Internal("plans agree but their digests do not");
    }
    return {};
  }

  // The target's number; the base's follows from its digest after the encode.
  Status ChooseVersion() {
    const std::uint64_t newest = lineage_ ? lineage_->newest() : 0;
    identity_.lineage = options_.lineage;
    identity_.target_version = options_.version.value_or(newest + 1);
    if (identity_.target_version > limits::kVersionMax) {
      return ResourceExhausted("lineage '" + options_.lineage +
                               "' has used up its version numbers");
    }
    const bool exists = lineage_ && lineage_->manifests().contains(identity_.target_version);
    if (identity_.target_version <= newest && !exists) {
      return InvalidArgument("version " + std::to_string(identity_.target_version) +
                             " of lineage '" + options_.lineage +
                             "' would come before the newest, " + std::to_string(newest) +
                             "; version numbers only grow");
    }
    identity_.base_version = newest;
    identity_.plan = plan_.digest();
    base_layout_ = Layout::FromCheckpoint(base_);
    target_layout_ = Layout::FromCheckpoint(target_);
    identity_.base_layout = base_layout_.digest();
    identity_.target_layout = target_layout_.digest();
    identity_.profile = options_.profile;
    return {};
  }

  Status EncodePayload() {
    SEGUE_ASSIGN_OR_RETURN(const std::unique_ptr<StoreWriter> writer, store_->StartWrite());
    EncodeOptions encode;
    encode.profile = profile_;
    encode.owner = options_.owner;
    encode.owner_count = options_.owner_count;
    encode.threads = options_.threads;
    if (options_.progress) {
      encode.progress = [this](std::uint64_t done) {
        options_.progress("diff+encode", done, plan_.model_size());
      };
    }
    SEGUE_ASSIGN_OR_RETURN(const EncodeReport encoded,
                           EncodeDelta(plan_, ViewOf(base_), ViewOf(target_), encode,
                                       [&](ByteSpan bytes) { return writer->Append(bytes); }));
    payload_.owner = options_.owner;
    payload_.size = encoded.payload.size;
    payload_.sha256 = encoded.payload.sha256;
    payload_.rows = encoded.payload.row_count;
    payload_.object = object_name::Payload(options_.lineage, identity_.target_version,
                                           options_.owner, options_.owner_count, payload_.sha256);
    identity_.base_digest = encoded.base_digest;
    identity_.target_digest = encoded.target_digest;
    identity_.changed_chunks = encoded.payload.row_count;
    identity_.changed_elements = encoded.payload.changed_elements;
    // A leftover of the same name has the same content: the name carries its hash.
    SEGUE_ASSIGN_OR_RETURN(const PutOutcome outcome, writer->Commit(payload_.object));
    if (outcome == PutOutcome::kCreated) report_.published_bytes += payload_.size;
    return {};
  }

  std::string OwnerFolder() const {
    return object_name::OwnerFolder(options_.lineage, identity_.target_version, options_.session);
  }

  // Owners other than 0: leave a record for owner 0.
  Status HandIn() {
    OwnerRecord record;
    record.identity = identity_;
    record.owner_count = options_.owner_count;
    record.payload = payload_;
    const std::string name =
        object_name::Owner(options_.lineage, identity_.target_version, options_.session,
                           options_.owner, options_.owner_count);
    SEGUE_ASSIGN_OR_RETURN(const PutOutcome outcome,
                           store_->PutIfAbsent(name, AsBytes(record.ToJson())));
    if (outcome == PutOutcome::kAlreadyThere) {
      SEGUE_ASSIGN_OR_RETURN(const ByteVector json, store_->Get(name, limits::kManifestSizeMax));
      SEGUE_ASSIGN_OR_RETURN(const OwnerRecord found, OwnerRecord::Parse(json, name));
      if (!(found == record)) {
        return InvalidArgument("owner record '" + name +
                               "' exists with other content; "
                               "use a new session name");
      }
    }
    FillReport(payload_.size);
    return {};
  }

  Status Commit() {
    Manifest manifest;
    manifest.model_bytes = plan_.model_size();
    manifest.payloads.push_back(payload_);
    SEGUE_RETURN_IF_ERROR(CollectOwners(manifest));
    SEGUE_RETURN_IF_ERROR(FindBase());
    SEGUE_RETURN_IF_ERROR(PutPlanAndLayouts());
    SEGUE_RETURN_IF_ERROR(PutLineage());
    manifest.identity = identity_;
    SEGUE_RETURN_IF_ERROR(PutManifest(manifest));
    std::uint64_t payload_bytes = 0;
    for (const PayloadEntry& entry : manifest.payloads) payload_bytes += entry.size;
    FillReport(payload_bytes);
    report_.committed = true;
    RemoveOwnerRecords();
    return {};
  }

  // Waits for owners 1 and up and adds what they have to the manifest (case G7).
  Status CollectOwners(Manifest& manifest) {
    const auto deadline = std::chrono::steady_clock::now() +
                          std::chrono::duration<double>(options_.owner_timeout_seconds);
    for (std::uint32_t owner = 1; owner < options_.owner_count; ++owner) {
      const std::string name = object_name::Owner(options_.lineage, identity_.target_version,
                                                  options_.session, owner, options_.owner_count);
      const std::string file = name.substr(OwnerFolder().size() + 1);
      for (;;) {
        SEGUE_ASSIGN_OR_RETURN(const auto names, store_->List(OwnerFolder()));
        if (std::find(names.begin(), names.end(), file) != names.end()) break;
        if (std::chrono::steady_clock::now() >= deadline) {
          return Unavailable("owner " + std::to_string(owner) + " of " +
                             std::to_string(options_.owner_count) + " has not handed in version " +
                             std::to_string(identity_.target_version) + " within " +
                             std::to_string(static_cast<long>(options_.owner_timeout_seconds)) +
                             " s; no version was published");
        }
        std::this_thread::sleep_for(kOwnerPollInterval);
      }
      SEGUE_ASSIGN_OR_RETURN(const ByteVector json, store_->Get(name, limits::kManifestSizeMax));
      SEGUE_ASSIGN_OR_RETURN(const OwnerRecord record, OwnerRecord::Parse(json, name));
      SEGUE_RETURN_IF_ERROR(AddOwner(record, owner, name, manifest));
    }
    return {};
  }

  Status AddOwner(const OwnerRecord& record, std::uint32_t owner, const std::string& name,
                  Manifest& manifest) {
    const DeltaIdentity& other = record.identity;
    if (other.lineage != identity_.lineage || other.target_version != identity_.target_version ||
        other.plan != identity_.plan || other.base_layout != identity_.base_layout ||
        other.target_layout != identity_.target_layout ||
        record.owner_count != options_.owner_count || record.payload.owner != owner) {
      return InvalidArgument("owner record '" + name +
                             "' is of another base, target, plan or number of owners");
    }
    identity_.base_digest += other.base_digest;
    identity_.target_digest += other.target_digest;
    identity_.changed_chunks += other.changed_chunks;
    identity_.changed_elements += other.changed_elements;
    manifest.payloads.push_back(record.payload);
    return {};
  }

  // The base must be the origin or a published version (case D2): the digest decides.
  Status FindBase() {
    if (!lineage_) {
      identity_.base_version = 0;
    } else if (const auto version =
                   lineage_->FindVersion(identity_.base_digest, identity_.target_version - 1)) {
      identity_.base_version = *version;
    } else {
      return VersionMismatch("base '" + options_.base + "' has digest " +
                             identity_.base_digest.ToHex() + ", which is no version of lineage '" +
                             options_.lineage + "'; its newest version " +
                             std::to_string(lineage_->newest()) + " has " +
                             lineage_->Version(lineage_->newest())->digest.ToHex());
    }
    if (identity_.base_version < identity_.target_version) {
      if (lineage_) ConsiderBranch();
      return {};
    }
    return InvalidArgument("version " + std::to_string(identity_.target_version) +
                           " does not come after its base, version " +
                           std::to_string(identity_.base_version));
  }

  // A base that is not the newest version (case D5): either the newest step is published once more,
  // which keeps its number, or the trainer went back, which those who follow must hear of.
  void ConsiderBranch() {
    const std::uint64_t newest = lineage_->newest();
    if (identity_.base_version >= newest) return;
    const auto found = lineage_->manifests().find(newest);
    if (!options_.version && found != lineage_->manifests().end()) {
      const DeltaIdentity& last = found->second.identity;
      if (last.base_digest == identity_.base_digest &&
          last.target_digest == identity_.target_digest &&
          last.target_layout == identity_.target_layout) {
        identity_.base_version = last.base_version;
        identity_.target_version = newest;
        return;
      }
    }
    if (identity_.target_version <= newest) return;
    report_.warnings.push_back(
        "version " + std::to_string(identity_.target_version) + " starts from version " +
        std::to_string(identity_.base_version) + ", not from the newest, " +
        std::to_string(newest) + ": whoever holds a version after " +
        std::to_string(identity_.base_version) + " cannot follow and must be rebuilt");
  }

  Status PutObject(const std::string& name, ByteSpan bytes) {
    SEGUE_ASSIGN_OR_RETURN(const PutOutcome outcome, store_->PutIfAbsent(name, bytes));
    if (outcome == PutOutcome::kCreated) report_.published_bytes += bytes.size();
    return {};
  }

  Status PutPlanAndLayouts() {
    SEGUE_RETURN_IF_ERROR(
        PutObject(object_name::Plan(options_.lineage, plan_.digest()), plan_.object()));
    SEGUE_RETURN_IF_ERROR(PutLayout(base_layout_));
    if (identity_.target_layout == identity_.base_layout) return {};
    return PutLayout(target_layout_);
  }

  Status PutLayout(const Layout& layout) {
    SEGUE_ASSIGN_OR_RETURN(const ByteVector object, layout.MakeObject());
    return PutObject(object_name::Layout(options_.lineage, layout.digest()), object);
  }

  LineageRecord LineageIdentity() const {
    if (lineage_) return lineage_->record();
    LineageRecord record;
    record.lineage = options_.lineage;
    record.origin_version = identity_.base_version;
    record.origin_digest = identity_.base_digest;
    record.plan = identity_.plan;
    record.layout = identity_.base_layout;
    return record;
  }

  Status PutLineage() {
    if (lineage_) return {};
    const LineageRecord record = LineageIdentity();
    const std::string name = object_name::Lineage(options_.lineage);
    SEGUE_ASSIGN_OR_RETURN(const PutOutcome outcome,
                           store_->PutIfAbsent(name, AsBytes(record.ToJson())));
    if (outcome == PutOutcome::kCreated) return {};
    SEGUE_ASSIGN_OR_RETURN(const ByteVector json, store_->Get(name, limits::kManifestSizeMax));
    SEGUE_ASSIGN_OR_RETURN(const LineageRecord found, LineageRecord::Parse(json, name));
    if (found == record) return {};
    return InvalidArgument("lineage '" + options_.lineage +
                           "' was created by another publisher meanwhile, from another base");
  }

  Status PutManifest(const Manifest& manifest) {
    const std::string json = manifest.ToJson();
    const std::string name = object_name::Version(options_.lineage, identity_.target_version);
    SEGUE_ASSIGN_OR_RETURN(const PutOutcome outcome, store_->PutIfAbsent(name, AsBytes(json)));
    if (outcome == PutOutcome::kCreated) {
      report_.published_bytes += json.size();
      return {};
    }
    SEGUE_ASSIGN_OR_RETURN(const Manifest found,
                           ReadManifest(*store_, LineageIdentity(), identity_.target_version));
    if (found.identity.base_version == identity_.base_version &&
        found.identity.base_digest == identity_.base_digest &&
        found.identity.target_digest == identity_.target_digest &&
        found.identity.target_layout == identity_.target_layout) {
      report_.already_published = true;
      return {};
    }
    return InvalidArgument("version " + std::to_string(identity_.target_version) + " of lineage '" +
                           options_.lineage + "' exists with other content (digest " +
                           found.identity.target_digest.ToHex() + ", this one has " +
                           identity_.target_digest.ToHex() +
                           "); use the next number or a new lineage");
  }

  void FillReport(std::uint64_t payload_bytes) {
    report_.lineage = identity_.lineage;
    report_.base_version = identity_.base_version;
    report_.target_version = identity_.target_version;
    report_.base_digest = identity_.base_digest.ToHex();
    report_.target_digest = identity_.target_digest.ToHex();
    report_.model_bytes = plan_.model_size();
    report_.payload_bytes = payload_bytes;
    report_.changed_chunks = identity_.changed_chunks;
    report_.changed_elements = identity_.changed_elements;
  }

  void RemoveOwnerRecords() {
    for (std::uint32_t owner = 1; owner < options_.owner_count; ++owner) {
      const Status status =
          store_->Delete(object_name::Owner(options_.lineage, identity_.target_version,
                                            options_.session, owner, options_.owner_count));
      if (!status.ok()) report_.warnings.push_back("owner record stays: " + status.message());
    }
  }

  const PublishOptions& options_;
  Profile profile_ = Profile::kSparseZstd;
  Checkpoint base_;
  Checkpoint target_;
  std::unique_ptr<Store> store_;
  std::optional<Lineage> lineage_;
  Plan plan_;
  Layout base_layout_;
  Layout target_layout_;
  DeltaIdentity identity_;
  PayloadEntry payload_;
  PublishReport report_;
};

}  // namespace

Result<PublishReport> Publish(const PublishOptions& options) { return Publication(options).Run(); }

}  // namespace segue
