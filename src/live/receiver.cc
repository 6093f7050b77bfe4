// SPDX-License-Identifier: Apache-2.0
//
// Receiver: the states of docs/protocol.md, section 7. Every public call takes its turn by moving
// the state under the mutex; the work itself (live/live_engine.h) runs without it, so that status()
// always answers.
#include "segue/receiver.h"

#include <condition_variable>
#include <mutex>
#include <utility>
#include <vector>

#include "live/follower.h"
#include "live/live_engine.h"
#include "live/live_environment.h"
#include "live/scrubber.h"
#include "sync/lineage.h"

namespace segue {
namespace {

double SecondsBetween(std::uint64_t from_ns, std::uint64_t to_ns) {
  return static_cast<double>(to_ns - from_ns) * 1e-9;
}

}  // namespace

std::string_view ReceiverStateName(ReceiverState state) {
  switch (state) {
    case ReceiverState::kIdle: return "IDLE";
    case ReceiverState::kPreparing: return "PREPARING";
    case ReceiverState::kPrepared: return "PREPARED";
    case ReceiverState::kApplying: return "APPLYING";
    case ReceiverState::kApplied: return "APPLIED";
    case ReceiverState::kResuming: return "RESUMING";
    case ReceiverState::kResumed: return "RESUMED";
    case ReceiverState::kFailed: return "FAILED";
    case ReceiverState::kAborted: return "ABORTED";
    case ReceiverState::kPoisoned: return "POISONED";
  }
  return "UNKNOWN";
}

class Receiver::Impl : public Followed {
 public:
  Impl(ReceiverOptions options, LiveEnvironment& environment)
      : environment_(environment), engine_(std::move(options), environment) {}

  ~Impl() override {
    follow_task_.reset();
    prepare_task_.reset();
  }

  Status Start() {
    SEGUE_RETURN_IF_ERROR(engine_.Hold());
    return Begin();
  }

  Status StartBound(BoundModel model) {
    SEGUE_RETURN_IF_ERROR(engine_.HoldBound(std::move(model)));
    return Begin();
  }

  Status Prepare(const PrepareRequest& request) {
    std::unique_lock lock(mutex_);
    if (state_ == ReceiverState::kPoisoned) return Tainted(message_);
    if (IsBusy()) {
      if (request.session == session_ && !session_.empty()) return {};
      return Unavailable("an update is in progress (session '" + session_ + "', " +
                         std::string(ReceiverStateName(state_)) + ")");
    }
    SEGUE_RETURN_IF_ERROR(engine_.CheckRequest(request));
    state_ = ReceiverState::kPreparing;
    session_ = request.session;
    manifest_sha256_ = request.manifest_sha256;
    base_version_ = weights().version().version;
    target_version_ = request.target_version.value_or(0);
    message_.clear();
    prepared_.reset();
    // The task before has ended or is about to: its state is no longer PREPARING.
    prepare_task_.reset();
    prepare_task_ = environment_.Start(
        TaskPriority::kLow,
        [this, request](const std::stop_token& stop) { RunPrepare(request, stop); });
    return {};
  }

  Status WaitPrepared() {
    std::unique_lock lock(mutex_);
    AwaitPrepared(lock);
    return Outcome();
  }

  Status Apply(const std::string& session, const ApplyChoices& choices) override {
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

  Status Resume(const std::string& session, bool keep_pause) override {
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
    const bool held = prepared_->changes_bytes();
    Status opened = held ? weights().gate().Open() : Status();
    if (opened.ok() && engine_.steps().paused() && !keep_pause) opened = engine_.steps().Resume();
    UpdateReport& report = prepared_->report();
    if (held) {
      report.resumed_ns = NowInNanoseconds();
      report.pause_s = SecondsBetween(report.pause_started_ns, report.resumed_ns);
    }
    const std::lock_guard lock(mutex_);
    if (!opened.ok()) {
      state_ = ReceiverState::kApplied;
      message_ = opened.message();
      return opened;
    }
    last_ = report;
    prepared_.reset();
    ready_ = true;
    Settle(ReceiverState::kResumed, {});
    return {};
  }

  Status Abort(const std::string& session) override {
    std::unique_lock lock(mutex_);
    SEGUE_RETURN_IF_ERROR(CheckSession(session));
    if (state_ == ReceiverState::kPreparing) {
      prepare_task_->RequestStop();
      AwaitPrepared(lock);
    }
    switch (state_) {
      case ReceiverState::kPrepared:
        prepared_.reset();
        Settle(ReceiverState::kAborted, "aborted by request");
        return {};
      case ReceiverState::kIdle:
      case ReceiverState::kFailed:
      case ReceiverState::kAborted: return {};
      default: return WrongState("aborted");
    }
  }

  Status Clear() {
    const std::lock_guard lock(mutex_);
    if (IsBusy()) return WrongState("cleared");
    if (state_ == ReceiverState::kPoisoned) return Tainted(message_);
    session_.clear();
    Settle(ReceiverState::kIdle, {});
    return {};
  }

  Result<UpdateReport> Update(const PrepareRequest& request, const ApplyChoices& choices) override {
    SEGUE_RETURN_IF_ERROR(engine_.steps().Check(choices));
    SEGUE_RETURN_IF_ERROR(Prepare(request));
    SEGUE_RETURN_IF_ERROR(WaitPrepared());
    SEGUE_RETURN_IF_ERROR(Apply(request.session, choices));
    SEGUE_RETURN_IF_ERROR(Resume(request.session, /*keep_pause=*/false));
    const std::lock_guard lock(mutex_);
    return last_;
  }

  Status Rebuild(std::optional<std::uint64_t> target_version) {
    ReceiverState before;
    {
      const std::lock_guard lock(mutex_);
      if (IsBusy()) return WrongState("rebuilt");
      before = std::exchange(state_, ReceiverState::kApplying);
      session_ = "rebuild";
      rebuilding_ = true;
    }
    Status so_far = engine_.CheckRebuild(target_version);
    if (so_far.ok()) so_far = engine_.Pause();
    Status status = engine_.Load(so_far);
    if (!status.ok() && weights().phase() == Phase::kServing) {
      // Nothing was touched: the version held serves on.
      if (engine_.steps().paused()) status = WithOutcomeOf(engine_.steps().CallOff(), status);
      return EndRebuild(before, status);
    }
    if (scrubber_) scrubber_->Forgive();
    if (status.ok()) status = CatchUp(target_version, /*reopen=*/false);
    if (status.ok()) return FinishRebuild();
    weights().SetPhase(Phase::kPoisoned);
    return EndRebuild(ReceiverState::kPoisoned, status);
  }

  Status Release() {
    std::string session;
    ReceiverState state;
    {
      const std::lock_guard lock(mutex_);
      session = session_;
      state = state_;
    }
    follow_task_.reset();
    if (state == ReceiverState::kPreparing || state == ReceiverState::kPrepared) {
      return Abort(session);
    }
    if (state != ReceiverState::kApplied) return {};
    SEGUE_RETURN_IF_ERROR(Apply(session, {}));  // What is owed to the engine, if anything.
    return Resume(session, /*keep_pause=*/false);
  }

  Status Follow(std::chrono::milliseconds interval) {
    if (engine_.has_ranks()) {
      return InvalidArgument("one of several ranks cannot follow by itself");
    }
    follow_task_.reset();
    follow_task_ =
        environment_.Start(TaskPriority::kNormal, [this, interval](const std::stop_token& stop) {
          follower_.Run(environment_, interval, stop);
        });
    return {};
  }

  Result<std::vector<std::uint64_t>> Versions() const override {
    return Lineage::ListVersions(engine_.store(), engine_.options().lineage);
  }

  std::uint64_t held_version() const override { return weights().version().version; }

  ReceiverState StateOf(const std::string& session) const override {
    const std::lock_guard lock(mutex_);
    return session == session_ ? state_ : ReceiverState::kIdle;
  }

  void NoteTrouble(const Status& status) override {
    const std::lock_guard lock(mutex_);
    if (!IsBusy() && state_ != ReceiverState::kPoisoned) message_ = status.message();
  }

  ReceiverStatus GetStatus() const {
    const LiveVersion held = weights().version();
    ReceiverStatus status;
    status.name = engine_.options().name;
    status.lineage = held.lineage;
    status.version = held.version;
    status.digest = held.digest.ToHex();
    status.plan_digest = weights().plan().digest().ToHex();
    status.model_bytes = weights().plan().model_size();
    status.engines = weights().engine_count();
    status.applied_count = held.applied_count;
    if (scrubber_) {
      status.scrub_passes = scrubber_->passes();
      status.scrub_faults = scrubber_->faults();
    }
    const std::lock_guard lock(mutex_);
    status.state = state_;
    status.message = message_;
    status.session = session_;
    status.manifest_sha256 = manifest_sha256_;
    status.last = last_;
    status.failure = Outcome().code();
    status.base_version = base_version_.value_or(held.version);
    status.target_version = target_version_.value_or(held.version);
    const Status why_not = CheckReady();
    status.ready = why_not.ok();
    if (!why_not.ok() && !why_not.message().empty()) status.message = why_not.message();
    return status;
  }

 private:
  // Lock held. Not OK without a message: `message_` has the reason.
  Status CheckReady() const {
    SEGUE_RETURN_IF_ERROR(weights().CheckCurrent());
    if (scrubber_ && scrubber_->found_fault()) return engine_.Wrong();
    SEGUE_RETURN_IF_ERROR(engine_.CheckHealth());
    if (!ready_) return Unavailable(message_);
    if (rebuilding_) return Unavailable("the weights are being rebuilt");
    const bool holds = state_ == ReceiverState::kApplying || state_ == ReceiverState::kApplied ||
                       state_ == ReceiverState::kResuming;
    if (!holds || !prepared_ || !prepared_->changes_bytes()) return {};
    return Unavailable(message_.empty() ? "the gate is closed until the update is resumed"
                                        : message_);
  }

  // What its scans find counts in every update.
  void HearScrubber() {
    if (scrubber_ && scrubber_->found_fault()) engine_.MarkWrong();
  }

  LiveWeights& weights() const { return engine_.weights(); }

  Status Begin() {
    const auto wanted = engine_.options().version;
    const std::uint64_t held = weights().version().version;
    if (wanted && held > *wanted) {
      return engine_.LetGoUnless(
          VersionMismatch("version " + std::to_string(*wanted) +
                          " is asked for, the live weights are at " + std::to_string(held) +
                          ": Segue only goes forward; rebuild them from the checkpoint "
                          "(--rebuild)"));
    }
    if (engine_.options().catch_up) {
      SEGUE_RETURN_IF_ERROR(engine_.LetGoUnless(CatchUp(wanted, /*reopen=*/true)));
    }
    SEGUE_RETURN_IF_ERROR(engine_.LetGo());
    {
      const std::lock_guard lock(mutex_);
      ready_ = true;
    }
    const std::uint64_t rate = engine_.options().scrub_rate;
    if (rate != 0) scrubber_ = std::make_unique<Scrubber>(weights(), rate, environment_);
    return {};
  }

  std::uint64_t NowInNanoseconds() {
    const auto now = environment_.Now().time_since_epoch();
    return static_cast<std::uint64_t>(std::chrono::nanoseconds(now).count());
  }

  void AwaitPrepared(std::unique_lock<std::mutex>& lock) {
    environment_.Await(lock, changed_, [this] { return state_ != ReceiverState::kPreparing; });
  }

  // An update that is under way: another one must wait.
  bool IsBusy() const {
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

  Status CheckSession(const std::string& session) const {
    if (session == session_) return {};
    return InvalidArgument("session '" + session + "' is not the current one, '" + session_ + "'");
  }

  Status WrongState(const char* verb) const {
    if (state_ == ReceiverState::kPoisoned) return Tainted(message_);
    return Unavailable(std::string("an update that is ") + std::string(ReceiverStateName(state_)) +
                       " cannot be " + verb);
  }

  // Lock held: what a finished prepare came to.
  Status Outcome() const {
    switch (state_) {
      case ReceiverState::kFailed: return failure_;
      case ReceiverState::kAborted: return Unavailable(message_);
      case ReceiverState::kPoisoned: return Tainted(message_);
      default: return {};
    }
  }

  // Lock held: the end of something.
  void Settle(ReceiverState state, std::string message) {
    state_ = state;
    message_ = std::move(message);
    changed_.notify_all();
  }

  void RunPrepare(const PrepareRequest& request, const std::stop_token& stop) {
    HearScrubber();
    Result<std::unique_ptr<PreparedUpdate>> made = engine_.MakeUpdate(request, stop);
    const std::lock_guard lock(mutex_);
    if (stop.stop_requested()) {
      Settle(ReceiverState::kAborted, "aborted by request");
    } else if (made.ok()) {
      prepared_ = std::move(made).value();
      base_version_ = prepared_->report().base_version;
      target_version_ = prepared_->report().target_version;
      Settle(ReceiverState::kPrepared, {});
    } else {
      failure_ = made.status();
      Settle(ReceiverState::kFailed, failure_.message());
    }
  }

  // State applying; the bytes are the target's.
  Status FinishApply(const ApplyChoices& choices) {
    Status finished = engine_.Finish(choices.flush_cache);
    prepared_->report().flushed_caches = engine_.steps().flushed();
    const std::lock_guard lock(mutex_);
    Settle(ReceiverState::kApplied, finished.message());
    return finished;
  }

  // A rebuild that failed, and what it leaves.
  Status EndRebuild(ReceiverState state, const Status& status) {
    const std::lock_guard lock(mutex_);
    rebuilding_ = false;
    if (state == ReceiverState::kPoisoned) ready_ = false;
    Settle(state, "rebuild failed: " + status.message());
    return status;
  }

  // The weights are right; whether the engine knows it. If not, it stays paused, until an update
  // (of nothing, say) does the rest.
  Status FinishRebuild() {
    const Status told = engine_.LetGo();
    const std::lock_guard lock(mutex_);
    rebuilding_ = false;
    ready_ = told.ok();
    Settle(ReceiverState::kIdle,
           told.ok() ? "" : "rebuilt, but the engine does not go on: " + told.message());
    return told;
  }

  // State applying. On failure to hold the engine: prepared, as before.
  Status ApplyPrepared(const ApplyChoices& choices) {
    HearScrubber();
    if (prepared_->changes_bytes()) {
      UpdateReport& report = prepared_->report();
      report.pause_started_ns = NowInNanoseconds();
      Status closed = engine_.Close(report.target_version, choices);
      if (!closed.ok()) {
        const std::lock_guard lock(mutex_);
        Settle(ReceiverState::kPrepared, closed.message());
        return closed;
      }
      report.fence_completed_ns = NowInNanoseconds();
      report.gate_s = SecondsBetween(report.pause_started_ns, report.fence_completed_ns);
    }
    Status applied = engine_.Apply(*prepared_);
    if (!applied.ok()) {
      const std::lock_guard lock(mutex_);
      ready_ = false;
      Settle(ReceiverState::kPoisoned, applied.message());
      return applied;
    }
    return FinishApply(choices);
  }

  // At the start and after a rebuild: the weights are a proven version's.
  Status CatchUp(std::optional<std::uint64_t> target, bool reopen) {
    SEGUE_ASSIGN_OR_RETURN(std::optional<UpdateReport> report, engine_.CatchUp(target, reopen));
    if (!report) return {};
    const std::lock_guard lock(mutex_);
    last_ = *std::move(report);
    base_version_ = last_.base_version;
    target_version_ = last_.target_version;
    return {};
  }

  LiveEnvironment& environment_;
  // Its steps are for whoever owns `prepared_`, for the start and for a rebuild.
  LiveEngine engine_;
  std::unique_ptr<Scrubber> scrubber_;

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  ReceiverState state_ = ReceiverState::kIdle;
  bool ready_ = false;
  bool rebuilding_ = false;
  std::string message_;
  std::string session_;
  std::string manifest_sha256_;
  std::optional<std::uint64_t> base_version_;  // Of the update that runs or ran last.
  std::optional<std::uint64_t> target_version_;
  Status failure_;
  UpdateReport last_;

  // Owned by whoever moved the state to preparing, applying or resuming.
  std::unique_ptr<PreparedUpdate> prepared_;

  std::unique_ptr<BackgroundTask> prepare_task_;
  Follower follower_{*this};
  std::unique_ptr<BackgroundTask> follow_task_;
};

Status RemoveSegment(const std::string& name) { return Segment::Remove(name); }

Result<std::unique_ptr<Receiver>> Receiver::Open(const ReceiverOptions& options) {
  return ReceiverInternals::Open(options, SystemLiveEnvironment());
}

Result<std::unique_ptr<Receiver>> Receiver::Open(const ReceiverOptions& options, BoundModel model) {
  return ReceiverInternals::Open(options, std::move(model), SystemLiveEnvironment());
}

Result<std::unique_ptr<Receiver>> ReceiverInternals::Open(const ReceiverOptions& options,
                                                          LiveEnvironment& environment) {
  auto impl = std::make_unique<Receiver::Impl>(options, environment);
  SEGUE_RETURN_IF_ERROR(impl->Start());
  return std::unique_ptr<Receiver>(new Receiver(std::move(impl)));
}

Result<std::unique_ptr<Receiver>> ReceiverInternals::Open(const ReceiverOptions& options,
                                                          BoundModel model,
                                                          LiveEnvironment& environment) {
  auto impl = std::make_unique<Receiver::Impl>(options, environment);
  SEGUE_RETURN_IF_ERROR(impl->StartBound(std::move(model)));
  return std::unique_ptr<Receiver>(new Receiver(std::move(impl)));
}

Receiver::Receiver(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Receiver::~Receiver() = default;

Status Receiver::Prepare(const PrepareRequest& request) { return impl_->Prepare(request); }
Status Receiver::WaitPrepared() { return impl_->WaitPrepared(); }
Status Receiver::Apply(const std::string& session, const ApplyChoices& choices) {
  return impl_->Apply(session, choices);
}
Status Receiver::Resume(const std::string& session, bool keep_pause) {
  return impl_->Resume(session, keep_pause);
}
Status Receiver::Abort(const std::string& session) { return impl_->Abort(session); }
Status Receiver::Clear() { return impl_->Clear(); }
Result<UpdateReport> Receiver::Update(const PrepareRequest& request, const ApplyChoices& choices) {
  return impl_->Update(request, choices);
}
Status Receiver::Rebuild(std::optional<std::uint64_t> target_version) {
  return impl_->Rebuild(target_version);
}
Status Receiver::Release() { return impl_->Release(); }
Status Receiver::Follow(std::chrono::milliseconds interval) { return impl_->Follow(interval); }
Result<std::vector<std::uint64_t>> Receiver::Versions() const { return impl_->Versions(); }
ReceiverStatus Receiver::status() const { return impl_->GetStatus(); }

}  // namespace segue
