// SPDX-License-Identifier: Apache-2.0
//
// Host.
#include "sim/host.h"

#include <cstring>
#include <utility>

#include "base/check.h"
#include "base/file.h"
#include "sim/engine.h"

namespace segue::sim {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kLookTimeMax(40);
constexpr milliseconds kRetryTimeMax(60);
constexpr milliseconds kGateDeadline(50);
// Looks at a receiver that cannot follow before the operator steps in.
constexpr unsigned kStuckLooksMax = 12;
constexpr unsigned kRefusalsMax = 4;

bool CannotFollow(StatusCode code) {
  return code == StatusCode::kVersionMismatch || code == StatusCode::kNotFound;
}

}  // namespace

Host::Host(Site& site, unsigned number)
    : site_(site),
      world_(site.world),
      name_("engine-" + std::to_string(number)),
      bound_(world_.Below(4) == 0),
      further_(!bound_ && world_.Below(3) == 0 ? name_ + "-twin" : ""),
      follow_(world_.Below(2) == 0),
      scrub_(world_.Below(3) == 0),
      checkpoint_(site.oracle.Find(0)) {}

SimSegment* Host::segment() { return bound_ ? own_.get() : site_.memory.Find(name_); }

std::vector<SimSegment*> Host::segments() {
  std::vector<SimSegment*> all = {segment(),
                                  further_.empty() ? nullptr : site_.memory.Find(further_)};
  std::erase(all, nullptr);
  return all;
}

std::vector<test::Model> Host::Copies() {
  std::vector<test::Model> copies;
  for (SimSegment* const one : segments()) copies.push_back(one->Copy());
  return copies;
}

ReceiverOptions Host::Options() const {
  ReceiverOptions options;
  options.store = kStoreUrl;
  options.lineage = kLineageName;
  options.checkpoint = checkpoint_->directory;
  options.name = name_;
  options.staging = JoinPath(site_.directory(), "staging");
  options.threads = 1;
  options.background_threads = 1;
  options.gate_deadline = kGateDeadline;
  options.scrub_rate = scrub_ ? 1u << 20 : 0;
  options.rebuild = rebuild_;
  // Where it stays at what it finds, that is what an update has put together, or there is a mix.
  if (!further_.empty()) options.catch_up = world_.Chance(0.5);
  return options;
}

void Host::Run(Process& process) {
  receiver_ = nullptr;
  SimEnvironment environment(world_, site_.store, site_.memory, NoObserver,
                             [this](const std::byte* place) {
                               for (SimSegment* const one : segments()) {
                                 if (one->Has(place)) return one;
                               }
                               return segment();
                             });
  if (bound_) {
    own_ = std::make_unique<SimSegment>(name_, site_.plan, kLineageName);
    FillBound();
    if (!world_.Sabotaged(Sabotage::kLateRot)) {
      world_.Start(process, "reader", [this, &process] { ReadBound(process); });
    }
  }
  const std::unique_ptr<Receiver> apart = OpenApart(environment);
  for (;;) {
    const std::unique_ptr<Receiver> receiver = Open(environment);
    // Forgotten before it is destroyed, however that comes about.
    struct Forget {
      Receiver*& pointer;
      ~Forget() { pointer = nullptr; }
    } forget{receiver_};
    receiver_ = receiver.get();
    Operate(*receiver);
  }
}

// Null, but where that is the sabotage.
std::unique_ptr<Receiver> Host::OpenApart(SimEnvironment& environment) {
  if (further_.empty() || !world_.Sabotaged(Sabotage::kApart)) return nullptr;
  ReceiverOptions options = Options();
  options.name = further_;
  auto opened = ReceiverInternals::Open(options, environment);
  if (opened.ok()) SEGUE_CHECK(opened.value()->Follow(milliseconds(9)).ok());
  return opened.ok() ? std::move(opened).value() : nullptr;
}

std::unique_ptr<Receiver> Host::Open(SimEnvironment& environment) {
  ++site_.takeovers;
  for (unsigned failures = 0;;) {
    auto opened = TryOpen(environment);
    world_.Note("open receiver", opened.status());
    if (opened.ok()) {
      rebuild_ = false;
      return std::move(opened).value();
    }
    const StatusCode code = opened.status().code();
    if (code == StatusCode::kTainted) rebuild_ = true;
    if (code == StatusCode::kTainted || CannotFollow(code)) ++failures;
    if (failures > 3) TakeFreshCheckpoint();
    world_.Sleep(world_.UpTo(kRetryTimeMax));
  }
}

Result<std::unique_ptr<Receiver>> Host::TryOpen(SimEnvironment& environment) {
  if (!further_.empty() && !world_.Sabotaged(Sabotage::kApart)) {
    return ReceiverInternals::OpenPair(Options(), further_, environment);
  }
  if (!bound_) return ReceiverInternals::Open(Options(), environment);
  BoundModel model;
  const MutableModelView view = own_->view();
  for (std::size_t t = 0; t < site_.plan.tensors().size(); ++t) {
    const PlanTensor& tensor = site_.plan.tensors()[t];
    model.tensors.push_back({tensor.spec.name, std::string(DtypeName(tensor.spec.dtype)),
                             tensor.spec.shape, view.Tensor(t), tensor.size});
  }
  const auto fails = [this] { return world_.Fault(world_.rates().gate_fails); };
  const Status failure = Unavailable("the engine's control does not answer");
  model.close_gate = [=, this](milliseconds deadline) {
    return fails() ? failure : SimGate(world_, *own_).Close(deadline);
  };
  model.open_gate = [=, this] { return fails() ? failure : SimGate(world_, *own_).Open(); };
  return ReceiverInternals::Open(Options(), std::move(model), environment);
}

void Host::TakeFreshCheckpoint() {
  checkpoint_ = site_.oracle.models().rbegin()->second;
  rebuild_ = true;
  world_.Note("operator brings the checkpoint of version " + std::to_string(site_.oracle.newest()));
  if (bound_) FillBound();
}

// As an engine loads its weights by itself.
void Host::FillBound() {
  while (!SimGate(world_, *own_).Close(kGateDeadline).ok()) {
  }
  const MutableModelView view = own_->view();
  for (std::size_t t = 0; t < site_.plan.tensors().size(); ++t) {
    const std::uint64_t size = site_.plan.tensors()[t].size;
    if (size != 0) std::memcpy(view.Tensor(t), checkpoint_->model.view().Tensor(t), size);
  }
}

void Host::ReadBound(Process& process) {
  const Process* const self = &process;
  own_->engines[0] = self;
  const auto reported = [this]() -> std::optional<std::uint64_t> {
    if (receiver_ == nullptr) return std::nullopt;
    return receiver_->status().version;
  };
  for (;;) {
    ReadOnce(site_, *own_, 0, reported, process.name());
    world_.Sleep(world_.UpTo(milliseconds(6)));
  }
}

void Host::Operate(Receiver& receiver) {
  if (follow_) SEGUE_CHECK(receiver.Follow(milliseconds(2 + world_.Below(30))).ok());
  stuck_looks_ = refusals_ = 0;
  for (;;) {
    world_.Sleep(world_.UpTo(kLookTimeMax));
    const ReceiverStatus status = receiver.status();
    Check(status);
    if (IsStuck(status)) {
      if (!Rebuild(receiver)) return;
      continue;
    }
    FinishOwn(receiver, status);
    if (!follow_ || (!site_.ending && world_.Chance(0.2))) Act(receiver);
    if (!site_.ending && world_.Chance(0.02)) return;
  }
}

bool Host::IsStuck(const ReceiverStatus& status) {
  if (status.state == ReceiverState::kPoisoned) return true;
  const bool failing = status.state == ReceiverState::kFailed;
  stuck_looks_ = failing ? stuck_looks_ + 1 : 0;
  return stuck_looks_ > kStuckLooksMax || refusals_ > kRefusalsMax;
}

bool Host::Rebuild(Receiver& receiver) {
  ++site_.rebuilds;
  stuck_looks_ = refusals_ = 0;
  const Status status = receiver.Rebuild({});
  world_.Note("rebuild", status);
  if (status.ok() || !CannotFollow(status.code())) return true;
  TakeFreshCheckpoint();
  return false;
}

PrepareRequest Host::Request() {
  PrepareRequest request;
  request.session = "operator-" + std::to_string(sessions_++);
  if (!site_.ending && world_.Chance(0.3)) {
    request.target_version = world_.Below(site_.oracle.newest() + 2);
  }
  return request;
}

void Host::Act(Receiver& receiver) {
  PrepareRequest request = Request();
  const std::uint64_t kind = site_.ending ? 0 : world_.Below(9);
  if (kind < 4) {
    const Status status =
        Checked(receiver, "update", [&] { return receiver.Update(request).status(); });
    if (status.ok()) ++site_.updates;
    if (!request.target_version) refusals_ = CannotFollow(status.code()) ? refusals_ + 1 : 0;
  } else if (kind < 6) {
    ActByPieces(receiver, request);
  } else if (kind == 6) {
    request.base_version = receiver.status().version + 1000;
    const Status status =
        Checked(receiver, "wrong base", [&] { return receiver.Prepare(request); });
    if (status.ok()) world_.Violate("refusal", "a prepare from another base was accepted");
  } else if (kind == 7) {
    (void)Checked(receiver, "clear", [&] { return receiver.Clear(); });
  } else {
    (void)Checked(receiver, "wrong session", [&] { return receiver.Apply("nobody's"); });
  }
}

void Host::ActByPieces(Receiver& receiver, const PrepareRequest& request) {
  const std::string& session = request.session;
  if (!Checked(receiver, "prepare", [&] { return receiver.Prepare(request); }).ok()) return;
  world_.Sleep(world_.UpTo(milliseconds(10)));
  if (world_.Chance(0.3)) {
    (void)Checked(receiver, "abort", [&] { return receiver.Abort(session); });
    return;
  }
  if (!Checked(receiver, "wait", [&] { return receiver.WaitPrepared(); }).ok()) return;
  world_.Sleep(world_.UpTo(milliseconds(10)));
  if (!Checked(receiver, "apply", [&] { return receiver.Apply(session); }).ok()) return;
  world_.Sleep(world_.UpTo(milliseconds(10)));
  (void)Checked(receiver, "resume", [&] { return receiver.Resume(session); });
}

// What a call of the operator's has left half done, for example because the gate did not close.
void Host::FinishOwn(Receiver& receiver, const ReceiverStatus& status) {
  if (status.session.compare(0, 9, "operator-") != 0) return;
  if (status.state == ReceiverState::kPrepared) {
    if (world_.Chance(0.5)) {
      (void)Checked(receiver, "abort", [&] { return receiver.Abort(status.session); });
    } else {
      (void)Checked(receiver, "apply", [&] { return receiver.Apply(status.session); });
    }
  } else if (status.state == ReceiverState::kApplied) {
    (void)Checked(receiver, "resume", [&] { return receiver.Resume(status.session); });
  }
}

Status Host::Checked(Receiver& receiver, const char* what, const Call& call) {
  const std::uint64_t version = receiver.status().version;
  const std::vector<test::Model> before = Copies();
  Status status = call();
  world_.Note(what, status);
  // A follower moves on by itself meanwhile.
  if (follow_ || status.ok() || status.code() == StatusCode::kTainted) return status;
  const ReceiverStatus after = receiver.status();
  // The one failure that comes after the point of no return: the gate did not open.
  if (after.state == ReceiverState::kApplied) return status;
  if (after.version != version) {
    world_.Violate("refusal", std::string(what) + " failed and moved the version");
  } else if (!(Copies() == before)) {
    world_.Violate("refusal", std::string(what) + " failed and changed the weights");
  }
  return status;
}

void Host::Check(const ReceiverStatus& status) {
  if (status.scrub_faults != 0) world_.Violate("scrub", name_ + ": a scrub found a fault");
  if (status.state == ReceiverState::kPoisoned && status.ready) {
    world_.Violate("ready", name_ + " is poisoned and ready");
  }
  std::string what;
  for (SimSegment* const one : segments()) {
    if (status.ready && !segment()->closed() && !one->closed() &&
        !site_.oracle.Agrees(status.version, ReadOnly(one->view()), what)) {
      world_.Violate("status", one->name() + " is ready: " + what);
    }
  }
}

bool Host::HasConverged(std::string& why) {
  if (receiver_ == nullptr) {
    why = name_ + " has no receiver";
    return false;
  }
  const ReceiverStatus status = receiver_->status();
  if (!status.ready || status.version != site_.oracle.newest() || segment()->closed()) {
    why = name_ + " is " + std::string(ReceiverStateName(status.state)) + " (session '" +
          status.session + "') at version " + std::to_string(status.version) +
          (status.ready ? "" : ", not ready") + (segment()->closed() ? ", gate closed" : "") +
          (follow_ ? ", follows: " : ": ") + status.message;
    return false;
  }
  for (SimSegment* const one : segments()) {
    if (one->closed()) why = "the gate of " + one->name() + " is closed";
    if (one->closed() || !site_.oracle.Agrees(status.version, ReadOnly(one->view()), why)) {
      return false;
    }
  }
  return true;
}

}  // namespace segue::sim
