// SPDX-License-Identifier: Apache-2.0
//
// Step gate: between the threads of one process that compute with weights and the receiver that
// changes them there (segue/receiver.h, BoundModel). The same promise as the gate of a segment
// (segue/engine.h), without shared memory.
//
//   StepGate gate;
//   BoundModel model = ...;
//   gate.Guard(model);                              // close_gate and open_gate of the model.
//   ...
//   if (gate.Enter(std::chrono::seconds(30)).ok()) { Forward(...); gate.Leave(); }
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>

#include "segue/receiver.h"
#include "segue/status.h"

namespace segue {

// Any thread may call anything. Neither copied nor moved: others wait on its words.
class StepGate {
 public:
  StepGate() = default;
  StepGate(const StepGate&) = delete;
  StepGate& operator=(const StepGate&) = delete;

  // Asked ten times a second while a close waits for those who are inside. What it fails with ends
  // the wait, and the gate is as it was before.
  using Ask = std::function<Status()>;

  // Sets the model's gate to this one, which outlives the receiver. Several models may share it: it
  // is open while none of them has it closed.
  void Guard(BoundModel& model, Ask ask = {});

  // Before weights are read; a thread that is inside does not enter again. Some nanoseconds while
  // the gate is open; waits while it is closed, and at the deadline fails as Unavailable.
  Status Enter(std::chrono::milliseconds deadline) {
    if (TryEnter()) [[likely]]
      return {};
    return EnterWhenOpen(deadline, nullptr);
  }
  // The same, and while it waits `stop` (if it is set) is asked about ten times a second: once it
  // says yes, this fails as Unavailable.
  Status EnterUnless(const std::function<bool()>& stop, std::chrono::milliseconds deadline) {
    if (TryEnter()) [[likely]]
      return {};
    return EnterWhenOpen(deadline, stop);
  }
  // Whether it could enter at once.
  bool TryEnter() {
    inside_.fetch_add(1);
    if (closed_.load() == 0) [[likely]]
      return true;
    Leave();
    return false;
  }
  // Once for every success of the above.
  void Leave() {
    inside_.fetch_sub(1);
    if (closed_.load() != 0) [[unlikely]]
      Drained();
  }

  // Returns once nobody is inside. Unavailable at the deadline: open again, as it was. Beside those
  // of the models.
  Status Close(std::chrono::milliseconds deadline) { return CloseFor(closed_here_, deadline, {}); }
  void Open() { OpenFor(closed_here_); }

  std::uint32_t inside() const { return inside_.load(); }

 private:
  using Held = std::atomic<bool>;  // Whether this holder has it closed.

  Status EnterWhenOpen(std::chrono::milliseconds deadline, const std::function<bool()>& stop);
  void Drained();
  Status CloseFor(Held& held, std::chrono::milliseconds deadline, const Ask& ask);
  void OpenFor(Held& held);

  // All accesses are sequentially consistent: either who enters sees the gate closed, or who closes
  // sees it inside.
  std::atomic<std::uint32_t> closed_{0};  // How many hold it closed.
  std::atomic<std::uint32_t> inside_{0};
  std::atomic<std::uint32_t> drained_{0};  // Counts leavings while the gate was closed.
  Held closed_here_{false};
};

}  // namespace segue
