// SPDX-License-Identifier: Apache-2.0
//
// Step: a gate as a context manager. Entering an open gate costs a few instructions and keeps the
// interpreter's lock; waiting at a closed one lets other threads run, and Ctrl-C ends it. Of gates
// of this process it is known which thread is inside: one that waits for itself is told at once.
//
// What must hold: each entry is left once, in the process that entered. Threads may share a step
// object by mistake: its marks change under the interpreter's lock, before it waits.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "bindings/interpreter.h"
#include "segue/engine.h"
#include "segue/step_gate.h"

namespace segue::python {

// How long a wait may take before signals are looked at.
inline constexpr std::chrono::milliseconds kSignalPeriod{100};

// Steps that this thread has entered and nobody has left. Other threads may leave them.
using StepCount = std::shared_ptr<std::atomic<int>>;
inline StepCount StepsHere(const StepGate* gate) {
  thread_local std::unordered_map<const StepGate*, StepCount> counts;
  StepCount& count = counts[gate];
  if (!count) count = std::make_shared<std::atomic<int>>(0);
  return count;
}

// What the last wait of several says, " after 98 ms" say, for all of them.
inline Status AfterAll(const Status& last, std::chrono::milliseconds timeout) {
  static constexpr std::string_view kAfter = " after ";
  static constexpr std::string_view kUnit = " ms";
  std::string text = last.message();
  const std::size_t begin = text.find(kAfter);
  if (begin == std::string::npos) return last;
  const std::size_t number = begin + kAfter.size();
  const std::size_t end = text.find_first_not_of("0123456789", number);
  if (end == number || text.compare(std::min(end, text.size()), kUnit.size(), kUnit) != 0) {
    return last;
  }
  text.replace(number, end - number, std::to_string(timeout.count()));
  return {last.code(), text};
}

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
