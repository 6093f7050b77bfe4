// SPDX-License-Identifier: Apache-2.0
//
// Bound weights: tensors by name against the plan, and the version that the bytes are.
#include "live/bound_weights.h"

#include <algorithm>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "delta/live_scan.h"
#include "live/memory_claim.h"
#include "live/name_differing.h"
#include "sync/lineage.h"

namespace segue {
namespace {

class BoundWeights final : public LiveWeights {
 public:
  BoundWeights(std::unique_ptr<const Plan> plan, LiveMap map, const std::string& lineage,
               Gate& gate, const BoundModel& model)
      : first_plan_(std::move(plan)),
        map_(std::move(map)),
        gate_(gate),
        generation_(model.generation),
        hold_still_(model.hold_still),
        bound_generation_(generation_ ? generation_() : 0) {
    version_.lineage = lineage;
  }

  // The bytes are these weights' alone.
  Status Claim(const std::string& device) {
    SEGUE_ASSIGN_OR_RETURN(claim_, MemoryClaim::Take(*first_plan_, map_, version_.lineage, device));
    return {};
  }

  const Plan& plan() const override { return plan_.get(); }
  void AdoptPlan(Plan plan) override { plan_.Adopt(std::move(plan)); }
  const LiveMap& map() const override { return map_; }
  Gate& gate() override { return gate_; }
  Phase phase() const override {
    const std::lock_guard lock(mutex_);
    return phase_;
  }
  LiveVersion version() const override {
    const std::lock_guard lock(mutex_);
    return version_;
  }
  void BeginApply(std::uint64_t target_version) override {
    const std::lock_guard lock(mutex_);
    version_.target_version = target_version;
    phase_ = Phase::kApplying;
  }
  void Commit(std::uint64_t version, const Digest& digest) override {
    const std::lock_guard lock(mutex_);
    if (phase_ == Phase::kApplying) ++version_.applied_count;
    version_.version = version_.target_version = version;
    version_.digest = digest;
    phase_ = Phase::kServing;
  }
  void SetPhase(Phase phase) override {
    const std::lock_guard lock(mutex_);
    phase_ = phase;
  }
  unsigned engine_count() const override { return 1; }

  Digest local_digest() const override {
    const std::lock_guard lock(mutex_);
    return local_digest_;
  }
  void SetLocalDigest(const Digest& digest) override {
    const std::lock_guard lock(mutex_);
    local_digest_ = digest;
  }
  Status CheckCurrent() const override {
    if (!generation_) return {};
    const std::uint64_t now = generation_();
    if (now == bound_generation_) return {};
    return InvalidArgument("the engine has rebound its weights: generation " +
                           std::to_string(bound_generation_) + " was bound, now it is " +
                           std::to_string(now) + "; open a receiver for the new ones");
  }
  Status Read(const std::function<Status()>& read) const override {
    if (!hold_still_) return LiveWeights::Read(read);
    return hold_still_([&] { return LiveWeights::Read(read); });
  }

 private:
  const std::unique_ptr<const Plan> first_plan_;
  PlanSlot plan_{*first_plan_};
  const LiveMap map_;
  std::unique_ptr<MemoryClaim> claim_;
  Gate& gate_;
  const std::function<std::uint64_t()> generation_;
  const decltype(BoundModel::hold_still) hold_still_;
  const std::uint64_t bound_generation_;
  mutable std::mutex mutex_;
  Phase phase_ = Phase::kLoading;
  LiveVersion version_;
  Digest local_digest_;
};

Result<TensorSpec> SpecOf(const BoundTensor& tensor) {
  const auto dtype = DtypeFromName(tensor.dtype);
  if (dtype) return TensorSpec{tensor.name, *dtype, tensor.shape};
  return Unsupported("tensor '" + tensor.name + "' has the unknown dtype '" + tensor.dtype + "'");
}

// The plan of what is bound, each name once.
Result<Plan> PlanOfTensors(const std::vector<BoundTensor>& tensors, std::uint64_t chunk_size) {
  std::map<std::string, TensorSpec> specs;
  for (const BoundTensor& tensor : tensors) {
    SEGUE_ASSIGN_OR_RETURN(TensorSpec spec, SpecOf(tensor));
    const auto [found, fresh] = specs.emplace(tensor.name, spec);
    if (fresh || found->second == spec) continue;
    return InvalidArgument("tensor '" + tensor.name + "' is bound with two dtypes or shapes");
  }
  std::vector<TensorSpec> sorted;
  sorted.reserve(specs.size());
  for (auto& [name, spec] : specs) sorted.push_back(std::move(spec));
  return Plan::Make(std::move(sorted), chunk_size);
}

// The lineage's own plan; what is bound must be in it, and with one rank all of it bound.
Result<Plan> FindPlan(Store& store, const ReceiverOptions& options, const BoundModel& model) {
  SEGUE_ASSIGN_OR_RETURN(const auto lineage, Lineage::OpenIfThere(store, options.lineage));
  if (!lineage) {
    if (!model.sum_over_ranks) return PlanOfTensors(model.tensors, limits::kChunkSizeDefault);
    return NotFound("lineage '" + options.lineage +
                    "' is not there yet: ranks that hold parts of a model need its plan");
  }
  SEGUE_ASSIGN_OR_RETURN(Plan known, lineage->ReadPlan(store));
  SEGUE_ASSIGN_OR_RETURN(const Plan bound, PlanOfTensors(model.tensors, known.chunk_size()));
  const std::string what = "lineage '" + options.lineage + "'";
  if (!model.sum_over_ranks) {
    SEGUE_RETURN_IF_ERROR(ComparePlans(known, bound, what, "what is bound"));
    return known;
  }
  std::set<std::string> names;
  for (const PlanTensor& tensor : bound.tensors()) names.insert(tensor.spec.name);
  std::vector<TensorSpec> here;
  for (const PlanTensor& tensor : known.tensors()) {
    if (names.contains(tensor.spec.name)) here.push_back(tensor.spec);
  }
  SEGUE_ASSIGN_OR_RETURN(const Plan part, Plan::Make(std::move(here), known.chunk_size()));
  SEGUE_RETURN_IF_ERROR(ComparePlans(part, bound, what, "what is bound"));
  return known;
}

std::vector<Placement> PlacementsOf(const Plan& plan, const std::vector<BoundTensor>& tensors) {
  std::vector<Placement> placements;
  placements.reserve(tensors.size());
  for (const BoundTensor& tensor : tensors) {
    const auto found = std::lower_bound(
        plan.tensors().begin(), plan.tensors().end(), tensor.name,
        [](const PlanTensor& known, const std::string& name) { return known.spec.name < name; });
    placements.push_back({static_cast<std::uint32_t>(found - plan.tensors().begin()), tensor.data,
                          tensor.size, tensor.view, tensor.copy, tensor.copy_count});
  }
  return placements;
}

// With one rank every element is here.
Status CheckHeld(const Plan& plan, const LiveMap& map) {
  for (std::uint32_t t = 0; t < plan.tensors().size(); ++t) {
    if (map.HoldsAll(t)) continue;
    return InvalidArgument("the views of tensor '" + plan.tensors()[t].spec.name +
                           "' do not hold each of its elements once");
  }
  return {};
}

Status CheckSums(const Plan& plan, const RankSums& sums, const std::string& what) {
  if (sums.copies != PartValues()) {
    return VersionMismatch(what + ": copies of a tensor differ between the ranks that hold it");
  }
  if (sums.counted.number == plan.model_size()) return {};
  return InvalidArgument(what + ": the ranks hold " + std::to_string(sums.counted.number) +
                         " bytes together, the model has " + std::to_string(plan.model_size()));
}

}  // namespace

Result<std::uint64_t> VersionOf(Store& store, const std::string& name, const Digest& digest,
                                std::optional<std::uint64_t> wanted, const std::string& what) {
  SEGUE_ASSIGN_OR_RETURN(const auto lineage, Lineage::OpenIfThere(store, name));
  if (!lineage) {
    // A listing may lag, and bytes of some version must not be called version 0 for it.
    const auto record = store.Get(object_name::Lineage(name), limits::kManifestSizeMax);
    if (record.status().code() == StatusCode::kNotFound) return std::uint64_t{0};
    if (!record.ok()) return record.status();
    return Unavailable("lineage '" + name + "' is there and not listed yet");
  }
  auto found = lineage->FindVersion(digest, wanted.value_or(limits::kVersionMax));
  if (!found) found = lineage->FindVersion(digest, limits::kVersionMax);
  if (found) return *found;
  return VersionMismatch(what + ", digest " + digest.ToHex() + ": no version of lineage '" + name +
                         "' has it");
}

Result<std::unique_ptr<LiveWeights>> BindWeights(Store& store, const ReceiverOptions& options,
                                                 const BoundModel& model, Gate& gate,
                                                 std::shared_ptr<Accelerator> accelerator) {
  SEGUE_ASSIGN_OR_RETURN(Plan found, FindPlan(store, options, model));
  auto plan = std::make_unique<const Plan>(std::move(found));
  SEGUE_ASSIGN_OR_RETURN(LiveMap map, LiveMap::Make(*plan, PlacementsOf(*plan, model.tensors),
                                                    std::move(accelerator)));
  if (!model.sum_over_ranks) SEGUE_RETURN_IF_ERROR(CheckHeld(*plan, map));
  auto weights =
      std::make_unique<BoundWeights>(std::move(plan), std::move(map), options.lineage, gate, model);
  SEGUE_RETURN_IF_ERROR(weights->Claim(model.device));
  return std::unique_ptr<LiveWeights>(std::move(weights));
}

Status ProveVersion(Store& store, const ReceiverOptions& options, LiveWeights& weights,
                    const Ranks& ranks, const Status& so_far, const std::string& what) {
  Result<LiveDigest> scanned = LiveDigest();
  if (so_far.ok()) scanned = DigestLive(weights.plan(), weights.map(), options.threads);
  const Status mine = so_far.ok() ? scanned.status() : so_far;
  LiveDigest found = mine.ok() ? *scanned : LiveDigest();
  SEGUE_RETURN_IF_ERROR(ranks.Agree(Meeting::kBind, 0, mine, &found.sums));
  SEGUE_RETURN_IF_ERROR(CheckSums(weights.plan(), found.sums, what));
  const Digest& digest = found.sums.counted.first;
  auto version = VersionOf(store, options.lineage, digest, options.version, what);
  if (!version.ok()) return NamingDiffering(version.status(), store, options.lineage, weights);
  weights.SetLocalDigest(found.all);
  weights.Commit(*version, digest);
  return {};
}

}  // namespace segue
