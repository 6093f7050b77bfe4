// SPDX-License-Identifier: Apache-2.0
//
// Receiver: the states of docs/protocol.md, section 7. Every public call takes its turn by moving
// the state under the mutex; the work itself runs without it, so that status() always answers.
#include "segue/receiver.h"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <mutex>
#include <utility>
#include <vector>

#include "live/bound_weights.h"
#include "live/engine_steps.h"
#include "live/live_environment.h"
#include "live/prepared_update.h"
#include "live/ranks.h"
#include "live/scrubber.h"
#include "live/takeover.h"
#include "store/signed_store.h"
#include "sync/lineage.h"

namespace segue {
namespace {

// A follower that meets errors waits up to this many intervals between two tries.
constexpr int kBackoffMax = 32;

// Why something failed, and, if so, that what it took back is not back.
Status WithOutcomeOf(const Status& taken_back, const Status& failure) {
  return taken_back.ok() ? failure : failure.WithContext(taken_back.message());
}

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

class Receiver::Impl {
 public:
  Impl(ReceiverOptions options, LiveEnvironment& environment)
      : options_(std::move(options)),
        environment_(environment),
        foreground_(environment.MakeDevice(options_.threads)),
        background_(environment.MakeDevice(options_.background_threads)),
        engine_(options_.hooks) {}

  ~Impl() {
    follow_task_.reset();
    prepare_task_.reset();
  }

  Status Start() {
    SEGUE_RETURN_IF_ERROR(OpenStore());
    SEGUE_ASSIGN_OR_RETURN(weights_, HoldWeights(*store_, options_, environment_));
    SEGUE_RETURN_IF_ERROR(PauseAtStart());
    Status taken = TakeOver(*store_, options_, *weights_);
    return LetGoUnless(taken.ok() ? Begin() : taken);
  }

  Status StartBound(BoundModel model) {
    ranks_ = Ranks(model.sum_over_ranks);
    gate_ = std::make_unique<CallbackGate>(std::move(model.close_gate), std::move(model.open_gate));
    Status bound = Bind(model);
    if (!bound.ok()) return ranks_.Agree(Meeting::kBind, 0, bound);
    SEGUE_RETURN_IF_ERROR(
        ProveVersion(*store_, options_, *weights_, ranks_, {}, "the bound weights"));
    SEGUE_RETURN_IF_ERROR(PauseAtStart());
    return LetGoUnless(Begin());
  }

  Status Prepare(const PrepareRequest& request) {
    std::unique_lock lock(mutex_);
    if (state_ == ReceiverState::kPoisoned) return Tainted(message_);
    if (IsBusy()) {
      if (request.session == session_ && !session_.empty()) return {};
      return Unavailable("an update is in progress (session '" + session_ + "', " +
                         std::string(ReceiverStateName(state_)) + ")");
    }
    SEGUE_RETURN_IF_ERROR(CheckRequest(request));
    state_ = ReceiverState::kPreparing;
    session_ = request.session;
    manifest_sha256_ = request.manifest_sha256;
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

  Status Apply(const std::string& session, const ApplyChoices& choices) {
    bool is_rest = false;
    {
      const std::lock_guard lock(mutex_);
      SEGUE_RETURN_IF_ERROR(CheckSession(session));
      SEGUE_RETURN_IF_ERROR(engine_.Check(choices));
      is_rest = state_ == ReceiverState::kApplied && engine_.owes();
      if (!is_rest) {
        if (state_ == ReceiverState::kApplied || state_ == ReceiverState::kResumed) return {};
        if (state_ != ReceiverState::kPrepared) return WrongState("applied");
      }
      state_ = ReceiverState::kApplying;
    }
    return is_rest ? FinishApply(choices) : ApplyPrepared(choices);
  }

  Status Resume(const std::string& session, bool keep_pause) {
    if (keep_pause && !engine_.present()) {
      return Unsupported("keep_pause needs an engine with pause control");
    }
    {
      const std::lock_guard lock(mutex_);
      SEGUE_RETURN_IF_ERROR(CheckSession(session));
      if (state_ == ReceiverState::kResumed) return {};
      if (state_ != ReceiverState::kApplied) return WrongState("resumed");
      if (engine_.owes()) {
        return Unavailable("the apply is not finished at the engine: apply again, first");
      }
      state_ = ReceiverState::kResuming;
    }
    const bool held = prepared_->changes_bytes();
    Status opened = held ? weights_->gate().Open() : Status();
    if (opened.ok() && engine_.paused() && !keep_pause) opened = engine_.Resume();
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
    Settle(ReceiverState::kResumed, {});
    return {};
  }

  Status Abort(const std::string& session) {
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

  Result<UpdateReport> Update(const PrepareRequest& request, const ApplyChoices& choices) {
    SEGUE_RETURN_IF_ERROR(engine_.Check(choices));
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
    Status so_far = CheckTarget(target_version);
    if (so_far.ok()) so_far = engine_.Pause({});
    Status status = LoadCheckpoint(*store_, options_, *weights_, ranks_, so_far);
    if (!status.ok() && weights_->phase() == Phase::kServing) {
      // Nothing was touched: the version held serves on.
      if (engine_.paused()) status = WithOutcomeOf(engine_.CallOff(), status);
      const std::lock_guard lock(mutex_);
      rebuilding_ = false;
      Settle(before, "rebuild failed: " + status.message());
      return status;
    }
    if (scrubber_) scrubber_->Forgive();
    if (status.ok()) status = CatchUp(target_version);
    if (status.ok()) return FinishRebuild();
    weights_->SetPhase(Phase::kPoisoned);
    const std::lock_guard lock(mutex_);
    rebuilding_ = false;
    ready_ = false;
    Settle(ReceiverState::kPoisoned, "rebuild failed: " + status.message());
    return status;
  }

  Status Follow(std::chrono::milliseconds interval) {
    if (ranks_.several()) {
      return InvalidArgument("one of several ranks cannot follow by itself");
    }
    follow_task_ = environment_.Start(
        TaskPriority::kNormal,
        [this, interval](const std::stop_token& stop) { RunFollow(interval, stop); });
    return {};
  }

  Result<std::vector<std::uint64_t>> Versions() const {
    return Lineage::ListVersions(*store_, options_.lineage);
  }

  ReceiverStatus GetStatus() const {
    const LiveVersion held = weights_->version();
    ReceiverStatus status;
    status.name = options_.name;
    status.lineage = held.lineage;
    status.version = held.version;
    status.target_version = held.target_version;
    status.digest = held.digest.ToHex();
    status.plan_digest = weights_->plan().digest().ToHex();
    status.model_bytes = weights_->plan().model_size();
    status.engines = weights_->engine_count();
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
    const bool wrong = scrubber_ && scrubber_->found_fault();
    const Status current = weights_->CheckCurrent();
    status.ready = ready_ && !rebuilding_ && !wrong && current.ok();
    if (!current.ok()) status.message = current.message();
    if (wrong && status.message.empty()) {
      status.message = "a scan found that the live weights are not version " +
                       std::to_string(held.version) + ": rebuild them from the checkpoint";
    }
    return status;
  }

 private:
  Status OpenStore() {
    SEGUE_ASSIGN_OR_RETURN(auto store, environment_.OpenStore(options_.store, /*create=*/false));
    SEGUE_ASSIGN_OR_RETURN(store_, WithKeys(std::move(store), options_.keys));
    return {};
  }

  Status Bind(const BoundModel& model) {
    SEGUE_RETURN_IF_ERROR(OpenStore());
    SEGUE_ASSIGN_OR_RETURN(weights_, BindWeights(*store_, options_, model, *gate_));
    return {};
  }

  Status Begin() {
    SEGUE_RETURN_IF_ERROR(CatchUp({}));
    if (engine_.paused()) SEGUE_RETURN_IF_ERROR(TellEngine());
    if (options_.scrub_rate != 0) {
      scrubber_ = std::make_unique<Scrubber>(*weights_, options_.scrub_rate, environment_);
    }
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

  Status CheckRequest(const PrepareRequest& request) const {
    const LiveVersion held = weights_->version();
    if (request.base_version && *request.base_version != held.version) {
      return VersionMismatch("version " + std::to_string(held.version) + " is held, not base " +
                             std::to_string(*request.base_version));
    }
    // Before the lineage has been seen its plan is not known: CheckPlan() comes again then.
    return knows_plan_ ? CheckPlan(request) : Status();
  }

  Status CheckPlan(const PrepareRequest& request) const {
    const std::string plan = weights_->plan().digest().ToHex();
    if (request.plan_digest.empty() || request.plan_digest == plan) return {};
    return VersionMismatch("the live weights have plan " + plan + ", not " + request.plan_digest);
  }

  // Whether there is such a version, before anything is given up for it.
  Status CheckTarget(std::optional<std::uint64_t> target) {
    if (!target) return {};
    SEGUE_ASSIGN_OR_RETURN(const Lineage lineage, Lineage::Open(*store_, options_.lineage));
    return lineage.Require(*target).status();
  }

  PreparedUpdate::Resources Resources() {
    return {*store_,      *weights_,        *background_,
            *foreground_, options_.staging, options_.background_threads};
  }

  void RunPrepare(const PrepareRequest& request, const std::stop_token& stop) {
    Result<std::unique_ptr<PreparedUpdate>> made = MakeUpdate(request, stop);
    const std::lock_guard lock(mutex_);
    if (stop.stop_requested()) {
      Settle(ReceiverState::kAborted, "aborted by request");
    } else if (made.ok()) {
      prepared_ = std::move(made).value();
      Settle(ReceiverState::kPrepared, {});
    } else {
      failure_ = made.status();
      Settle(ReceiverState::kFailed, failure_.message());
    }
  }

  // All ranks have theirs, and together they prove the base; or none does.
  Result<std::unique_ptr<PreparedUpdate>> MakeUpdate(const PrepareRequest& request,
                                                     const std::stop_token& stop) {
    Result<std::unique_ptr<PreparedUpdate>> made = MakeOwnUpdate(request, stop);
    RankSums sums;
    std::uint64_t target = 0;
    if (made.ok()) {
      sums = made.value()->sums();
      target = made.value()->report().target_version;
    }
    SEGUE_RETURN_IF_ERROR(ranks_.Agree(Meeting::kPrepare, target, made.status(), &sums));
    SEGUE_RETURN_IF_ERROR(made.value()->CheckSums(sums));
    return made;
  }

  Result<std::unique_ptr<PreparedUpdate>> MakeOwnUpdate(const PrepareRequest& request,
                                                        const std::stop_token& stop) {
    SEGUE_ASSIGN_OR_RETURN(
        UpdatePlan plan, PlanUpdate(*store_, options_.lineage, *weights_, request.target_version));
    knows_plan_ = true;
    SEGUE_RETURN_IF_ERROR(CheckPlan(request));
    if (!request.manifest_sha256.empty()) {
      SEGUE_RETURN_IF_ERROR(CheckManifest(plan.target_version, request.manifest_sha256));
    }
    return PreparedUpdate::Make(Resources(), std::move(plan), stop);
  }

  Status CheckManifest(std::uint64_t version, const std::string& expected) {
    const std::string name = object_name::Version(options_.lineage, version);
    SEGUE_ASSIGN_OR_RETURN(const ByteVector json, store_->Get(name, limits::kManifestSizeMax));
    const std::string found = HashSha256(json).ToHex();
    if (found == expected) return {};
    return Corruption("manifest '" + name + "' has SHA-256 " + found + ", expected " + expected);
  }

  // Every rank's gate, or none: where one does not close, the others open again, unless they were
  // closed before and must stay so.
  Status CloseGates(std::uint64_t target, bool reopen) {
    const Status closed = weights_->gate().Close(options_.gate_deadline);
    const Status ready = closed.ok() ? weights_->CheckCurrent() : closed;
    Status agreed = ranks_.Agree(Meeting::kClose, target, ready);
    if (!agreed.ok() && closed.ok() && reopen) SEGUE_RETURN_IF_ERROR(weights_->gate().Open());
    return agreed;
  }

  // Gate closed, unless no byte changes. Tainted: poisoned, at every rank.
  Status ApplyAtAll(PreparedUpdate& update) {
    const Status applied = update.Apply();
    if (!update.changes_bytes()) return applied;
    const Status agreed = ranks_.Agree(Meeting::kApply, update.report().target_version, applied);
    if (agreed.ok()) return agreed;
    weights_->SetPhase(Phase::kPoisoned);
    return Tainted(agreed.message());
  }

  // Engine paused and every gate closed, or as before.
  Status HoldEngine(std::uint64_t target, const ApplyChoices& choices) {
    SEGUE_RETURN_IF_ERROR(engine_.Pause(choices));
    Status closed = CloseGates(target, /*reopen=*/true);
    if (closed.ok()) return closed;
    return WithOutcomeOf(engine_.CallOff(), closed);
  }

  // State applying; the bytes are the target's.
  Status FinishApply(const ApplyChoices& choices) {
    UpdateReport& report = prepared_->report();
    Status finished =
        engine_.Finish(choices.flush_cache && prepared_->changes_bytes(), VersionLabel());
    report.flushed_caches = engine_.flushed();
    const std::lock_guard lock(mutex_);
    Settle(ReceiverState::kApplied, finished.message());
    return finished;
  }

  // What an engine is told, and may key its caches by.
  std::string VersionLabel() const {
    const LiveVersion held = weights_->version();
    return held.lineage + "/" + std::to_string(held.version);
  }

  // At the start and after a rebuild: caches that may be older than the weights go, and it goes on.
  Status TellEngine() {
    SEGUE_RETURN_IF_ERROR(engine_.Finish(/*flush=*/true, VersionLabel()));
    return engine_.Resume();
  }

  // The weights are right; whether the engine knows it.
  Status FinishRebuild() {
    const Status told = TellEngine();
    const std::lock_guard lock(mutex_);
    rebuilding_ = false;
    if (!told.ok()) message_ = "rebuilt, but the engine does not go on: " + told.message();
    return told;
  }

  // An engine that does not pause is taken for one that has not started, unless it is attached.
  Status PauseAtStart() {
    Status paused = engine_.Pause({});
    if (paused.ok() || weights_->engine_count() == 0) return {};
    return paused;
  }

  // A start that failed leaves the engine running, if its weights are a version's.
  Status LetGoUnless(const Status& begun) {
    if (begun.ok() || !engine_.paused() || weights_->phase() != Phase::kServing) return begun;
    return WithOutcomeOf(engine_.CallOff(), begun);
  }

  // State applying. On failure to hold the engine: prepared, as before.
  Status ApplyPrepared(const ApplyChoices& choices) {
    if (prepared_->changes_bytes()) {
      UpdateReport& report = prepared_->report();
      report.pause_started_ns = NowInNanoseconds();
      Status closed = HoldEngine(report.target_version, choices);
      if (!closed.ok()) {
        const std::lock_guard lock(mutex_);
        Settle(ReceiverState::kPrepared, closed.message());
        return closed;
      }
      report.fence_completed_ns = NowInNanoseconds();
      report.gate_s = SecondsBetween(report.pause_started_ns, report.fence_completed_ns);
    }
    Status applied = ApplyAtAll(*prepared_);
    if (!applied.ok()) {
      const std::lock_guard lock(mutex_);
      ready_ = false;
      Settle(ReceiverState::kPoisoned, applied.message());
      return applied;
    }
    return FinishApply(choices);
  }

  // From a proven version to `target`, then opens the gate: at the start and after a rebuild.
  Status CatchUp(std::optional<std::uint64_t> target) {
    SEGUE_ASSIGN_OR_RETURN(const auto versions, Lineage::ListVersions(*store_, options_.lineage));
    std::unique_ptr<PreparedUpdate> update;
    if (!versions.empty() || target) {
      PrepareRequest request;
      request.target_version = target;
      SEGUE_ASSIGN_OR_RETURN(update, MakeUpdate(request, {}));
      if (update->changes_bytes()) {
        SEGUE_RETURN_IF_ERROR(CloseGates(update->report().target_version, !rebuilding_));
      }
      SEGUE_RETURN_IF_ERROR(ApplyAtAll(*update));
    }
    SEGUE_RETURN_IF_ERROR(weights_->gate().Open());
    const std::lock_guard lock(mutex_);
    if (update) last_ = update->report();
    ready_ = true;
    Settle(ReceiverState::kIdle, {});
    return {};
  }

  void RunFollow(std::chrono::milliseconds interval, const std::stop_token& stop) {
    int backoff = 1;
    while (!stop.stop_requested()) {
      backoff = TakeNewest() ? 1 : std::min(backoff * 2, kBackoffMax);
      environment_.Sleep(interval * backoff, stop);
    }
  }

  // False when something went wrong that may be better later.
  bool TakeNewest() {
    const auto versions = Lineage::ListVersions(*store_, options_.lineage);
    if (!versions.ok()) {
      const std::lock_guard lock(mutex_);
      if (!IsBusy() && state_ != ReceiverState::kPoisoned) message_ = versions.status().message();
      return false;
    }
    if (versions->empty()) return true;
    PrepareRequest request;
    request.session = "follow-" + std::to_string(versions->back());
    request.target_version = versions->back();
    if (!FinishFollowed(request.session).ok()) return false;
    if (versions->back() <= weights_->version().version) return true;
    followed_ = request.session;
    return Update(request, {}).ok();
  }

  // What an earlier try of the follower has left half way, because the gate did not close or did
  // not open, is finished, or given up where something newer is to come: nobody else would.
  Status FinishFollowed(const std::string& next) {
    ReceiverState state;
    {
      const std::lock_guard lock(mutex_);
      if (followed_.empty() || session_ != followed_) return {};
      state = state_;
    }
    if (state == ReceiverState::kApplied) {
      SEGUE_RETURN_IF_ERROR(Apply(followed_, {}));  // What is owed to the engine, if anything.
      return Resume(followed_, /*keep_pause=*/false);
    }
    if (state == ReceiverState::kPrepared && followed_ != next) return Abort(followed_);
    return {};
  }

  const ReceiverOptions options_;
  LiveEnvironment& environment_;
  std::unique_ptr<Store> store_;
  std::unique_ptr<Device> foreground_;
  std::unique_ptr<Device> background_;
  std::unique_ptr<Gate> gate_;  // Of bound weights.
  Ranks ranks_;
  // Used by whoever owns `prepared_`, at the start and by a rebuild.
  EngineSteps engine_;
  std::unique_ptr<LiveWeights> weights_;
  std::unique_ptr<Scrubber> scrubber_;
  std::atomic<bool> knows_plan_{false};  // The weights have the lineage's plan.

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  ReceiverState state_ = ReceiverState::kIdle;
  bool ready_ = false;
  bool rebuilding_ = false;
  std::string message_;
  std::string session_;
  std::string manifest_sha256_;
  Status failure_;
  UpdateReport last_;

  // Owned by whoever moved the state to preparing, applying or resuming.
  std::unique_ptr<PreparedUpdate> prepared_;

  std::unique_ptr<BackgroundTask> prepare_task_;
  std::unique_ptr<BackgroundTask> follow_task_;
  std::string followed_;  // The session that the follower began last; its own.
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
Status Receiver::Follow(std::chrono::milliseconds interval) { return impl_->Follow(interval); }
Result<std::vector<std::uint64_t>> Receiver::Versions() const { return impl_->Versions(); }
ReceiverStatus Receiver::status() const { return impl_->GetStatus(); }

}  // namespace segue
