// SPDX-License-Identifier: Apache-2.0
//
// Publish: the difference of two checkpoints as a version (docs/protocol.md, section 2). What comes
// after the encoding is version_commit.h.
#include "segue/publish.h"

#include <memory>
#include <utility>

#include "base/limits.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/layout.h"
#include "checkpoint/plan.h"
#include "delta/encoder.h"
#include "delta/profile.h"
#include "store/signed_store.h"
#include "sync/environment.h"
#include "sync/lineage.h"
#include "sync/stopwatch.h"
#include "sync/version_commit.h"

namespace segue {
namespace {

class Publication {
 public:
  Publication(Environment& environment, const PublishOptions& options)
      : environment_(environment), options_(options) {}

  Result<PublishReport> Run() {
    SEGUE_RETURN_IF_ERROR(CheckPublishOptions(options_));
    Stopwatch watch;
    SEGUE_RETURN_IF_ERROR(OpenAll());
    VersionCommit commit(*store_, lineage_ ? &*lineage_ : nullptr, plan_, options_, report_,
                         environment_);
    SEGUE_RETURN_IF_ERROR(commit.ChooseNumbers(pending_.identity));
    TakeLayouts();
    report_.open_s = watch.Lap();
    SEGUE_RETURN_IF_ERROR(EncodePayload());
    report_.encode_s = watch.Lap();
    if (options_.confirm) SEGUE_RETURN_IF_ERROR(options_.confirm());
    SEGUE_RETURN_IF_ERROR(commit.Run(pending_));
    if (options_.owner == 0) commit.CleanUp(pending_);
    report_.commit_s = watch.Lap();
    return report_;
  }

 private:
  Status OpenAll() {
    SEGUE_ASSIGN_OR_RETURN(base_, Checkpoint::Open(options_.base));
    SEGUE_ASSIGN_OR_RETURN(target_, Checkpoint::Open(options_.target));
    for (const Checkpoint* checkpoint : {&base_, &target_}) {
      report_.warnings.insert(report_.warnings.end(), checkpoint->warnings().begin(),
                              checkpoint->warnings().end());
    }
    SEGUE_ASSIGN_OR_RETURN(auto store, environment_.OpenStore(options_.store, /*create=*/true));
    SEGUE_ASSIGN_OR_RETURN(store_, WithWriterKeys(std::move(store), options_.keys));
    SEGUE_ASSIGN_OR_RETURN(const std::uint64_t chunk_size, OpenLineage());
    SEGUE_ASSIGN_OR_RETURN(plan_, Plan::FromCheckpoint(base_, chunk_size));
    SEGUE_ASSIGN_OR_RETURN(const Plan target_plan, Plan::FromCheckpoint(target_, chunk_size));
    SEGUE_RETURN_IF_ERROR(ComparePlans(plan_, target_plan, "base '" + options_.base + "'",
                                       "target '" + options_.target + "'"));
    if (!lineage_) return {};
    return lineage_->CheckPlan(*store_, plan_, "base '" + options_.base + "'");
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

  void TakeLayouts() {
    base_layout_ = Layout::FromCheckpoint(base_);
    target_layout_ = Layout::FromCheckpoint(target_);
    pending_.base_layout = &base_layout_;
    pending_.target_layout = &target_layout_;
    pending_.identity.base_layout = base_layout_.digest();
    pending_.identity.target_layout = target_layout_.digest();
    if (base_layout_.digest() == target_layout_.digest()) return;
    report_.warnings.push_back(
        "target '" + options_.target + "' is laid out differently from base '" + options_.base +
        "' (shards, header or index): checkpoints cannot take this version in place, they need "
        "apply --output");
  }

  Status EncodePayload() {
    SEGUE_ASSIGN_OR_RETURN(pending_.writer, store_->StartWrite());
    EncodeOptions encode;
    encode.profile = *ProfileFromName(options_.profile);
    encode.owner = options_.owner;
    encode.owner_count = options_.owner_count;
    encode.threads = options_.threads;
    if (options_.progress) {
      encode.progress = [this](std::uint64_t done) {
        options_.progress("diff+encode", done, plan_.model_size());
      };
    }
    SEGUE_ASSIGN_OR_RETURN(
        const EncodeReport encoded,
        EncodeDelta(plan_, ViewOf(base_), ViewOf(target_), encode,
                    [this](ByteSpan bytes) { return pending_.writer->Append(bytes); }));
    pending_.SetPayload(options_.owner, encoded.payload, encoded.base_digest,
                        encoded.target_digest);
    return {};
  }

  Environment& environment_;
  const PublishOptions& options_;
  Checkpoint base_;
  Checkpoint target_;
  std::unique_ptr<Store> store_;
  std::optional<Lineage> lineage_;
  Plan plan_;
  Layout base_layout_;
  Layout target_layout_;
  PendingVersion pending_;
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
