// SPDX-License-Identifier: Apache-2.0
//
// ReceiverCore, how it comes by weights that are a version's: at its start, and in a rebuild. Both
// go from what is held or loaded to the version that is asked for, and only then let engines in.
#include <utility>

#include "base/out_of_memory.h"
#include "live/receiver_core.h"
#include "segue/give_up.h"

namespace segue {
namespace {

Status CheckpointBeyond(const ReceiverOptions& options, std::uint64_t held) {
  const std::string wanted = std::to_string(*options.version);
  return VersionMismatch("checkpoint '" + options.checkpoint + "' is version " +
                         std::to_string(held) + " of lineage '" + options.lineage +
                         "', after version " + wanted +
                         " that is asked for: Segue only goes forward; start from a checkpoint of "
                         "version " +
                         wanted + " or of an earlier one");
}

// Memory or a server is there again; tainted: an apply on the way from the checkpoint failed, which
// does not say of what.
bool MayBeBetterLater(StatusCode code) {
  return code == StatusCode::kResourceExhausted || code == StatusCode::kUnavailable ||
         code == StatusCode::kTainted;
}

}  // namespace

Status ReceiverCore::Start() {
  SEGUE_RETURN_IF_ERROR(engine_.Hold());
  const Status doubts = engine_.Doubts();
  SEGUE_RETURN_IF_ERROR(Begin());
  const std::lock_guard lock(mutex_);
  why_ = doubts;
  return {};
}

Status ReceiverCore::StartBound(std::vector<BoundModel> models) {
  SEGUE_RETURN_IF_ERROR(engine_.HoldBound(std::move(models)));
  return Begin();
}

Status ReceiverCore::CheckStart() const {
  for (std::size_t i = 0; i < size(); ++i) {
    const auto wanted = engine_.lineage(i).options().version;
    const std::uint64_t held = weights(i).version().version;
    if (!wanted || held <= *wanted) continue;
    if (engine_.lineage(i).was_loaded())
      return CheckpointBeyond(engine_.lineage(i).options(), held);
    return VersionMismatch("version " + std::to_string(*wanted) + " of lineage '" +
                           engine_.lineage(i).options().lineage +
                           "' is asked for, the live weights are at " + std::to_string(held) +
                           ": Segue only goes forward; rebuild them from the checkpoint "
                           "(--rebuild)");
  }
  return {};
}

EngineRequest ReceiverCore::StartRequest() const {
  EngineRequest request;
  request.lineages.resize(size());
  request.same_version = same_version_;
  for (std::size_t i = 0; i < size(); ++i) {
    const ReceiverOptions& options = engine_.lineage(i).options();
    if (!options.catch_up) continue;
    request.lineages[i].emplace();
    request.lineages[i]->target_version = options.version;
  }
  return request;
}

Status ReceiverCore::Begin() {
  const Status possible = CheckStart();
  if (!possible.ok()) return engine_.DropFresh(possible);
  SEGUE_RETURN_IF_ERROR(engine_.LetGoUnless(CatchUp(StartRequest(), /*reopen=*/true)));
  SEGUE_RETURN_IF_ERROR(engine_.LetGo());
  {
    const std::lock_guard lock(mutex_);
    NoteStart();
    ready_ = true;
  }
  for (std::size_t i = 0; i < size(); ++i) {
    const std::uint64_t rate = engine_.lineage(i).options().scrub_rate;
    if (rate == 0) continue;
    parts_[i].scrubber = std::make_unique<Scrubber>(weights(i), rate, environment_);
  }
  return {};
}

// Lock held. A start that loaded anew what engines had been let into is a rebuild to them.
void ReceiverCore::NoteStart() {
  const auto& start = engine_.start_pause();
  if (!start) return;
  const Pause pause = {InNanoseconds(start->began), InNanoseconds(start->closed),
                       NowInNanoseconds()};
  for (std::size_t i = 0; i < size(); ++i) {
    const LiveLineage& lineage = engine_.lineage(i);
    if (lineage.was_loaded() && lineage.was_serving()) NoteRebuilt(i, start->held[i], pause);
  }
}

// At the start and after a rebuild: the weights are proven versions.
Status ReceiverCore::CatchUp(const EngineRequest& request, bool reopen) {
  SEGUE_ASSIGN_OR_RETURN(const std::unique_ptr<EngineUpdate> update,
                         engine_.CatchUp(request, reopen));
  const std::lock_guard lock(mutex_);
  for (std::size_t i = 0; i < size(); ++i) {
    parts_[i].caught_up = update && update->part(i) != nullptr;
    if (!parts_[i].caught_up) continue;
    parts_[i].last = update->part(i)->report();
    parts_[i].base_version = parts_[i].last.base_version;
    parts_[i].target_version = parts_[i].last.target_version;
  }
  return {};
}

// Every step ends in a status, also where memory runs out: what holds the gates comes to an end.
Status ReceiverCore::Rebuild(const EngineRequest& request) {
  // Copied before anything is changed: memory may run out meanwhile.
  EngineRequest asked = request;
  ReceiverState before;
  {
    const std::lock_guard lock(mutex_);
    if (IsBusy()) return InProgress();
    session_ = "rebuild";
    before = std::exchange(state_, ReceiverState::kApplying);
    rebuilding_ = true;
    rebuild_asked_ = std::move(asked);
    is_rebuild_due_ = false;
    rebuild_failures_ = 0;
  }
  return RunRebuild(request, before);
}

// By a follower, which is all that would: who asked for the first one has been told that it failed.
Status ReceiverCore::RebuildAgain() {
  EngineRequest request;
  {
    const std::lock_guard lock(mutex_);
    if (!is_rebuild_due_ || IsBusy()) return {};
    request = rebuild_asked_;
    is_rebuild_due_ = false;
    state_ = ReceiverState::kApplying;
    rebuilding_ = true;
  }
  return RunRebuild(request, ReceiverState::kPoisoned);
}

Status ReceiverCore::RunRebuild(const EngineRequest& request, ReceiverState before) {
  const GiveUpScope scope([this] { return gives_up_.load(); });
  std::vector<std::uint64_t> held;
  Status so_far = CatchOutOfMemory([&] {
    held = held_versions();
    return engine_.CheckRebuild(request);
  });
  Pause pause;
  pause.started_ns = NowInNanoseconds();
  if (so_far.ok()) so_far = CatchOutOfMemory([this] { return engine_.Pause(); });
  Status status = CatchOutOfMemory([&] { return engine_.CloseToLoad(so_far); });
  pause.fenced_ns = NowInNanoseconds();
  if (status.ok()) status = CatchOutOfMemory([this] { return engine_.Load(); });
  if (!status.ok() && engine_.IsServing()) {
    // Nothing was touched: the version held serves on.
    if (engine_.steps().paused()) status = WithOutcomeOf(engine_.steps().CallOff(), status);
    return EndRebuild(before, status);
  }
  for (Part& part : parts_) {
    if (part.scrubber) part.scrubber->Forgive();
  }
  if (status.ok()) {
    status = CatchOutOfMemory([&] { return CatchUp(request, /*reopen=*/false); });
  }
  if (status.ok()) return FinishRebuild(held, pause);
  engine_.Poison();
  return EndRebuild(ReceiverState::kPoisoned, status);
}

// A rebuild that failed, and what it leaves.
Status ReceiverCore::EndRebuild(ReceiverState state, const Status& status) {
  const std::lock_guard lock(mutex_);
  rebuilding_ = false;
  ++update_failures_;
  if (state == ReceiverState::kPoisoned) {
    ready_ = false;
    is_rebuild_due_ = MayBeBetterLater(status.code());
    ++rebuild_failures_;
  }
  Status why = status;
  (void)CatchOutOfMemory([&]() -> Status {
    why = status.WithContext("rebuild failed");
    return {};
  });
  Settle(state, std::move(why));
  return status;
}

// The weights are right; whether the engine knows it. If not, it stays paused, until an update
// (of nothing, say) does the rest.
Status ReceiverCore::FinishRebuild(const std::vector<std::uint64_t>& held, Pause pause) {
  Status told = CatchOutOfMemory([this] { return engine_.LetGo(); });
  if (told.ok()) pause.resumed_ns = NowInNanoseconds();
  const std::lock_guard lock(mutex_);
  for (std::size_t i = 0; i < size(); ++i) NoteRebuilt(i, held[i], pause);
  rebuilding_ = false;
  rebuild_failures_ = 0;
  ready_ = told.ok();
  Status why = told;
  (void)CatchOutOfMemory([&]() -> Status {
    if (!told.ok()) why = told.WithContext("rebuilt, but the engine does not go on");
    return {};
  });
  Settle(ReceiverState::kIdle, std::move(why));
  return told;
}

// Lock held. What the way from the checkpoint cost is there already; where it led nowhere further,
// nothing was fetched.
void ReceiverCore::NoteRebuilt(std::size_t i, std::uint64_t held, const Pause& pause) {
  Part& part = parts_[i];
  const std::uint64_t now = weights(i).version().version;
  UpdateReport& report = part.last;
  if (!part.caught_up) report = {};
  report.base_version = held;
  report.target_version = now;
  report.pause_started_ns = pause.started_ns;
  report.fence_completed_ns = pause.fenced_ns;
  report.resumed_ns = pause.resumed_ns;
  report.gate_s = SecondsBetween(pause.started_ns, pause.fenced_ns);
  report.pause_s = pause.resumed_ns == 0 ? 0 : SecondsBetween(pause.started_ns, pause.resumed_ns);
  if (pause.resumed_ns != 0) part.pauses.Add(report.pause_s);
  part.base_version = held;
  part.target_version = now;
}

}  // namespace segue
