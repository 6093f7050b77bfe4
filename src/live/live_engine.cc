// SPDX-License-Identifier: Apache-2.0
//
// LiveEngine: docs/protocol.md, sections 7 (the pause), 8 (engine control) and 10 (ranks).
#include "live/live_engine.h"

#include <utility>

#include "base/hash.h"
#include "base/limits.h"
#include "delta/live_map.h"
#include "live/bound_weights.h"
#include "live/takeover.h"
#include "store/signed_store.h"
#include "sync/lineage.h"

namespace segue {

Status WithOutcomeOf(const Status& taken_back, const Status& failure) {
  return taken_back.ok() ? failure : failure.WithContext(taken_back.message());
}

LiveEngine::LiveEngine(ReceiverOptions options, LiveEnvironment& environment)
    : options_(std::move(options)),
      environment_(environment),
      foreground_(environment.MakeDevice(options_.threads)),
      background_(environment.MakeDevice(options_.background_threads)),
      steps_(options_.hooks) {}

Status LiveEngine::OpenStore() {
  SEGUE_ASSIGN_OR_RETURN(auto store, environment_.OpenStore(options_.store, /*create=*/false));
  SEGUE_ASSIGN_OR_RETURN(store_, WithKeys(std::move(store), options_.keys));
  return {};
}

Status LiveEngine::Hold() {
  SEGUE_RETURN_IF_ERROR(OpenStore());
  SEGUE_ASSIGN_OR_RETURN(weights_, HoldWeights(*store_, options_, environment_));
  SEGUE_RETURN_IF_ERROR(Pause());
  return LetGoUnless(TakeOver(*store_, options_, *weights_));
}

Status LiveEngine::HoldBound(BoundModel model) {
  ranks_ = Ranks(model.sum_over_ranks);
  gate_ = std::make_unique<CallbackGate>(std::move(model.close_gate), std::move(model.open_gate));
  Status bound = OpenStore();
  if (bound.ok()) {
    auto weights = BindWeights(*store_, options_, model, *gate_);
    bound = weights.status();
    if (bound.ok()) weights_ = std::move(weights).value();
  }
  if (!bound.ok()) return ranks_.Agree(Meeting::kBind, 0, bound);
  SEGUE_RETURN_IF_ERROR(
      ProveVersion(*store_, options_, *weights_, ranks_, {}, "the bound weights"));
  return Pause();
}

// One that is not there has not started, unless it is attached.
Status LiveEngine::Pause() {
  Status paused = steps_.Pause({}, weights_->phase() == Phase::kServing);
  const bool absent = paused.code() == StatusCode::kNotFound && weights_->engine_count() == 0;
  return absent ? Status() : paused;
}

Status LiveEngine::LetGoUnless(const Status& begun) {
  if (begun.ok() || !steps_.paused() || weights_->phase() != Phase::kServing) return begun;
  return WithOutcomeOf(LetGo(), begun);
}

Status LiveEngine::CheckRequest(const PrepareRequest& request) const {
  const LiveVersion held = weights_->version();
  if (request.base_version && *request.base_version != held.version) {
    return VersionMismatch("version " + std::to_string(held.version) + " is held, not base " +
                           std::to_string(*request.base_version));
  }
  // Before the lineage has been seen its plan is not known: CheckPlan() comes again then.
  return knows_plan_ ? CheckPlan(request) : Status();
}

Status LiveEngine::CheckPlan(const PrepareRequest& request) const {
  const std::string plan = weights_->plan().digest().ToHex();
  if (request.plan_digest.empty() || request.plan_digest == plan) return {};
  return VersionMismatch("the live weights have plan " + plan + ", not " + request.plan_digest);
}

Status LiveEngine::CheckRebuild(std::optional<std::uint64_t> target) const {
  if (weights_->phase() != Phase::kServing) return {};  // Nothing to lose.
  return CheckWayFromCheckpoint(*store_, options_, *weights_, target);
}

Status LiveEngine::Wrong() const {
  return Corruption("a scan found that the live weights are not version " +
                    std::to_string(weights_->version().version) +
                    ": rebuild them from the checkpoint");
}

Status LiveEngine::CheckHealth() const {
  if (is_wrong_) return Wrong();
  if (is_strange_) {
    return VersionMismatch("the live weights, digest " + weights_->version().digest.ToHex() +
                           ", are no version of lineage '" + options_.lineage +
                           "', which has appeared since they were loaded");
  }
  return {};
}

// Bytes and delta do not belong together. Whose fault it is, a scan of all bytes tells: those of
// another digest than the version's are wrong, and known to be from here on.
Status LiveEngine::FindFault(const Status& failure, const std::stop_token& stop) {
  ChunkScanner scanner(weights_->plan(), weights_->map());
  for (std::uint64_t chunk = 0; chunk < weights_->plan().chunk_count(); ++chunk) {
    if (stop.stop_requested()) return failure;
    SEGUE_RETURN_IF_ERROR(weights_->CheckCurrent());
    scanner.Add(chunk);
  }
  if (scanner.digest().all == weights_->local_digest()) {
    return Corruption("the delta is not from the version that is held, though it says so: " +
                      failure.message());
  }
  is_wrong_ = true;
  return CheckHealth().WithContext(failure.message());
}

Status LiveEngine::CheckManifest(std::uint64_t version, const std::string& expected) const {
  const std::string name = object_name::Version(options_.lineage, version);
  SEGUE_ASSIGN_OR_RETURN(const ByteVector json, store_->Get(name, limits::kManifestSizeMax));
  const std::string found = HashSha256(json).ToHex();
  if (found == expected) return {};
  return Corruption("manifest '" + name + "' has SHA-256 " + found + ", expected " + expected);
}

Result<std::unique_ptr<PreparedUpdate>> LiveEngine::MakeUpdate(const PrepareRequest& request,
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

Result<std::unique_ptr<PreparedUpdate>> LiveEngine::MakeOwnUpdate(const PrepareRequest& request,
                                                                  const std::stop_token& stop) {
  if (is_wrong_) return CheckHealth();
  Result<UpdatePlan> plan =
      PlanUpdate(*store_, options_.lineage, *weights_, request.target_version);
  if (!plan.ok()) {
    is_strange_ = !knows_plan_ && plan.status().code() == StatusCode::kVersionMismatch;
    return plan.status();
  }
  knows_plan_ = true;
  is_strange_ = false;
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

Status LiveEngine::Close(std::uint64_t target, const ApplyChoices& choices) {
  SEGUE_RETURN_IF_ERROR(steps_.Pause(choices, /*may_run=*/true));
  Status closed = CloseGates(target, /*reopen=*/true);
  if (closed.ok()) return closed;
  return WithOutcomeOf(steps_.CallOff(), closed);
}

// Every rank's gate, or none: where one does not close, the others open again, unless they were
// closed before and must stay so.
Status LiveEngine::CloseGates(std::uint64_t target, bool reopen) {
  const Status closed = weights_->gate().Close(options_.gate_deadline);
  Status ready = closed.ok() ? weights_->CheckCurrent() : closed;
  if (ready.ok()) ready = CheckHealth();
  Status agreed = ranks_.Agree(Meeting::kClose, target, ready);
  if (!agreed.ok() && closed.ok() && reopen) SEGUE_RETURN_IF_ERROR(weights_->gate().Open());
  return agreed;
}

Status LiveEngine::Apply(PreparedUpdate& update) {
  if (update.changes_bytes()) steps_.MarkStale();
  const Status applied = update.Apply();
  if (!update.changes_bytes()) return applied;
  const Status agreed = ranks_.Agree(Meeting::kApply, update.report().target_version, applied);
  if (agreed.ok()) return agreed;
  weights_->SetPhase(Phase::kPoisoned);
  return Tainted(agreed.message());
}

Result<std::optional<UpdateReport>> LiveEngine::CatchUp(std::optional<std::uint64_t> target,
                                                        bool reopen) {
  SEGUE_ASSIGN_OR_RETURN(const auto versions, Lineage::ListVersions(*store_, options_.lineage));
  std::optional<UpdateReport> report;
  if (!versions.empty() || target) {
    PrepareRequest request;
    request.target_version = target;
    SEGUE_ASSIGN_OR_RETURN(const std::unique_ptr<PreparedUpdate> update, MakeUpdate(request, {}));
    report = update->report();
    if (update->changes_bytes()) {
      SEGUE_RETURN_IF_ERROR(CloseGates(report->target_version, reopen));
    }
    SEGUE_RETURN_IF_ERROR(Apply(*update));
    report = update->report();
  }
  return report;
}

Status LiveEngine::Load(const Status& so_far) {
  Status loaded = LoadCheckpoint(*store_, options_, *weights_, ranks_, so_far);
  if (loaded.ok() || weights_->phase() != Phase::kServing) steps_.MarkStale();
  if (loaded.ok()) is_wrong_ = is_strange_ = false;
  return loaded;
}

// What an engine is told, and may key its caches by.
std::string LiveEngine::VersionLabel() const {
  const LiveVersion held = weights_->version();
  return held.lineage + "/" + std::to_string(held.version);
}

Status LiveEngine::LetGo() {
  if (steps_.paused()) SEGUE_RETURN_IF_ERROR(Finish(/*flush=*/true));
  SEGUE_RETURN_IF_ERROR(weights_->gate().Open());
  return steps_.paused() ? steps_.Resume() : Status();
}

}  // namespace segue
