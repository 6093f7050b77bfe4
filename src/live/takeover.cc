// SPDX-License-Identifier: Apache-2.0
//
// Takeover, by the phase that the segment is in (docs/protocol.md, section 6).
#include "live/takeover.h"

#include <optional>
#include <utility>

#include "base/begun_apply.h"
#include "base/out_of_memory.h"
#include "base/scratch_directory.h"
#include "checkpoint/checkpoint.h"
#include "delta/encoder.h"
#include "delta/live_scan.h"
#include "live/bound_weights.h"
#include "live/prepared_update.h"
#include "live/resolve_live.h"
#include "sync/lineage.h"

namespace segue {
namespace {

Result<Plan> PlanOfCheckpoint(Store& store, const std::string& lineage_name,
                              const Checkpoint& checkpoint) {
  SEGUE_ASSIGN_OR_RETURN(const auto lineage, Lineage::OpenIfThere(store, lineage_name));
  if (!lineage) return Plan::FromCheckpoint(checkpoint);
  SEGUE_ASSIGN_OR_RETURN(const Plan known, lineage->ReadPlan(store));
  SEGUE_ASSIGN_OR_RETURN(Plan plan, Plan::FromCheckpoint(checkpoint, known.chunk_size()));
  SEGUE_RETURN_IF_ERROR(
      ComparePlans(known, plan, "lineage '" + lineage_name + "'", "the checkpoint"));
  return plan;
}

Status ProveServing(LiveWeights& weights, unsigned threads) {
  SEGUE_ASSIGN_OR_RETURN(const LiveDigest scanned,
                         DigestLive(weights.plan(), weights.map(), threads));
  const Digest found = scanned.all;
  const LiveVersion held = weights.version();
  if (found == held.digest) return {};
  weights.SetPhase(Phase::kPoisoned);
  return Tainted("the live weights have digest " + found.ToHex() + ", version " +
                 std::to_string(held.version) + " has " + held.digest.ToHex() +
                 ": rebuild them from the checkpoint");
}

// All bytes had been proven when the last receiver died; only the record may be half written.
Status FinishRecord(Store& store, const ReceiverOptions& options, LiveWeights& weights) {
  const std::uint64_t version = weights.version().version;
  SEGUE_ASSIGN_OR_RETURN(const Lineage lineage, Lineage::Open(store, options.lineage));
  SEGUE_ASSIGN_OR_RETURN(const VersionFacts facts, lineage.Require(version));
  weights.Commit(version, facts.digest);
  return ProveServing(weights, options.threads);
}

// Finishes the apply that the last receiver did not.
Status FinishApply(Store& store, const ReceiverOptions& options, LiveWeights& weights) {
  const LiveVersion held = weights.version();
  if (held.version == held.target_version) return FinishRecord(store, options, weights);
  SEGUE_ASSIGN_OR_RETURN(const UpdatePlan plan,
                         PlanUpdate(store, options.lineage, weights,
                                    std::optional(held.target_version), HeldNumber::kRecorded));
  SEGUE_ASSIGN_OR_RETURN(const ScratchDirectory scratch,
                         ScratchDirectory::Make(options.staging, "segue"));
  StagedDelta staged;
  if (!plan.chain.empty()) {
    SEGUE_ASSIGN_OR_RETURN(FetchedDelta fetched, FetchChain(store, weights.plan(), plan.chain,
                                                            scratch.path(), options.threads, {}));
    staged = std::move(fetched.staged);
  }
  const BegunApply begun;
  const auto resolved =
      ResolveLive(weights.plan(), staged, weights.map().whole_view(), options.threads);
  if (!resolved.ok()) {
    weights.SetPhase(Phase::kPoisoned);
    return resolved.status();
  }
  SEGUE_ASSIGN_OR_RETURN(const LiveDigest scanned,
                         DigestLive(weights.plan(), weights.map(), options.threads));
  const Digest found = scanned.all;
  if (found != plan.target_digest) {
    weights.SetPhase(Phase::kPoisoned);
    return Tainted("the resolved weights have digest " + found.ToHex() + ", version " +
                   std::to_string(plan.target_version) + " has " + plan.target_digest.ToHex());
  }
  weights.Commit(plan.target_version, plan.target_digest);
  return {};
}

// An update of several lineages was announced here and nowhere begun: the version held stays.
Status ForgetAnnounced(const ReceiverOptions& options, LiveWeights& weights) {
  const LiveVersion held = weights.version();
  weights.Commit(held.version, held.digest);
  return ProveServing(weights, options.threads);
}

// The checkpoint, of the same model.
Result<Checkpoint> OpenCheckpointOf(const Plan& plan, const ReceiverOptions& options) {
  SEGUE_ASSIGN_OR_RETURN(Checkpoint checkpoint, Checkpoint::Open(options.checkpoint));
  SEGUE_ASSIGN_OR_RETURN(const Plan found, Plan::FromCheckpoint(checkpoint, plan.chunk_size()));
  SEGUE_RETURN_IF_ERROR(ComparePlans(plan, found, "the live weights", "the checkpoint"));
  return checkpoint;
}

// A new segment; what had its name before, `old` or what nobody could open, goes first, since there
// may not be memory for both.
Result<std::unique_ptr<LiveWeights>> PutInPlace(Store& store, const ReceiverOptions& options,
                                                std::unique_ptr<LiveWeights> old,
                                                LiveEnvironment& environment) {
  SEGUE_ASSIGN_OR_RETURN(const Checkpoint checkpoint, Checkpoint::Open(options.checkpoint));
  SEGUE_ASSIGN_OR_RETURN(const Plan plan, PlanOfCheckpoint(store, options.lineage, checkpoint));
  if (options.rebuild) SEGUE_RETURN_IF_ERROR(environment.RemoveWeights(options.name));
  const bool had_old = old != nullptr;
  old.reset();
  auto made = environment.CreateWeights(options.name, plan, options.lineage);
  if (made.ok() || !had_old) return made;
  return made.status().WithContext(
      "the segment before it is removed, and engines hold its memory until they attach anew; "
      "start again then");
}

// All that can fail before the first byte is written. Gate closed on success, else as it was.
Result<Checkpoint> OpenForLoading(const ReceiverOptions& options, LiveWeights& weights) {
  SEGUE_ASSIGN_OR_RETURN(Checkpoint checkpoint, OpenCheckpointOf(weights.plan(), options));
  SEGUE_RETURN_IF_ERROR(weights.CheckCurrent());
  SEGUE_RETURN_IF_ERROR(weights.gate().Close(options.gate_deadline));
  const Status current = weights.CheckCurrent();
  if (current.ok()) return checkpoint;
  SEGUE_RETURN_IF_ERROR(ReopenIfServing(weights));
  return current;
}

}  // namespace

Status CheckWayFromCheckpoint(Store& store, const ReceiverOptions& options, const Plan& plan,
                              std::optional<std::uint64_t> target) {
  SEGUE_ASSIGN_OR_RETURN(const auto lineage, Lineage::OpenIfThere(store, options.lineage));
  if (!lineage && !target) return {};
  if (!lineage) return NotFound("there is no lineage '" + options.lineage + "' yet");
  const std::uint64_t version = target.value_or(lineage->newest());
  SEGUE_RETURN_IF_ERROR(lineage->Require(version).status());
  SEGUE_ASSIGN_OR_RETURN(const Checkpoint checkpoint, OpenCheckpointOf(plan, options));
  const Digest digest = DigestModel(plan, ViewOf(checkpoint), options.threads);
  const auto way = lineage->FindWay(digest, version);
  if (way.ok()) return {};
  return way.status().WithContext("checkpoint '" + options.checkpoint + "'");
}

Status CheckStartFromCheckpoint(Store& store, const ReceiverOptions& options) {
  SEGUE_ASSIGN_OR_RETURN(const Checkpoint checkpoint, Checkpoint::Open(options.checkpoint));
  SEGUE_ASSIGN_OR_RETURN(const Plan plan, PlanOfCheckpoint(store, options.lineage, checkpoint));
  if (options.catch_up) return CheckWayFromCheckpoint(store, options, plan, options.version);
  const Digest digest = DigestModel(plan, ViewOf(checkpoint), options.threads);
  return VersionOf(store, options.lineage, digest, options.version,
                   "checkpoint '" + options.checkpoint + "'")
      .status();
}

Status CheckCheckpoint(const ReceiverOptions& options, const Plan& plan) {
  return OpenCheckpointOf(plan, options).status();
}

Status ReopenIfServing(LiveWeights& weights) {
  return weights.phase() == Phase::kServing ? weights.gate().Open() : Status();
}

Result<Checkpoint> OpenToLoad(const ReceiverOptions& options, LiveWeights& weights,
                              const Ranks& ranks, const Status& so_far) {
  Result<Checkpoint> checkpoint = CatchOutOfMemory([&]() -> Result<Checkpoint> {
    return so_far.ok() ? OpenForLoading(options, weights) : so_far;
  });
  Status agreed =
      CatchOutOfMemory([&] { return ranks.Agree(Meeting::kRebuild, 0, checkpoint.status()); });
  if (agreed.ok()) return checkpoint;
  if (checkpoint.ok()) SEGUE_RETURN_IF_ERROR(ReopenIfServing(weights));
  return agreed;
}

Status LoadFrom(const Checkpoint& checkpoint, Store& store, const ReceiverOptions& options,
                LiveWeights& weights, const Ranks& ranks) {
  weights.SetPhase(Phase::kLoading);
  // A rank that could not meets the others all the same, so that none waits for it.
  const Status copied =
      CopyInto(weights.plan(), ViewOf(checkpoint), weights.map(), options.threads);
  return ProveVersion(store, options, weights, ranks, copied,
                      "checkpoint '" + options.checkpoint + "'");
}

Result<std::unique_ptr<LiveWeights>> HoldWeights(Store& store, const ReceiverOptions& options,
                                                 LiveEnvironment& environment) {
  Result<std::unique_ptr<LiveWeights>> weights = environment.OpenWeights(options.name);
  const StatusCode code = weights.status().code();
  // What is no segment, or was never finished, has nothing to lose.
  if (code == StatusCode::kNotFound || (code == StatusCode::kCorruption && options.rebuild)) {
    return PutInPlace(store, options, nullptr, environment);
  }
  if (!weights.ok()) return weights.status();
  const LiveVersion held = weights.value()->version();
  if (held.lineage == options.lineage || options.rebuild) return weights;
  return VersionMismatch("segment '" + options.name + "' holds lineage '" + held.lineage +
                         "', not '" + options.lineage +
                         "': another name, or --rebuild to put a new segment in its place");
}

Result<std::unique_ptr<LiveWeights>> ReplaceUnfit(Store& store, const ReceiverOptions& options,
                                                  std::unique_ptr<LiveWeights> weights,
                                                  LiveEnvironment& environment) {
  const bool same = weights->version().lineage == options.lineage;
  if (same && OpenCheckpointOf(weights->plan(), options).ok()) return weights;
  return PutInPlace(store, options, std::move(weights), environment);
}

Status TakeOver(Store& store, const ReceiverOptions& options, LiveWeights& weights) {
  const Phase phase = weights.phase();
  if (phase == Phase::kServing) return ProveServing(weights, options.threads);
  if (phase == Phase::kPending) return ForgetAnnounced(options, weights);
  if (phase == Phase::kApplying || phase == Phase::kDue)
    return FinishApply(store, options, weights);
  return Tainted("segment '" + options.name +
                 "' is poisoned: rebuild it from the checkpoint (--rebuild)");
}

}  // namespace segue
