// SPDX-License-Identifier: Apache-2.0
//
// Entering several gates for one step: of an engine that computes with the weights of several
// lineages (segue/receiver_group.h). The gates are EngineWeights (segue/engine.h) or StepGates
// (segue/step_gate.h), in the order of the group.
//
//   EngineWeights* const all[] = {&policy, &draft};
//   if (EnterAll<EngineWeights>(all, std::chrono::seconds(30)).ok()) {
//     Forward(policy.tensors(), draft.tensors());
//     LeaveAll<EngineWeights>(all);
//   }
//
// What must hold: nobody waits at one gate while inside another, since the receiver that has closed
// the one may be waiting for the other to be empty.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <functional>
#include <optional>
#include <span>

#include "segue/status.h"

namespace segue {

// Once for every success of EnterAll.
template <typename Gate>
void LeaveAll(std::span<Gate* const> gates) {
  for (Gate* const gate : gates) gate->Leave();
}

// How many could be entered at once, one after the other; inside none of them unless that is all.
template <typename Gate>
std::size_t EnterFirst(std::span<Gate* const> gates) {
  std::size_t count = 0;
  while (count < gates.size() && gates[count]->TryEnter()) ++count;
  if (count < gates.size()) LeaveAll<Gate>(gates.first(count));
  return count;
}

// Whether it could enter all at once.
template <typename Gate>
bool TryEnterAll(std::span<Gate* const> gates) {
  return EnterFirst(gates) == gates.size();
}

// Inside all of them, or, on failure (as the gate's own EnterUnless fails), inside none.
template <typename Gate>
Status EnterAllUnless(const std::function<bool()>& stop, std::span<Gate* const> gates,
                      std::chrono::milliseconds deadline) {
  using Clock = std::chrono::steady_clock;
  std::optional<Clock::time_point> began;
  for (;;) {
    const std::size_t count = EnterFirst(gates);
    if (count == gates.size()) return {};
    if (!began) began = Clock::now();
    const auto waited =
        std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - *began);
    SEGUE_RETURN_IF_ERROR(
        gates[count]->EnterUnless(stop, std::max(deadline - waited, std::chrono::milliseconds(0))));
    gates[count]->Leave();
  }
}
template <typename Gate>
Status EnterAll(std::span<Gate* const> gates, std::chrono::milliseconds deadline) {
  return EnterAllUnless<Gate>(nullptr, gates, deadline);
}

}  // namespace segue
