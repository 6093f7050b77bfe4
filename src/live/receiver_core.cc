// SPDX-License-Identifier: Apache-2.0
//
// ReceiverCore: the states, and who may move them.
#include "live/receiver_core.h"

#include <new>
#include <string_view>
#include <system_error>
#include <utility>

#include "base/out_of_memory.h"
#include "device/accelerator.h"
#include "segue/give_up.h"

namespace segue {
namespace {

// Made before main(), as OutOfMemory() is.
const Status aborted_by_request = Unavailable("aborted by request");

// Where waiting alone does not help.
std::string_view WhatIsFirst(ReceiverState state) {
  switch (state) {
    case ReceiverState::kIdle:
    case ReceiverState::kResumed:
    case ReceiverState::kFailed:
    case ReceiverState::kAborted: return ": prepare one first";
    case ReceiverState::kPrepared: return ": apply it first";
    case ReceiverState::kApplied: return ": resume it first";
    default: return "";
  }
}

}  // namespace

ReceiverCore::ReceiverCore(const std::vector<ReceiverOptions>& lineages, EngineHooks hooks,
                           bool same_version, LiveEnvironment& environment)
    : same_version_(same_version),
      environment_(environment),
      engine_(lineages, std::move(hooks), environment),
      parts_(lineages.size()) {}

ReceiverCore::~ReceiverCore() { EndTasks(); }

void ReceiverCore::EndTasks() {
  GiveUpStore();
  follow_task_.reset();
  prepare_task_.reset();
}

EngineRequest ReceiverCore::RequestOfAll(const PrepareRequest& part) const {
  EngineRequest request;
  request.session = part.session;
  request.lineages.assign(size(), part);
  request.same_version = same_version_ && !part.target_version;
  return request;
}

Status ReceiverCore::Prepare(const EngineRequest& request) {
  std::unique_lock lock(mutex_);
  if (state_ == ReceiverState::kPoisoned) return Tainted(why_.message());
  if (IsBusy()) {
    // The same request again, by whoever did not hear the answer; a name alone is not enough.
    if (!rebuilding_ && !session_.empty() && request == asked_) return {};
    return InProgress();
  }
  SEGUE_RETURN_IF_ERROR(engine_.CheckRequest(request));
  // Copied before anything is changed: memory may run out meanwhile.
  EngineRequest asked = request;
  std::string session = request.session;
  const std::vector<std::uint64_t> held = held_versions();
  for (std::size_t i = 0; i < size(); ++i) {
    const auto& part = request.lineages[i];
    parts_[i].manifest_sha256 = part ? part->manifest_sha256 : std::string();
    parts_[i].base_version = held[i];
    parts_[i].target_version = part ? part->target_version.value_or(0) : held[i];
  }
  state_ = ReceiverState::kPreparing;
  session_ = std::move(session);
  asked_ = std::move(asked);
  why_ = {};
  stop_prepare_ = false;
  ++prepare_count_;
  // The task before has ended or is about to: its state is no longer PREPARING.
  // Nothing is staged before what it holds is given back.
  Free(lock, std::move(prepared_), std::move(prepare_task_));
  Status started = StartPrepare(request);
  if (started.ok()) {
    if (stop_prepare_) prepare_task_->RequestStop();
    return {};
  }
  failure_ = started;
  ++update_failures_;
  Settle(ReceiverState::kFailed, failure_);
  return started;
}

// A thread's stack is memory too, and the system says otherwise that there is none.
Status ReceiverCore::StartTask(std::unique_ptr<BackgroundTask>& task, TaskPriority priority,
                               Environment::Body body) {
  try {
    task = environment_.Start(priority, std::move(body));
    return {};
  } catch (const std::system_error&) {
    return ResourceExhausted("threads: the system gives no more of them");
  }
}

// Lock held.
Status ReceiverCore::StartPrepare(const EngineRequest& request) {
  return CatchOutOfMemory([&] {
    return StartTask(prepare_task_, TaskPriority::kLow,
                     [this, request](const std::stop_token& stop) { RunPrepare(request, stop); });
  });
}

// Lock held, state preparing.
void ReceiverCore::StopPreparing() {
  stop_prepare_ = true;
  if (prepare_task_) prepare_task_->RequestStop();
}

// Lock held, but not meanwhile: a device may take its time to give memory back, and the status is
// asked.
void ReceiverCore::Free(std::unique_lock<std::mutex>& lock, std::unique_ptr<EngineUpdate> spent,
                        std::unique_ptr<BackgroundTask> ended) {
  environment_.Await(lock, changed_, [this] { return !freeing_; });
  freeing_ = true;
  lock.unlock();
  ended.reset();
  spent.reset();
  lock.lock();
  freeing_ = false;
  changed_.notify_all();
}

Status ReceiverCore::WaitPrepared() {
  std::unique_lock lock(mutex_);
  AwaitPrepared(lock);
  return Outcome();
}

Status ReceiverCore::Apply(const std::string& session, const ApplyChoices& choices) {
  bool is_rest = false;
  {
    const std::lock_guard lock(mutex_);
    SEGUE_RETURN_IF_ERROR(CheckSession(session));
    SEGUE_RETURN_IF_ERROR(engine_.steps().Check(choices));
    is_rest = state_ == ReceiverState::kApplied && engine_.steps().owes();
    if (!is_rest) {
      if (state_ == ReceiverState::kApplied || state_ == ReceiverState::kResumed) return {};
      if (state_ != ReceiverState::kPrepared) return WrongState("applied");
    }
    state_ = ReceiverState::kApplying;
  }
  return is_rest ? FinishApply(choices) : ApplyPrepared(choices);
}

Status ReceiverCore::Resume(const std::string& session, bool keep_pause) {
  if (keep_pause && !engine_.steps().present()) {
    return Unsupported("keep_pause needs an engine with pause control");
  }
  {
    const std::lock_guard lock(mutex_);
    SEGUE_RETURN_IF_ERROR(CheckSession(session));
    if (state_ == ReceiverState::kResumed) return {};
    if (state_ != ReceiverState::kApplied) return WrongState("resumed");
    if (engine_.steps().owes()) {
      return Unavailable("the apply is not finished at the engine: apply again, first");
    }
    state_ = ReceiverState::kResuming;
  }
  Status opened = CatchOutOfMemory([&]() -> Status {
    SEGUE_RETURN_IF_ERROR(engine_.OpenGates(*prepared_));
    return engine_.steps().paused() && !keep_pause ? engine_.steps().Resume() : Status();
  });
  const std::uint64_t now = prepared_->changes_bytes() ? NowInNanoseconds() : 0;
  std::unique_ptr<EngineUpdate> spent;
  {
    const std::lock_guard lock(mutex_);
    if (!opened.ok()) {
      state_ = ReceiverState::kApplied;
      why_ = opened;
      return opened;
    }
    NoteResumed(now);
    spent = std::move(prepared_);
  }
  // Still resuming, so that nothing is staged meanwhile; without the lock, as a device may take its
  // time to give memory back.
  spent.reset();
  const std::lock_guard lock(mutex_);
  ready_ = true;
  Settle(ReceiverState::kResumed, {});
  return {};
}

// Lock held, the gates open.
void ReceiverCore::NoteResumed(std::uint64_t now) {
  for (std::size_t i = 0; i < size(); ++i) {
    PreparedUpdate* const part = prepared_->part(i);
    if (part == nullptr) continue;
    UpdateReport& report = part->report();
    if (prepared_->holds(i)) {
      report.resumed_ns = now;
      report.pause_s = SecondsBetween(report.pause_started_ns, now);
      parts_[i].pauses.Add(report.pause_s);
    }
    parts_[i].last = std::move(report);
  }
}

Status ReceiverCore::Abort(const std::string& session) {
  std::unique_lock lock(mutex_);
  SEGUE_RETURN_IF_ERROR(CheckSession(session));
  if (state_ == ReceiverState::kPreparing) {
    StopPreparing();
    const std::uint64_t own = prepare_count_;
    const auto has_ended = [&] {
      return state_ != ReceiverState::kPreparing || prepare_count_ != own;
    };
    environment_.Await(lock, changed_, has_ended);
    if (prepare_count_ != own) return {};  // It has ended, and another has begun since.
  }
  switch (state_) {
    case ReceiverState::kPrepared:
      Settle(ReceiverState::kAborted, aborted_by_request);
      Free(lock, std::move(prepared_));
      return {};
    case ReceiverState::kIdle:
    case ReceiverState::kFailed:
    case ReceiverState::kAborted: return {};
    default: return WrongState("aborted");
  }
}

Status ReceiverCore::Clear() {
  {
    std::unique_lock lock(mutex_);
    if (IsBusy()) return InProgress();
    if (state_ == ReceiverState::kPoisoned) return Tainted(why_.message());
    session_.clear();
    Settle(ReceiverState::kIdle, {});
    environment_.Await(lock, changed_, [this] { return !freeing_; });
  }
  for (std::size_t i = 0; i < size(); ++i) {
    Accelerator* const accelerator = weights(i).map().accelerator();
    if (accelerator != nullptr) accelerator->ReleaseStaging();
  }
  return {};
}

Status ReceiverCore::Update(const EngineRequest& request, const ApplyChoices& choices,
                            const std::stop_token& stop) {
  SEGUE_RETURN_IF_ERROR(engine_.steps().Check(choices));
  SEGUE_RETURN_IF_ERROR(Prepare(request));
  {
    const std::stop_callback give_up(stop, [this, &request] {
      const std::lock_guard lock(mutex_);
      const bool is_own = session_ == request.session && state_ == ReceiverState::kPreparing;
      if (is_own) StopPreparing();
    });
    SEGUE_RETURN_IF_ERROR(WaitPrepared());
  }
  SEGUE_RETURN_IF_ERROR(Apply(request.session, choices));
  return Resume(request.session, /*keep_pause=*/false);
}

Status ReceiverCore::Release() {
  StopFollowing();
  return CatchOutOfMemory([this] { return ReleaseSession(); });
}

Status ReceiverCore::ReleaseSession() {
  std::string session;
  ReceiverState state;
  {
    const std::lock_guard lock(mutex_);
    session = session_;
    state = state_;
  }
  if (state == ReceiverState::kPreparing || state == ReceiverState::kPrepared) {
    return Abort(session);
  }
  if (state != ReceiverState::kApplied) return {};
  SEGUE_RETURN_IF_ERROR(Apply(session, {}));  // What is owed to the engine, if anything.
  return Resume(session, /*keep_pause=*/false);
}

void ReceiverCore::StopFollowing() {
  const std::lock_guard lock(follow_mutex_);
  follow_task_.reset();
  follows_ = false;
}

Status ReceiverCore::Follow(std::chrono::milliseconds interval) {
  for (std::size_t i = 0; i < size(); ++i) {
    if (!engine_.lineage(i).has_ranks()) continue;
    return InvalidArgument("one of several ranks cannot follow by itself");
  }
  const std::lock_guard lock(follow_mutex_);
  follow_task_.reset();
  const auto run = [this, interval](const std::stop_token& stop) {
    const GiveUpScope scope([this, &stop] { return stop.stop_requested() || gives_up_; });
    follower_.Run(environment_, interval, stop);
  };
  const Status started =
      CatchOutOfMemory([&] { return StartTask(follow_task_, TaskPriority::kNormal, run); });
  follows_ = started.ok();
  return started;
}

Result<std::vector<std::uint64_t>> ReceiverCore::Versions(std::size_t i) const {
  const GiveUpScope scope([this] { return gives_up_.load(); });
  return engine_.lineage(i).Versions();
}

Result<std::vector<std::optional<std::uint64_t>>> ReceiverCore::Newest() const {
  std::vector<std::optional<std::uint64_t>> newest(size());
  if (same_version_ && size() > 1) {
    SEGUE_ASSIGN_OR_RETURN(const auto common, engine_.CommonVersion());
    newest.assign(size(), common);
    return newest;
  }
  for (std::size_t i = 0; i < size(); ++i) {
    SEGUE_ASSIGN_OR_RETURN(const auto versions, Versions(i));
    if (!versions.empty()) newest[i] = versions.back();
  }
  return newest;
}

Status ReceiverCore::Take(const FollowRequest& request, const std::stop_token& stop) {
  EngineRequest update;
  update.session = request.session;
  update.lineages.resize(size());
  for (std::size_t i = 0; i < size(); ++i) {
    if (!request.targets[i]) continue;
    update.lineages[i].emplace();
    update.lineages[i]->target_version = request.targets[i];
  }
  return Update(update, {}, stop);
}

// What its scans find counts in every update.
void ReceiverCore::HearScrubbers() {
  for (std::size_t i = 0; i < size(); ++i) {
    const auto& scrubber = parts_[i].scrubber;
    if (scrubber && scrubber->found_fault()) engine_.lineage(i).MarkWrong();
  }
}

std::uint64_t ReceiverCore::InNanoseconds(Environment::Clock::time_point time) {
  return static_cast<std::uint64_t>(std::chrono::nanoseconds(time.time_since_epoch()).count());
}

std::uint64_t ReceiverCore::NowInNanoseconds() { return InNanoseconds(environment_.Now()); }

void ReceiverCore::AwaitPrepared(std::unique_lock<std::mutex>& lock) {
  environment_.Await(lock, changed_, [this] { return state_ != ReceiverState::kPreparing; });
}

// An update that is under way: another one must wait.
bool ReceiverCore::IsBusy() const {
  if (rebuilding_) return true;
  switch (state_) {
    case ReceiverState::kPreparing:
    case ReceiverState::kPrepared:
    case ReceiverState::kApplying:
    case ReceiverState::kApplied:
    case ReceiverState::kResuming: return true;
    default: return false;
  }
}

Status ReceiverCore::CheckSession(const std::string& session) const {
  if (session == session_) return {};
  return InvalidArgument("session '" + session + "' is not the current one, '" + session_ + "'");
}

Status ReceiverCore::InProgress() const {
  std::string_view first;
  if (state_ == ReceiverState::kPrepared) first = ": apply or abort it first";
  if (state_ == ReceiverState::kApplied) first = ": resume it first";
  return Unavailable("an update is in progress (session '" + session_ + "', " +
                     std::string(ReceiverStateName(state_)) + ")" + std::string(first));
}

Status ReceiverCore::WrongState(const char* verb) const {
  if (state_ == ReceiverState::kPoisoned) return Tainted(why_.message());
  return Unavailable(std::string("an update that is ") + std::string(ReceiverStateName(state_)) +
                     " cannot be " + verb + std::string(WhatIsFirst(state_)));
}

// Lock held: what a finished prepare came to.
Status ReceiverCore::Outcome() const {
  switch (state_) {
    case ReceiverState::kFailed: return failure_;
    case ReceiverState::kAborted: return Unavailable(why_.message());
    case ReceiverState::kPoisoned: return Tainted(why_.message());
    default: return {};
  }
}

// Lock held: the end of something.
void ReceiverCore::Settle(ReceiverState state, Status why) {
  state_ = state;
  why_ = std::move(why);
  changed_.notify_all();
}

void ReceiverCore::RunPrepare(const EngineRequest& request, const std::stop_token& stop) {
  const GiveUpScope scope([this, &stop] { return stop.stop_requested() || gives_up_; });
  HearScrubbers();
  Result<std::unique_ptr<EngineUpdate>> made =
      CatchOutOfMemory([&] { return engine_.MakeUpdate(request, stop); });
  const std::lock_guard lock(mutex_);
  if (stop.stop_requested()) {
    Settle(ReceiverState::kAborted, aborted_by_request);
  } else if (made.ok()) {
    prepared_ = std::move(made).value();
    for (std::size_t i = 0; i < size(); ++i) {
      if (prepared_->part(i) == nullptr) continue;
      parts_[i].base_version = prepared_->part(i)->report().base_version;
      parts_[i].target_version = prepared_->part(i)->report().target_version;
    }
    Settle(ReceiverState::kPrepared, {});
  } else {
    failure_ = made.status();
    ++update_failures_;
    Settle(ReceiverState::kFailed, failure_);
  }
}

// State applying; the bytes are the target's.
Status ReceiverCore::FinishApply(const ApplyChoices& choices) {
  Status finished = CatchOutOfMemory([&] { return engine_.Finish(choices.flush_cache); });
  for (std::size_t i = 0; i < size(); ++i) {
    if (prepared_->part(i) == nullptr) continue;
    (void)CatchOutOfMemory([&]() -> Status {  // Left out of the report, at worst.
      prepared_->part(i)->report().flushed_caches = engine_.steps().flushed();
      return {};
    });
  }
  const std::lock_guard lock(mutex_);
  Settle(ReceiverState::kApplied, finished);
  return finished;
}

// State applying. On failure to hold the engine: prepared, as before.
Status ReceiverCore::ApplyPrepared(const ApplyChoices& choices) {
  HearScrubbers();
  if (prepared_->changes_bytes()) {
    const std::uint64_t started = NowInNanoseconds();
    Status closed = CatchOutOfMemory([&] { return engine_.Close(*prepared_, choices); });
    if (!closed.ok()) {
      const std::lock_guard lock(mutex_);
      ++pause_failures_;
      Settle(ReceiverState::kPrepared, closed);
      return closed;
    }
    const std::uint64_t fenced = NowInNanoseconds();
    for (std::size_t i = 0; i < size(); ++i) {
      if (!prepared_->holds(i)) continue;
      UpdateReport& report = prepared_->part(i)->report();
      report.pause_started_ns = started;
      report.fence_completed_ns = fenced;
      report.gate_s = SecondsBetween(started, fenced);
    }
  }
  // Bytes may have changed by then: whatever ends it, they are wrong until they are rebuilt.
  Status applied = CatchOutOfMemory([&] { return engine_.Apply(*prepared_); });
  if (!applied.ok()) {
    const std::lock_guard lock(mutex_);
    ready_ = false;
    ++update_failures_;
    Settle(ReceiverState::kPoisoned, applied);
    return applied;
  }
  return FinishApply(choices);
}

}  // namespace segue
