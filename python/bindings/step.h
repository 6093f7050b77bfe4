// SPDX-License-Identifier: Apache-2.0
//
// Step: a gate as a context manager. Entering an open gate costs a few instructions and keeps the
// interpreter's lock; waiting at a closed one lets other threads run, and Ctrl-C ends it.
//
// What must hold: each entry is left once, in the process that entered. Threads may share a step
// object by mistake: its marks change under the interpreter's lock, before it waits.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>

#include "bindings/interpreter.h"
#include "segue/engine.h"

namespace segue::python {

// How long a wait may take before signals are looked at.
inline constexpr std::chrono::milliseconds kSignalPeriod{100};

// `enter(stop, deadline)` returns a Status; it asks `stop` about ten times a second.
template <typename Enter>
void EnterOrRaise(std::chrono::milliseconds timeout, Enter enter) {
  RaisedInCallback raised;
  const std::function<bool()> stop = [&raised] {
    return !InPython("a signal handler", &raised, [] {
              RaisePendingSignal();
              return Status();
            }).ok();
  };
  const Status status = [&] {
    const WithoutGil released;
    return enter(stop, timeout);
  }();
  if (status.ok()) return;
  RaiseKept(raised, /*all=*/true);
  Raise(status);
}

// Whether a step is entered, and who may leave it. It may be entered again after it was left.
class StepEntry {
 public:
  // `try_enter()`: whether it could enter at once; `enter` as above.
  template <typename TryEnter, typename Enter>
  void EnterOnce(std::chrono::milliseconds timeout, TryEnter try_enter, Enter enter) {
    if (is_taken_) Raise(InvalidArgument("this step has been entered already"));
    forks_ = EngineWeights::fork_count();
    if (!try_enter()) [[unlikely]] {
      is_taken_ = true;
      try {
        EnterOrRaise(timeout, enter);
      } catch (...) {
        is_taken_ = false;
        throw;
      }
    }
    is_taken_ = is_inside_ = true;
  }
  // Whether the caller is to leave the gate: not in a child made by fork inside the step.
  bool LeaveOnce() {
    if (!is_inside_) Raise(InvalidArgument("this step has not been entered"));
    return EndIfInside();
  }
  // The same when the step object goes.
  bool EndIfInside() {
    const bool was_inside = is_inside_;
    is_taken_ = is_inside_ = false;
    return was_inside && forks_ == EngineWeights::fork_count();
  }

  StepEntry() = default;
  StepEntry(StepEntry&& other) noexcept
      : is_taken_(std::exchange(other.is_taken_, false)),
        is_inside_(std::exchange(other.is_inside_, false)),
        forks_(other.forks_) {}
  StepEntry& operator=(StepEntry&&) = delete;

 private:
  bool is_taken_ = false;  // Inside, or a thread waits to be.
  bool is_inside_ = false;
  std::uint32_t forks_ = 0;
};

}  // namespace segue::python
