// SPDX-License-Identifier: Apache-2.0
//
// Takeover, by the phase that the segment is in (docs/protocol.md, section 6).
#include "live/takeover.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <utility>

#include "base/begun_apply.h"
#include "base/scratch_directory.h"
#include "base/threads.h"
#include "checkpoint/checkpoint.h"
#include "delta/encoder.h"
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
  SEGUE_ASSIGN_OR_RETURN(const VersionFacts facts, lineage.Require(version));
  weights.Commit(version, facts.digest);
  return ProveServing(weights, options.threads);
}

// Finishes the apply that the last receiver did not.
Status FinishApply(Store& store, const ReceiverOptions& options, LiveWeights& weights) {
  const LiveVersion held = weights.version();
  if (held.version == held.target_version) return FinishRecord(store, options, weights);
  SEGUE_ASSIGN_OR_RETURN(const UpdatePlan plan, PlanUpdate(store, options.lineage, weights,
                                                           std::optional(held.target_version)));
  SEGUE_ASSIGN_OR_RETURN(const ScratchDirectory scratch,
                         ScratchDirectory::Make(options.staging, "segue"));
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

Result<std::unique_ptr<LiveWeights>> OpenOrCreate(Store& store, const ReceiverOptions& options,
                                                  LiveEnvironment& environment) {
  Result<std::unique_ptr<LiveWeights>> weights = environment.OpenWeights(options.name);
  if (weights.status().code() == StatusCode::kNotFound) {
    SEGUE_ASSIGN_OR_RETURN(const Checkpoint checkpoint, Checkpoint::Open(options.checkpoint));
    SEGUE_ASSIGN_OR_RETURN(const Plan plan, PlanOfCheckpoint(store, options.lineage, checkpoint));
    return environment.CreateWeights(options.name, plan, options.lineage);
  }
  if (!weights.ok()) return weights.status();
  const LiveVersion held = weights.value()->version();
  if (held.lineage != options.lineage) {
    return VersionMismatch("segment '" + options.name + "' holds lineage '" + held.lineage +
                           "', not '" + options.lineage + "'");
  }
  return weights;
}

// Tensors by name; each where it says, none over another (case C2).
Status CheckTensors(const std::vector<BoundTensor>& tensors) {
  std::vector<const BoundTensor*> by_address;
  for (const BoundTensor& tensor : tensors) {
    if (tensor.data == nullptr && tensor.size != 0) {
      return InvalidArgument("tensor '" + tensor.name + "' has no address");
    }
    if (tensor.size != 0) by_address.push_back(&tensor);
  }
  std::sort(by_address.begin(), by_address.end(),
            [](const BoundTensor* a, const BoundTensor* b) { return a->data < b->data; });
  for (std::size_t i = 1; i < by_address.size(); ++i) {
    const BoundTensor& before = *by_address[i - 1];
    if (before.data + before.size <= by_address[i]->data) continue;
    return InvalidArgument("tensors '" + before.name + "' and '" + by_address[i]->name +
                           "' overlap in memory");
  }
  return {};
}

Result<Plan> PlanOfTensors(const std::vector<BoundTensor>& tensors, std::uint64_t chunk_size) {
  std::vector<TensorSpec> specs;
  for (const BoundTensor& tensor : tensors) {
    const auto dtype = DtypeFromName(tensor.dtype);
    if (!dtype) {
      return Unsupported("tensor '" + tensor.name + "' has the unknown dtype '" + tensor.dtype +
                         "'");
    }
    specs.push_back({tensor.name, *dtype, tensor.shape});
  }
  SEGUE_ASSIGN_OR_RETURN(Plan plan, Plan::Make(std::move(specs), chunk_size));
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    if (plan.tensors()[i].size == tensors[i].size) continue;
    return InvalidArgument("tensor '" + tensors[i].name + "' has " +
                           std::to_string(tensors[i].size) + " bytes, its shape has " +
                           std::to_string(plan.tensors()[i].size));
  }
  return plan;
}

// Which version weights of this digest are: 0 of a lineage to come, where there is none yet.
Result<std::uint64_t> VersionOf(Store& store, const std::string& name, const Digest& digest,
                                const std::string& what) {
  SEGUE_ASSIGN_OR_RETURN(const auto lineage, Lineage::OpenIfThere(store, name));
  if (!lineage) return std::uint64_t{0};
  const auto found = lineage->FindVersion(digest, limits::kVersionMax);
  if (found) return *found;
  return VersionMismatch(what + " has digest " + digest.ToHex() +
                         ", which is no version of lineage '" + name + "'");
}

}  // namespace

Result<std::unique_ptr<LiveWeights>> TakeOverBound(Store& store, const ReceiverOptions& options,
                                                   const BoundModel& model, Gate& gate) {
  SEGUE_RETURN_IF_ERROR(CheckTensors(model.tensors));
  std::vector<BoundTensor> tensors = model.tensors;
  std::sort(tensors.begin(), tensors.end(),
            [](const BoundTensor& a, const BoundTensor& b) { return a.name < b.name; });
  std::uint64_t chunk_size = limits::kChunkSizeDefault;
  SEGUE_ASSIGN_OR_RETURN(const auto lineage, Lineage::OpenIfThere(store, options.lineage));
  if (lineage) {
    SEGUE_ASSIGN_OR_RETURN(const Plan known, lineage->ReadPlan(store));
    chunk_size = known.chunk_size();
  }
  SEGUE_ASSIGN_OR_RETURN(Plan plan, PlanOfTensors(tensors, chunk_size));
  std::vector<std::byte*> places;
  places.reserve(tensors.size());
  for (const BoundTensor& tensor : tensors) places.push_back(tensor.data);
  auto weights =
      MakeBoundWeights(std::move(plan), MutableModelView(std::move(places)), options.lineage, gate);
  const Digest digest = DigestModel(weights->plan(), ReadOnly(weights->view()), options.threads);
  SEGUE_ASSIGN_OR_RETURN(const std::uint64_t version,
                         VersionOf(store, options.lineage, digest, "the bound weights"));
  weights->Commit(version, digest);
  return weights;
}

Status LoadCheckpoint(Store& store, const ReceiverOptions& options, LiveWeights& weights) {
  SEGUE_ASSIGN_OR_RETURN(const Checkpoint checkpoint, Checkpoint::Open(options.checkpoint));
  SEGUE_ASSIGN_OR_RETURN(const Plan plan,
                         Plan::FromCheckpoint(checkpoint, weights.plan().chunk_size()));
  SEGUE_RETURN_IF_ERROR(ComparePlans(weights.plan(), plan, "the live weights", "the checkpoint"));
  SEGUE_RETURN_IF_ERROR(weights.gate().Close(options.gate_deadline));
  weights.SetPhase(Phase::kLoading);
  CopyModel(plan, ViewOf(checkpoint), weights.view(), options.threads);
  const Digest digest = DigestModel(plan, ReadOnly(weights.view()), options.threads);
  SEGUE_ASSIGN_OR_RETURN(
      const std::uint64_t version,
      VersionOf(store, options.lineage, digest, "checkpoint '" + options.checkpoint + "'"));
  weights.Commit(version, digest);
  return {};
}

Result<std::unique_ptr<LiveWeights>> TakeOver(Store& store, const ReceiverOptions& options,
                                              LiveEnvironment& environment) {
  SEGUE_ASSIGN_OR_RETURN(auto weights, OpenOrCreate(store, options, environment));
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
