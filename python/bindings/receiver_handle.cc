// SPDX-License-Identifier: Apache-2.0
//
// HandleOf: who is inside, who may still come, and who ends it.
#include "bindings/receiver_handle.h"

#include <thread>
#include <utility>

#include "bindings/step.h"

namespace segue::python {

template <typename Kind>
HandleOf<Kind>::~HandleOf() {
  if (!process_.Check("").ok()) {
    (void)receiver_.release();
    return;
  }
  if (!receiver_) return;
  if (IsInside()) {
    EndElsewhere();
    return;
  }
  const WithoutGil released;
  (void)End();
}

// Callbacks go on while it is closed: an update is finished by them.
template <typename Kind>
Status HandleOf<Kind>::BeginCall() {
  SEGUE_RETURN_IF_ERROR(process_.Check("the receiver"));
  const std::lock_guard lock(mutex_);
  if (!receiver_ || (closed_ && !IsInside())) return InvalidArgument("the receiver is closed");
  ++calls_;
  return {};
}

template <typename Kind>
void HandleOf<Kind>::EndCall() {
  const std::lock_guard lock(mutex_);
  if (--calls_ == 0) changed_.notify_all();
}

template <typename Kind>
void HandleOf<Kind>::RefuseInOwnThread(const char* what) const {
  if (!CallFrame::IsOwnThread(parts_.raised.get())) return;
  Raise(InvalidArgument(std::string(what) +
                        " was called in one of the receiver's own threads, by a callback: it would "
                        "wait for itself"));
}

template <typename Kind>
void HandleOf<Kind>::Close() {
  if (!process_.Check("").ok()) {
    (void)receiver_.release();
    return;
  }
  if (IsInside()) {
    Raise(InvalidArgument(
        "a receiver cannot be closed from inside one of its own calls or callbacks"));
  }
  const Status ended = [this] {
    const WithoutGil released;
    return End();
  }();
  Clear();
  if (!ended.ok()) Raise(ended, parts_.raised.get());
}

// What it says is of the engine: the receiver ends in any case. Its callbacks may call it until it
// has released the engine, and nobody holds the mutex meanwhile.
template <typename Kind>
Status HandleOf<Kind>::End() {
  *parts_.closing = true;  // Who waits at the gate ends at once.
  Kind* receiver = nullptr;
  {
    std::unique_lock lock(mutex_);
    if (receiver_) receiver_->GiveUpStore();  // So does who waits for a store's server.
    const bool is_second = std::exchange(closed_, true);
    changed_.wait(lock, [&] { return is_second ? receiver_ == nullptr : calls_ == 0; });
    receiver = receiver_.get();
  }
  if (receiver == nullptr) return {};
  if (parts_.stop) parts_.stop();
  Status released = receiver->Release();
  std::unique_ptr<Kind> gone;
  {
    const std::lock_guard lock(mutex_);
    gone = std::move(receiver_);
  }
  gone.reset();
  changed_.notify_all();
  return released;
}

// The receiver's own thread is in a callback, and ends when that has returned.
template <typename Kind>
void HandleOf<Kind>::EndElsewhere() {
  // Plain pointers: where no thread is to be had, both live on.
  RunLater([receiver = receiver_.release(), parts = new Parts(parts_)] {
    *parts->closing = true;
    if (parts->stop) parts->stop();
    (void)receiver->Release();
    delete receiver;
    const nb::gil_scoped_acquire held;
    delete parts;
  });
}

template <typename Kind>
Status HandleOf<Kind>::CheckWeights() {
  const std::lock_guard lock(mutex_);
  return receiver_ ? receiver_->CheckWeights() : Status();
}

template <typename Kind>
Status HandleOf<Kind>::CheckOutside() const {
  for (const auto& gate : parts_.gates) {
    if (*StepsHere(gate.get()) == 0) continue;
    return InvalidArgument(
        "this thread is inside a step() of this receiver, which an apply waits for: leave the step "
        "first");
  }
  return {};
}

template <typename Kind>
Status HandleOf<Kind>::WaitPreparedOrSignal(Kind& receiver, const std::string& session) {
  std::mutex mutex;
  std::condition_variable changed;
  std::optional<Status> outcome;
  std::jthread waiter([&] {
    Status status = receiver.WaitPrepared();
    const std::lock_guard lock(mutex);
    outcome = std::move(status);
    changed.notify_all();
  });
  std::unique_lock lock(mutex);
  while (!changed.wait_for(lock, kSignalPeriod, [&] { return outcome.has_value(); })) {
    lock.unlock();
    Status signal = InPython("a signal handler", parts_.raised.get(), [] {
      RaisePendingSignal();
      return Status();
    });
    if (!signal.ok()) {
      (void)receiver.Abort(session);
      return signal;
    }
    lock.lock();
  }
  return *outcome;
}

// --- The garbage collector
// ------------------------------------------------------------------------

template <typename Kind>
int HandleOf<Kind>::Traverse(visitproc visit, void* arg) const {
  for (const auto& callable : parts_.callables) {
    if (const int stopped = callable->Traverse(visit, arg); stopped != 0) return stopped;
  }
  return 0;
}

// All that it needs to end lives on until then, callbacks and tensors: the collector finds them
// again, closed.
template <typename Kind>
void HandleOf<Kind>::Finalize(nb::handle self) {
  if (is_closed()) return;
  self.inc_ref();
  RunLater([this, self] {
    (void)End();
    const nb::gil_scoped_acquire held;
    self.dec_ref();
  });
}

template <typename Kind>
void HandleOf<Kind>::Clear() {
  if (!is_closed()) return;  // Its own thread runs this, and still needs them.
  for (const auto& callable : parts_.callables) callable->Clear();
}

namespace {

template <typename Kind>
int TraverseHandle(PyObject* self, visitproc visit, void* arg) {
  Py_VISIT(Py_TYPE(self));
  return nb::inst_ready(self) ? nb::inst_ptr<HandleOf<Kind>>(self)->Traverse(visit, arg) : 0;
}

template <typename Kind>
void FinalizeHandle(PyObject* self) {
  if (!nb::inst_ready(self)) return;
  const nb::error_scope kept;
  nb::inst_ptr<HandleOf<Kind>>(self)->Finalize(self);
}

template <typename Kind>
int ClearHandle(PyObject* self) {
  if (nb::inst_ready(self)) nb::inst_ptr<HandleOf<Kind>>(self)->Clear();
  return 0;
}

}  // namespace

template <typename Kind>
PyType_Slot* HandleSlots() {
  static PyType_Slot slots[] = {
      {Py_tp_traverse, reinterpret_cast<void*>(TraverseHandle<Kind>)},
      {Py_tp_finalize, reinterpret_cast<void*>(FinalizeHandle<Kind>)},
      {Py_tp_clear, reinterpret_cast<void*>(ClearHandle<Kind>)},
      {0, nullptr},
  };
  return slots;
}

template class HandleOf<Receiver>;
template class HandleOf<ReceiverGroup>;
template PyType_Slot* HandleSlots<Receiver>();
template PyType_Slot* HandleSlots<ReceiverGroup>();

}  // namespace segue::python
