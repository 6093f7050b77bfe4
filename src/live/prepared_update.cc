// SPDX-License-Identifier: Apache-2.0
//
// PreparedUpdate: plan, fetch, stage, preflight; then apply.
#include "live/prepared_update.h"

#include <utility>

#include "base/begun_apply.h"
#include "base/scratch_directory.h"
#include "device/accelerator.h"
#include "sync/lineage.h"
#include "sync/stopwatch.h"

namespace segue {

namespace {

Status TakePlanOf(const Lineage& lineage, Store& store, LiveWeights& weights) {
  const Plan& held = weights.plan();
  if (lineage.record().plan == held.digest()) return {};
  const std::string name = "lineage '" + lineage.record().lineage + "'";
  SEGUE_ASSIGN_OR_RETURN(Plan plan, lineage.ReadPlan(store));
  const Status same = ComparePlans(plan, held, name, "the live weights");
  if (!same.ok()) {
    return VersionMismatch(name + " has plan " + plan.digest().ToHex() +
                           ", the live weights have " + held.digest().ToHex() +
                           ": they are of another model (" + same.message() + ")");
  }
  weights.AdoptPlan(std::move(plan));
  return {};
}

Status CheckForward(const LiveVersion& held, std::uint64_t target) {
  if (target >= held.version) return {};
  return VersionMismatch("version " + std::to_string(held.version) + " of lineage '" +
                         held.lineage + "' does not lead back to " + std::to_string(target) +
                         ": Segue only goes forward; rebuild from a checkpoint of version " +
                         std::to_string(target) + " or of an earlier one");
}

// Bytes that several versions have may come by a delta from any of them; what is held is still the
// one number.
std::uint64_t BaseOf(const Lineage& lineage, const LiveVersion& held, const Way& way) {
  const auto facts = lineage.Version(held.version);
  return facts && facts->digest == held.digest ? held.version : way.from;
}

}  // namespace

Result<UpdatePlan> PlanUpdate(Store& store, const std::string& name, LiveWeights& weights,
                              std::optional<std::uint64_t> target_version, HeldNumber held_number) {
  SEGUE_ASSIGN_OR_RETURN(const Lineage lineage, Lineage::Open(store, name));
  SEGUE_RETURN_IF_ERROR(TakePlanOf(lineage, store, weights));
  UpdatePlan plan;
  plan.target_version = target_version.value_or(lineage.newest());
  SEGUE_ASSIGN_OR_RETURN(const VersionFacts target, lineage.Require(plan.target_version));
  plan.target_digest = target.digest;
  const LiveVersion held = weights.version();
  const bool is_recorded = held_number == HeldNumber::kRecorded;
  if (is_recorded) SEGUE_RETURN_IF_ERROR(CheckForward(held, plan.target_version));
  SEGUE_ASSIGN_OR_RETURN(Way way, lineage.FindWay(held.digest, plan.target_version));
  plan.base_version = is_recorded ? BaseOf(lineage, held, way) : way.from;
  plan.chain = std::move(way.manifests);
  return plan;
}

Result<std::unique_ptr<PreparedUpdate>> PreparedUpdate::Make(const Resources& resources,
                                                             UpdatePlan plan,
                                                             const std::stop_token& stop) {
  auto update = std::unique_ptr<PreparedUpdate>(new PreparedUpdate(resources, std::move(plan)));
  update->report_.base_version = update->plan_.base_version;
  update->report_.target_version = update->plan_.target_version;
  update->report_.steps = update->plan_.chain.size();
  if (!update->plan_.chain.empty()) SEGUE_RETURN_IF_ERROR(update->Fetch(resources, stop));
  if (stop.stop_requested()) return Unavailable("the prepare was aborted");
  return update;
}

Status PreparedUpdate::Fetch(const Resources& resources, const std::stop_token& stop) {
  SEGUE_ASSIGN_OR_RETURN(const ScratchDirectory scratch,
                         ScratchDirectory::Make(resources.staging, "segue"));
  SEGUE_ASSIGN_OR_RETURN(fetched_,
                         FetchChain(resources.store, weights_.plan(), plan_.chain, scratch.path(),
                                    resources.background_threads, {}, stop));
  report_.payload_bytes = fetched_.fetched_bytes;
  report_.staged_bytes = fetched_.staged.staged_bytes();
  report_.changed_chunks = fetched_.staged.rows().size();
  report_.changed_elements = fetched_.staged.changed_elements();
  report_.fetch_s = fetched_.fetch_s;
  report_.stage_s = fetched_.stage_s;
  if (fetched_.staged.difference() == plan_.target_digest - weights_.version().digest) return {};
  return Corruption("the deltas to version " + std::to_string(plan_.target_version) +
                    " do not lead from the digest of the live weights to the target's");
}

Status PreparedUpdate::Preflight(const Resources& resources) {
  Stopwatch watch;
  SEGUE_RETURN_IF_ERROR(weights_.CheckCurrent());
  applier_ = std::make_unique<Applier>(weights_.plan(), fetched_.staged, weights_.map(),
                                       resources.foreground);
  resources.background.Reserve(weights_.plan().chunk_size());
  if (weights_.map().has_views()) {
    resources.background.ReserveForViews(weights_.plan().chunk_size());
  }
  SEGUE_RETURN_IF_ERROR(applier_->PreflightOn(resources.background));
  NoteDevice();
  report_.preflight_s = watch.Lap();
  return {};
}

void PreparedUpdate::NoteDevice() {
  const Accelerator* const accelerator = weights_.map().accelerator();
  if (accelerator != nullptr) report_.device_bytes = accelerator->staging_use().peak;
}

Status PreparedUpdate::Apply() {
  if (changes_bytes()) {
    Stopwatch watch;
    const BegunApply begun;
    weights_.BeginApply(plan_.target_version);
    Status applied = applier_->Apply();
    report_.apply_s = watch.Lap();
    NoteDevice();
    if (!applied.ok()) {
      weights_.SetPhase(Phase::kPoisoned);
      return applied;
    }
  }
  weights_.SetLocalDigest(weights_.local_digest() + applier_->difference());
  weights_.Commit(plan_.target_version, plan_.target_digest);
  return {};
}

}  // namespace segue
