// SPDX-License-Identifier: Apache-2.0
//
// HandleOf: who is inside, and who may still come.
#include "bindings/receiver_handle.h"

#include <thread>
#include <utility>

#include "bindings/step.h"

namespace segue::python {
namespace {

// The receiver that this thread is in a call of.
thread_local const void* in_call_of = nullptr;

}  // namespace

template <typename Kind>
Result<const void*> HandleOf<Kind>::BeginCall() {
  SEGUE_RETURN_IF_ERROR(process_.Check("the receiver"));
  const std::lock_guard lock(mutex_);
  if (closed_) return InvalidArgument("the receiver is closed");
  ++calls_;
  return std::exchange(in_call_of, static_cast<const void*>(this));
}

template <typename Kind>
void HandleOf<Kind>::EndCall(const void* outer) {
  const std::lock_guard lock(mutex_);
  in_call_of = outer;
  if (--calls_ == 0) changed_.notify_all();
}

template <typename Kind>
void HandleOf<Kind>::Close() {
  if (!process_.Check("").ok()) {
    (void)receiver_.release();
    return;
  }
  if (in_call_of == this) {
    Raise(InvalidArgument("a receiver cannot be closed from inside one of its own calls"));
  }
  const WithoutGil released;
  std::unique_lock lock(mutex_);
  closed_ = true;
  changed_.wait(lock, [this] { return calls_ == 0; });
  receiver_.reset();
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

template class HandleOf<Receiver>;
template class HandleOf<ReceiverGroup>;

}  // namespace segue::python
