// SPDX-License-Identifier: Apache-2.0
//
// Publish: docs/protocol.md, section 2. The order is the point: everything durable before the
// manifest, the manifest last, and no number used twice.
#include "segue/publish.h"

#include <algorithm>
#include <chrono>
#include <iterator>
#include <memory>
#include <utility>

#include "base/limits.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/layout.h"
#include "checkpoint/plan.h"
#include "delta/encoder.h"
#include "delta/profile.h"
#include "sync/environment.h"
#include "sync/lineage.h"
#include "sync/owners.h"
#include "sync/prune.h"
#include "sync/stopwatch.h"
#include "sync/version_choice.h"

namespace segue {
namespace {

// Temporaries of this age were left by a publisher that died: none waits so long between two
// writes.
constexpr std::chrono::hours kStaleAge{24};

class Publication {
 public:
  Publication(Environment& environment, const PublishOptions& options)
      : environment_(environment), options_(options) {}

  Result<PublishReport> Run() {
    SEGUE_RETURN_IF_ERROR(CheckOptions());
    Stopwatch watch;
    SEGUE_RETURN_IF_ERROR(OpenAll());
    SEGUE_RETURN_IF_ERROR(Identify());
    report_.open_s = watch.Lap();
    SEGUE_RETURN_IF_ERROR(EncodePayload());
    report_.encode_s = watch.Lap();
    SEGUE_RETURN_IF_ERROR(options_.owner == 0 ? Commit() : HandIn());
    if (report_.committed) CleanUp();
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
                             std::to_string(options_.owner_count) +
                             " does not exist: they are numbered from 0, and --owners says how "
                             "many there are");
    }
    if (options_.owner_count > 1) {
      if (!options_.version) {
        return InvalidArgument("several owners need to agree on the version: name it (--version)");
      }
      if (options_.session.empty()) {
        return InvalidArgument(
            "several owners need a session: a name that they share, new for each attempt "
            "(--session)");
      }
      const Status session = CheckLineageName(options_.session);
      if (!session.ok()) return session.WithContext("the session of several owners (--session)");
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
    SEGUE_ASSIGN_OR_RETURN(store_, environment_.OpenStore(options_.store, /*create=*/true));
    SEGUE_ASSIGN_OR_RETURN(const std::uint64_t chunk_size, OpenLineage());
    SEGUE_ASSIGN_OR_RETURN(plan_, Plan::FromCheckpoint(base_, chunk_size));
    SEGUE_ASSIGN_OR_RETURN(const Plan target_plan, Plan::FromCheckpoint(target_, chunk_size));
    SEGUE_RETURN_IF_ERROR(ComparePlans(plan_, target_plan, "base '" + options_.base + "'",
                                       "target '" + options_.target + "'"));
    if (lineage_ && lineage_->record().plan != plan_.digest()) {
      SEGUE_ASSIGN_OR_RETURN(const Plan known, lineage_->ReadPlan(*store_));
      SEGUE_RETURN_IF_ERROR(ComparePlans(known, plan_, "lineage '" + options_.lineage + "'",
                                         "base '" + options_.base + "'"));
      return Internal("plans agree but their digests do not");
    }
    return {};
  }

  // Opens the lineage where there is one; gives the chunk size to use.
  Result<std::uint64_t> OpenLineage() {
    const std::uint64_t wanted = options_.chunk_size.value_or(limits::kChunkSizeDefault);
    SEGUE_ASSIGN_OR_RETURN(lineage_, Lineage::OpenIfThere(*store_, options_.lineage));
    if (!lineage_) return wanted;
    SEGUE_ASSIGN_OR_RETURN(const Plan known, lineage_->ReadPlan(*store_));
    if (options_.chunk_size && wanted != known.chunk_size()) {
      report_.warnings.push_back("lineage '" + options_.lineage + "' has chunks of " +
                                 std::to_string(known.chunk_size()) + " bytes for good; " +
                                 std::to_string(wanted) + " were asked for");
    }
    return known.chunk_size();
  }

  const Lineage* lineage() const { return lineage_ ? &*lineage_ : nullptr; }

  // All of the version's identity that does not depend on the weights. The numbers are what the
  // owners' records need; the true ones follow from the digests.
  Status Identify() {
    SEGUE_RETURN_IF_ERROR(CheckWantedVersion(lineage(), options_));
    const std::uint64_t newest = lineage_ ? lineage_->newest() : 0;
    identity_.lineage = options_.lineage;
    identity_.target_version = options_.version.value_or(newest + 1);
    identity_.base_version = std::min(newest, identity_.target_version - 1);
    identity_.plan = plan_.digest();
    base_layout_ = Layout::FromCheckpoint(base_);
    target_layout_ = Layout::FromCheckpoint(target_);
    identity_.base_layout = base_layout_.digest();
    identity_.target_layout = target_layout_.digest();
    identity_.profile = options_.profile;
    if (identity_.base_layout != identity_.target_layout) {
      report_.warnings.push_back(
          "target '" + options_.target + "' is laid out differently from base '" + options_.base +
          "' (shards, header or index): checkpoints cannot take this version in place, they need "
          "apply --output");
    }
    return {};
  }

  Status EncodePayload() {
    SEGUE_ASSIGN_OR_RETURN(writer_, store_->StartWrite());
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
                                       [&](ByteSpan bytes) { return writer_->Append(bytes); }));
    payload_.owner = options_.owner;
    payload_.size = encoded.payload.size;
    payload_.sha256 = encoded.payload.sha256;
    payload_.rows = encoded.payload.row_count;
    identity_.base_digest = encoded.base_digest;
    identity_.target_digest = encoded.target_digest;
    identity_.changed_chunks = encoded.payload.row_count;
    identity_.changed_elements = encoded.payload.changed_elements;
    return {};
  }

  // Gives the payload its name, or discards it where the version turned out to be there already.
  Status CommitPayload() {
    payload_.object = object_name::Payload(options_.lineage, identity_.target_version,
                                           options_.owner, options_.owner_count, payload_.sha256);
    // A leftover of the same name has the same content: the name carries its hash.
    SEGUE_ASSIGN_OR_RETURN(const PutOutcome outcome, writer_->Commit(payload_.object));
    writer_.reset();
    if (outcome == PutOutcome::kCreated) report_.published_bytes += payload_.size;
    return {};
  }

  Status HandIn() {
    SEGUE_RETURN_IF_ERROR(CommitPayload());
    SEGUE_RETURN_IF_ERROR(
        OwnerExchange(*store_, options_, environment_).HandIn(identity_, payload_));
    FillReport(payload_.size);
    return {};
  }

  Status Commit() {
    Manifest manifest;
    manifest.model_bytes = plan_.model_size();
    manifest.payloads.push_back(payload_);
    OwnerExchange owners(*store_, options_, environment_);
    SEGUE_RETURN_IF_ERROR(owners.Collect(identity_, manifest.payloads));
    SEGUE_ASSIGN_OR_RETURN(VersionChoice choice, ChooseVersion(lineage(), options_, identity_));
    identity_.base_version = choice.base;
    identity_.target_version = choice.target;
    if (!choice.warning.empty()) report_.warnings.push_back(std::move(choice.warning));
    report_.already_published = choice.already_published;
    if (choice.already_published) {
      writer_.reset();
      manifest.payloads = lineage_->manifests().at(choice.target).payloads;
    } else {
      SEGUE_RETURN_IF_ERROR(CommitPayload());
      manifest.payloads.front() = payload_;
      SEGUE_RETURN_IF_ERROR(PutPlanAndLayouts());
      SEGUE_RETURN_IF_ERROR(PutLineage());
      manifest.identity = identity_;
      SEGUE_RETURN_IF_ERROR(PutManifest(manifest));
    }
    std::uint64_t payload_bytes = 0;
    for (const PayloadEntry& entry : manifest.payloads) payload_bytes += entry.size;
    FillReport(payload_bytes);
    report_.committed = true;
    owners.RemoveRecords(report_.warnings);
    return {};
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
    if (!IsSameStep(found.identity, identity_)) return VersionIsTaken(found.identity, identity_);
    report_.already_published = true;
    return {};
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

  // What the version does not depend on: a failure here is a warning.
  void CleanUp() {
    std::vector<std::string>& warnings = report_.warnings;
    if (options_.retain != 0) {
      PruneReport pruned = PruneVersions(*store_, LineageIdentity(), options_.retain);
      report_.pruned = std::move(pruned.pruned);
      std::move(pruned.warnings.begin(), pruned.warnings.end(), std::back_inserter(warnings));
    }
    const Status status = store_->RemoveStaleTemporaries(kStaleAge);
    if (!status.ok()) warnings.push_back("old temporaries stay: " + status.message());
  }

  Environment& environment_;
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
  std::unique_ptr<StoreWriter> writer_;  // The payload until it has a name.
  PublishReport report_;
};

}  // namespace

Result<PublishReport> Publish(const PublishOptions& options) {
  return PublishIn(SystemEnvironment(), options);
}

Result<PublishReport> PublishIn(Environment& environment, const PublishOptions& options) {
  return Publication(environment, options).Run();
}

}  // namespace segue
