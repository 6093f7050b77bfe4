// SPDX-License-Identifier: Apache-2.0
//
// Takeover, by the phase that the segment is in (docs/protocol.md, section 6).
#include "live/takeover.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <utility>

#include "base/begun_apply.h"
#include "base/threads.h"
#include "checkpoint/checkpoint.h"
#include "delta/encoder.h"
#include "live/prepared_update.h"
#include "live/resolve_live.h"
#include "sync/lineage.h"

namespace segue {
namespace {

// Nothing where the store has no such lineage yet.
Result<std::optional<Lineage>> OpenLineage(Store& store, const std::string& name) {
  Result<Lineage> lineage = Lineage::Open(store, name);
  if (lineage.ok()) return std::optional(std::move(lineage).value());
  if (lineage.status().code() == StatusCode::kNotFound) return std::optional<Lineage>();
  return lineage.status();
}

Result<Plan> PlanOfCheckpoint(Store& store, const std::string& lineage_name,
                              const Checkpoint& checkpoint) {
  SEGUE_ASSIGN_OR_RETURN(const auto lineage, OpenLineage(store, lineage_name));
  if (!lineage) return Plan::FromCheckpoint(checkpoint);
  SEGUE_ASSIGN_OR_RETURN(const Plan known, lineage->ReadPlan(store));
  SEGUE_ASSIGN_OR_RETURN(Plan plan, Plan::FromCheckpoint(checkpoint, known.chunk_size()));
  SEGUE_RETURN_IF_ERROR(
      ComparePlans(known, plan, "lineage '" + lineage_name + "'", "the checkpoint"));
  return plan;
}

void CopyModel(const Plan& plan, const ModelView& source, const MutableModelView& target,
               unsigned threads) {
  const Status copied = ParallelFor(plan.chunk_count(), threads, [&](std::size_t i, unsigned) {
    const ChunkPlace place = plan.Chunk(i);
    std::memcpy(target.Chunk(place), source.Chunk(place), place.size);
    return Status();
  });
  SEGUE_CHECK(copied.ok());
}

Status ProveServing(LiveWeights& weights, unsigned threads) {
  const Digest found = DigestModel(weights.plan(), ReadOnly(weights.view()), threads);
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
  const auto facts = lineage.Version(version);
  if (!facts) {
    return NotFound("version " + std::to_string(version) + " of lineage '" + options.lineage +
                    "' is missing; it is needed to prove the live weights");
  }
  weights.Commit(version, facts->digest);
  return ProveServing(weights, options.threads);
}

// Finishes the apply that the last receiver did not.
Status FinishApply(Store& store, const ReceiverOptions& options, LiveWeights& weights) {
  const LiveVersion held = weights.version();
  if (held.version == held.target_version) return FinishRecord(store, options, weights);
  SEGUE_ASSIGN_OR_RETURN(const UpdatePlan plan, PlanUpdate(store, options.lineage, weights,
                                                           std::optional(held.target_version)));
  SEGUE_ASSIGN_OR_RETURN(const ScratchDirectory scratch, ScratchDirectory::Make(options.staging));
  StagedDelta staged;
  if (!plan.chain.empty()) {
    SEGUE_ASSIGN_OR_RETURN(FetchedDelta fetched, FetchChain(store, weights.plan(), plan.chain,
                                                            scratch.path(), options.threads, {}));
    staged = std::move(fetched.staged);
  }
  const BegunApply begun;
  const auto resolved = ResolveLive(weights.plan(), staged, weights.view(), options.threads);
  if (!resolved.ok()) {
    weights.SetPhase(Phase::kPoisoned);
    return resolved.status();
  }
  const Digest found = DigestModel(weights.plan(), ReadOnly(weights.view()), options.threads);
  if (found != plan.target_digest) {
    weights.SetPhase(Phase::kPoisoned);
    return Tainted("the resolved weights have digest " + found.ToHex() + ", version " +
                   std::to_string(plan.target_version) + " has " + plan.target_digest.ToHex());
  }
  weights.Commit(plan.target_version, plan.target_digest);
  return {};
}

Result<std::unique_ptr<Segment>> OpenOrCreate(Store& store, const ReceiverOptions& options) {
  Result<std::unique_ptr<Segment>> segment = Segment::Open(options.name);
  if (segment.status().code() == StatusCode::kNotFound) {
    SEGUE_ASSIGN_OR_RETURN(const Checkpoint checkpoint, Checkpoint::Open(options.checkpoint));
    SEGUE_ASSIGN_OR_RETURN(const Plan plan, PlanOfCheckpoint(store, options.lineage, checkpoint));
    SEGUE_ASSIGN_OR_RETURN(auto created, Segment::Create(options.name, plan, options.lineage));
    // Once, before anybody waits: every later pause is shorter for it.
    created->CollapseToHugePages();
    return created;
  }
  if (!segment.ok()) return segment.status();
  const LiveVersion held = segment.value()->version();
  if (held.lineage != options.lineage) {
    return VersionMismatch("segment '" + options.name + "' holds lineage '" + held.lineage +
                           "', not '" + options.lineage + "'");
  }
  return segment;
}

}  // namespace

Status LoadCheckpoint(Store& store, const ReceiverOptions& options, LiveWeights& weights) {
  SEGUE_ASSIGN_OR_RETURN(const Checkpoint checkpoint, Checkpoint::Open(options.checkpoint));
  SEGUE_ASSIGN_OR_RETURN(const Plan plan,
                         Plan::FromCheckpoint(checkpoint, weights.plan().chunk_size()));
  SEGUE_RETURN_IF_ERROR(ComparePlans(weights.plan(), plan, "the live weights", "the checkpoint"));
  SEGUE_RETURN_IF_ERROR(weights.gate().Close(options.gate_deadline));
  weights.SetPhase(Phase::kLoading);
  CopyModel(plan, ViewOf(checkpoint), weights.view(), options.threads);
  const Digest digest = DigestModel(plan, ReadOnly(weights.view()), options.threads);
  SEGUE_ASSIGN_OR_RETURN(const auto lineage, OpenLineage(store, options.lineage));
  std::uint64_t version = 0;
  if (lineage) {
    const auto found = lineage->FindVersion(digest, limits::kVersionMax);
    if (!found) {
      return VersionMismatch("checkpoint '" + options.checkpoint + "' has digest " +
                             digest.ToHex() + ", which is no version of lineage '" +
                             options.lineage + "'");
    }
    version = *found;
  }
  weights.Commit(version, digest);
  return {};
}

Result<std::unique_ptr<LiveWeights>> TakeOver(Store& store, const ReceiverOptions& options) {
  SEGUE_ASSIGN_OR_RETURN(auto segment, OpenOrCreate(store, options));
  auto weights = MakeSegmentWeights(std::move(segment));
  const Phase phase = weights->phase();
  if (options.rebuild || phase == Phase::kLoading) {
    SEGUE_RETURN_IF_ERROR(LoadCheckpoint(store, options, *weights));
  } else if (phase == Phase::kServing) {
    SEGUE_RETURN_IF_ERROR(ProveServing(*weights, options.threads));
  } else if (phase == Phase::kApplying) {
    SEGUE_RETURN_IF_ERROR(FinishApply(store, options, *weights));
  } else {
    return Tainted("segment '" + options.name +
                   "' is poisoned: rebuild it from the checkpoint (--rebuild)");
  }
  return weights;
}

}  // namespace segue
