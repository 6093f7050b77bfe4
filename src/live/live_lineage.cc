// SPDX-License-Identifier: Apache-2.0
//
// LiveLineage: docs/protocol.md, sections 7 (the pause) and 10 (ranks).
#include "live/live_lineage.h"

#include <utility>

#include "base/hash.h"
#include "base/limits.h"
#include "base/out_of_memory.h"
#include "delta/live_scan.h"
#include "device/accelerator.h"
#include "live/bound_weights.h"
#include "live/name_differing.h"
#include "live/takeover.h"
#include "store/signed_store.h"
#include "sync/lineage.h"

namespace segue {

LiveLineage::LiveLineage(ReceiverOptions options, LiveEnvironment& environment)
    : options_(std::move(options)),
      environment_(environment),
      foreground_(environment.MakeDevice(options_.threads)),
      background_(environment.MakeDevice(options_.background_threads)) {}

Status LiveLineage::OpenStore() {
  SEGUE_ASSIGN_OR_RETURN(auto store, environment_.OpenStore(options_.store, /*create=*/false));
  SEGUE_ASSIGN_OR_RETURN(store_, WithKeys(std::move(store), options_.keys));
  return {};
}

Status LiveLineage::Hold() {
  SEGUE_RETURN_IF_ERROR(OpenStore());
  SEGUE_ASSIGN_OR_RETURN(weights_, HoldWeights(*store_, options_, environment_));
  was_serving_ = weights_->phase() == Phase::kServing;
  is_fresh_ = weights_->phase() == Phase::kLoading;
  is_recorded_ = !is_fresh_;
  return {};
}

Status LiveLineage::MakeFit() {
  if (!options_.rebuild) return {};
  SEGUE_ASSIGN_OR_RETURN(weights_,
                         ReplaceUnfit(*store_, options_, std::move(weights_), environment_));
  was_serving_ = weights_->phase() == Phase::kServing;
  is_fresh_ = weights_->phase() == Phase::kLoading;
  return {};
}

Status LiveLineage::DropFresh() {
  return is_fresh_ ? environment_.RemoveWeights(options_.name) : Status();
}

Status LiveLineage::TakeOver() { return segue::TakeOver(*store_, options_, *weights_); }

Status LiveLineage::CheckCheckpoint() const {
  return segue::CheckCheckpoint(options_, weights_->plan()).WithContext("a rebuild would fail");
}

void LiveLineage::MakeDue() {
  if (weights_->phase() == Phase::kPending) weights_->SetPhase(Phase::kDue);
}

Status LiveLineage::HoldBound(BoundModel model) {
  ranks_ = Ranks(model.sum_over_ranks);
  const bool has_gate = model.close_gate && model.open_gate;
  gate_ = std::make_unique<CallbackGate>(std::move(model.close_gate), std::move(model.open_gate));
  Status bound = has_gate ? OpenStore()
                          : InvalidArgument("bound weights need a gate: close_gate and open_gate");
  std::shared_ptr<Accelerator> accelerator;
  if (bound.ok() && !model.device.empty()) {
    auto opened =
        environment_.OpenAccelerator(model.device, options_.threads,
                                     {model.device_options.decoder, model.device_options.memory_max,
                                      model.device_options.keep_slots});
    bound = opened.status();
    if (bound.ok()) foreground_ = background_ = accelerator = *opened;
  }
  if (bound.ok()) {
    auto weights = BindWeights(*store_, options_, model, *gate_, std::move(accelerator));
    bound = weights.status();
    if (bound.ok()) weights_ = std::move(weights).value();
  }
  if (bound.ok() && !ranks_.several()) bound = NoteLineage();
  if (!bound.ok()) return ranks_.Agree(Meeting::kBind, 0, bound);
  return ProveVersion(*store_, options_, *weights_, ranks_, {}, "the bound weights");
}

// Before the weights are proven: a lineage that appears later has not been asked about them.
Status LiveLineage::NoteLineage() {
  SEGUE_ASSIGN_OR_RETURN(const auto lineage, Lineage::OpenIfThere(*store_, options_.lineage));
  is_unproven_ = !lineage;
  return {};
}

Status LiveLineage::CheckProven() const {
  if (!is_unproven_) return {};
  return Unavailable("lineage '" + options_.lineage +
                     "' had no version when the weights were bound: whether they are its base is "
                     "found out by the first update");
}

Status LiveLineage::CheckRequest(const PrepareRequest& request) const {
  const LiveVersion held = weights_->version();
  if (request.base_version && *request.base_version != held.version) {
    return VersionMismatch("version " + std::to_string(held.version) + " is held, not base " +
                           std::to_string(*request.base_version));
  }
  // Before the lineage has been seen its plan is not known: CheckPlan() comes again then.
  return knows_plan_ ? CheckPlan(request) : Status();
}

Status LiveLineage::CheckPlan(const PrepareRequest& request) const {
  const std::string plan = weights_->plan().digest().ToHex();
  if (request.plan_digest.empty() || request.plan_digest == plan) return {};
  return VersionMismatch("the live weights have plan " + plan + ", not " + request.plan_digest);
}

Status LiveLineage::CheckRebuild(std::optional<std::uint64_t> target) const {
  return CheckWayFromCheckpoint(*store_, options_, weights_->plan(), target);
}

Status LiveLineage::CheckStart() const { return CheckStartFromCheckpoint(*store_, options_); }

Status LiveLineage::Wrong() const {
  return Corruption("a scan found that the live weights are not version " +
                    std::to_string(weights_->version().version) +
                    " (memory that failed, or somebody else writes to them): rebuild them from the "
                    "checkpoint");
}

Status LiveLineage::CheckHealth() const {
  if (is_wrong_) return Wrong();
  if (!is_strange_) return {};
  const std::lock_guard lock(strange_mutex_);
  return strange_;
}

Status LiveLineage::MarkStrange(const Status& failure, const std::stop_token& stop) {
  const Digest held = weights_->version().digest;
  auto lineage = Lineage::OpenIfThere(*store_, options_.lineage);
  if (lineage.ok() && *lineage && (*lineage)->FindVersion(held, limits::kVersionMax)) {
    is_strange_ = false;
    return failure;  // A version that does not lead to the one that is asked for.
  }
  if (!is_strange_) {
    const Status strange =
        NamingDiffering(VersionMismatch("the live weights, digest " + held.ToHex() +
                                        ", are no version of lineage '" + options_.lineage +
                                        "', which has appeared since they were loaded"),
                        *store_, options_.lineage, *weights_, stop);
    const std::lock_guard lock(strange_mutex_);
    strange_ = strange;
    is_strange_ = true;
  }
  return CheckHealth();
}

// Bytes and delta do not belong together. Whose fault it is, a scan of all bytes tells: those of
// another digest than the version's are wrong, and known to be from here on.
Status LiveLineage::FindFault(const Status& failure, const std::stop_token& stop) {
  ChunkScanner scanner(weights_->plan(), weights_->map());
  for (std::uint64_t chunk = 0; chunk < weights_->plan().chunk_count(); ++chunk) {
    if (stop.stop_requested()) return failure;
    SEGUE_RETURN_IF_ERROR(weights_->Read([&] { return scanner.Add(chunk).status(); }));
  }
  if (scanner.digest().all == weights_->local_digest()) {
    return Corruption("the delta is not from the version that is held, though it says so: " +
                      failure.message());
  }
  is_wrong_ = true;
  return CheckHealth().WithContext(failure.message());
}

Status LiveLineage::CheckManifest(std::uint64_t version, const std::string& expected) const {
  const std::string name = object_name::Version(options_.lineage, version);
  SEGUE_ASSIGN_OR_RETURN(const ByteVector json, store_->Get(name, limits::kManifestSizeMax));
  const std::string found = HashSha256(json).ToHex();
  if (found == expected) return {};
  return Corruption("manifest '" + name + "' has SHA-256 " + found + ", expected " + expected);
}

Result<std::unique_ptr<PreparedUpdate>> LiveLineage::MakeUpdate(const PrepareRequest& request,
                                                                const std::stop_token& stop) {
  Result<std::unique_ptr<PreparedUpdate>> made = MakeOwnUpdate(request, stop);
  RankSums sums;
  std::uint64_t target = 0;
  if (made.ok()) {
    sums = made.value()->sums();
    target = made.value()->report().target_version;
  }
  SEGUE_RETURN_IF_ERROR(ranks_.Agree(Meeting::kPrepare, target, made.status(), &sums));
  const Status proven = made.value()->CheckSums(sums);
  if (!proven.ok()) return FindFault(proven, stop);
  return made;
}

Result<std::unique_ptr<PreparedUpdate>> LiveLineage::MakeOwnUpdate(const PrepareRequest& request,
                                                                   const std::stop_token& stop) {
  if (is_wrong_) return CheckHealth();
  Result<UpdatePlan> plan = PlanUpdate(*store_, options_.lineage, *weights_, request.target_version,
                                       is_recorded_ ? HeldNumber::kRecorded : HeldNumber::kFound);
  if (!plan.ok()) {
    const bool strange = !knows_plan_ && plan.status().code() == StatusCode::kVersionMismatch;
    if (strange) return MarkStrange(plan.status(), stop);
    is_strange_ = false;
    return plan.status();
  }
  knows_plan_ = true;
  is_strange_ = is_unproven_ = false;
  SEGUE_RETURN_IF_ERROR(CheckPlan(request));
  if (!request.manifest_sha256.empty()) {
    SEGUE_RETURN_IF_ERROR(CheckManifest(plan->target_version, request.manifest_sha256));
  }
  const PreparedUpdate::Resources resources{*store_,          *weights_,
                                            *background_,     *foreground_,
                                            options_.staging, options_.background_threads};
  SEGUE_ASSIGN_OR_RETURN(auto update,
                         PreparedUpdate::Make(resources, std::move(plan).value(), stop));
  const Status proven = update->Preflight(resources);
  if (proven.ok()) return update;
  const bool differs =
      proven.code() == StatusCode::kVersionMismatch || proven.code() == StatusCode::kCorruption;
  return differs ? FindFault(proven, stop) : proven;
}

Result<std::vector<std::uint64_t>> LiveLineage::Versions() const {
  auto versions = Lineage::ListVersions(*store_, options_.lineage);
  if (!versions.ok()) {
    ++look_failures_;
  } else if (!versions->empty()) {
    newest_seen_ = versions->back();
  }
  return versions;
}

Status LiveLineage::CloseGates(std::uint64_t target, std::chrono::milliseconds deadline,
                               bool reopen) {
  const Status closed = CatchOutOfMemory([&] { return weights_->gate().Close(deadline); });
  // From here on a gate may be closed, which opens again whatever runs out.
  const Status ready = closed.ok() ? CatchOutOfMemory([this]() -> Status {
    SEGUE_RETURN_IF_ERROR(weights_->CheckCurrent());
    SEGUE_RETURN_IF_ERROR(CheckHealth());
    Accelerator* const accelerator = weights_->map().accelerator();
    return accelerator != nullptr ? accelerator->BeginApply() : Status();
  })
                                   : closed;
  Status agreed = CatchOutOfMemory([&] { return ranks_.Agree(Meeting::kClose, target, ready); });
  if (!agreed.ok() && closed.ok() && reopen) SEGUE_RETURN_IF_ERROR(weights_->gate().Open());
  return agreed;
}

Status LiveLineage::Apply(PreparedUpdate& update) {
  Status applied = update.Apply();
  if (applied.ok()) is_recorded_ = true;
  if (!update.changes_bytes()) return applied;
  Status agreed = ranks_.Agree(Meeting::kApply, update.report().target_version, applied);
  if (agreed.ok()) return agreed;
  weights_->SetPhase(Phase::kPoisoned);
  return Tainted(agreed.message());
}

Status LiveLineage::OpenToLoad(const Status& so_far) {
  SEGUE_ASSIGN_OR_RETURN(to_load_, segue::OpenToLoad(options_, *weights_, ranks_, so_far));
  return {};
}

Status LiveLineage::GiveUpLoad() {
  to_load_.reset();
  return ReopenIfServing(*weights_);
}

Status LiveLineage::Load() {
  Status loaded = LoadFrom(*to_load_, *store_, options_, *weights_, ranks_);
  to_load_.reset();
  was_loaded_ = true;
  is_recorded_ = false;
  if (loaded.ok()) is_wrong_ = is_strange_ = false;
  return loaded;
}

std::string LiveLineage::VersionLabel() const {
  const LiveVersion held = weights_->version();
  return held.lineage + "/" + std::to_string(held.version);
}

}  // namespace segue
