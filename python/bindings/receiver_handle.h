// SPDX-License-Identifier: Apache-2.0
//
// HandleOf: a receiver, or a group of them, that can be closed while other threads use it. close()
// waits for calls that are under way and releases the engine; calls that come later are refused. In
// a child made by fork, which has not got the receiver's threads, all are.
//
// What must hold: no thread waits for itself. The receiver's end joins its own threads, and these
// run Python (callbacks, and whatever the garbage collector runs there), so close() is refused from
// inside any call or callback of the receiver, and where the last reference goes there, another
// thread ends it. So it does where the garbage collector finds it: that runs in the middle of
// anything, maybe with a lock held that a callback needs.
#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "bindings/callback.h"
#include "bindings/interpreter.h"
#include "segue/receiver_group.h"
#include "segue/step_gate.h"

namespace segue::python {

// What a call has to do with exceptions that callbacks raised.
struct CallTraits {
  // It begins something in the receiver's own threads: what they raised before is forgotten.
  bool begins = false;
  // It waits for these: what was raised there is the cause of its failure.
  bool waits = false;
  // It fails with whatever was raised in its thread, not with interrupts alone, though it went
  // well.
  bool raises_all = false;
  // It waits for the store itself, until Ctrl-C.
  bool asks_store = false;
};
inline constexpr CallTraits kPlainCall{};
inline constexpr CallTraits kListingCall{.asks_store = true};
inline constexpr CallTraits kRebuildingCall{.begins = true, .waits = true, .asks_store = true};
inline constexpr CallTraits kWaitingCall{.waits = true};
inline constexpr CallTraits kUpdatingCall{.begins = true, .waits = true};
inline constexpr CallTraits kAskingCall{.raises_all = true};

// `Kind`: Receiver or ReceiverGroup.
template <typename Kind>
class HandleOf {
 public:
  // What must live as long as the receiver: its callbacks point there.
  struct Parts {
    std::shared_ptr<RaisedInCallback> raised = std::make_shared<RaisedInCallback>();
    std::shared_ptr<std::atomic<bool>> closing = std::make_shared<std::atomic<bool>>(false);
    std::vector<std::shared_ptr<StepGate>> gates = {};  // By lineage.
    HeldCallables callables = {};
    std::function<void()> stop = {};  // Of the engine's hooks; may be unset.
  };

  HandleOf(std::unique_ptr<Kind> receiver, Parts parts)
      : parts_(std::move(parts)), receiver_(std::move(receiver)) {}
  ~HandleOf();
  HandleOf(const HandleOf&) = delete;
  HandleOf& operator=(const HandleOf&) = delete;

  // Runs `call(receiver)` without the lock and raises what it fails with.
  template <typename Call>
  auto Use(Call call, CallTraits traits = kPlainCall) {
    CallFrame frame(parts_.raised.get(), CallFrame::Kind::kCall);
    if (traits.begins) parts_.raised->Clear();
    std::optional<EndsOnSignal> until_signal;
    if (traits.asks_store) until_signal.emplace(parts_.raised.get());
    auto outcome = [&]() -> decltype(call(*receiver_)) {
      const WithoutGil released;
      const CallCount count(*this);
      SEGUE_RETURN_IF_ERROR(count.status());
      return call(*receiver_);
    }();
    if (outcome.ok()) RaiseKept(frame.raised(), traits.raises_all);
    const bool is_other = traits.waits && !frame.raised().has_any();
    return OrRaise(std::move(outcome), is_other ? parts_.raised.get() : &frame.raised());
  }
  // InvalidArgument in the receiver's own threads, where `what` would wait for its end.
  void RefuseInOwnThread(const char* what) const;
  // Waits for a prepare; Ctrl-C aborts it. For calls of Use, in the main thread.
  Status WaitPreparedOrSignal(Kind& receiver, const std::string& session);
  // InvalidArgument where it would wait for itself. What the engine could not be told at the end is
  // raised, and closed is it then too.
  void Close();
  // As Receiver::CheckWeights(), for each step; under the interpreter's lock.
  Status CheckWeights();
  // For what closes gates. InvalidArgument where this thread is inside one of them.
  Status CheckOutside() const;

  bool is_closed() const {
    if (!process_.Check("").ok()) return true;
    const std::lock_guard lock(mutex_);
    return receiver_ == nullptr;
  }

  const std::vector<std::shared_ptr<StepGate>>& gates() const { return parts_.gates; }
  // The name of the session that update() began last; "" when there is none. In calls of Use.
  std::string own_session() const {
    const std::lock_guard lock(mutex_);
    return own_session_;
  }
  void set_own_session(std::string session) {
    const std::lock_guard lock(mutex_);
    own_session_ = std::move(session);
  }

  // For the garbage collector; under the lock.
  int Traverse(visitproc visit, void* arg) const;
  void Finalize(nb::handle self);
  void Clear();

 private:
  // A call that is under way.
  class CallCount {
   public:
    explicit CallCount(HandleOf& handle) : handle_(handle), status_(handle.BeginCall()) {}
    ~CallCount() {
      if (status_.ok()) handle_.EndCall();
    }
    CallCount(const CallCount&) = delete;
    CallCount& operator=(const CallCount&) = delete;
    const Status& status() const { return status_; }

   private:
    HandleOf& handle_;
    const Status status_;
  };

  Status BeginCall();
  void EndCall();
  Status End();
  void EndElsewhere();
  bool IsInside() const { return CallFrame::IsInside(parts_.raised.get()); }

  const OwnProcess process_;
  const Parts parts_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  unsigned calls_ = 0;
  bool closed_ = false;  // Or about to be.
  std::string own_session_;
  std::unique_ptr<Kind> receiver_;  // Null once it has ended.
};

// `open()` makes the receiver, with the callbacks of `parts`; whatever these raise is raised.
template <typename Kind, typename Open>
std::unique_ptr<HandleOf<Kind>> OpenHandle(typename HandleOf<Kind>::Parts parts, Open open) {
  CallFrame frame(parts.raised.get(), CallFrame::Kind::kCall);
  const EndsOnSignal until_signal(parts.raised.get());
  auto receiver = Run(std::move(open), &frame.raised());
  auto handle = std::make_unique<HandleOf<Kind>>(std::move(receiver), std::move(parts));
  RaiseKept(frame.raised(), /*all=*/true);
  return handle;
}

using ReceiverHandle = HandleOf<Receiver>;
using GroupHandle = HandleOf<ReceiverGroup>;

// What a class of handles tells the garbage collector.
template <typename Kind>
PyType_Slot* HandleSlots();

}  // namespace segue::python
