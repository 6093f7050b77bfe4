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
#include <optional>
#include <span>

#include "segue/status.h"

namespace segue {

// Once for every success of EnterAll.
template <typename Gate>
void LeaveAll(std::span<Gate* const> gates) {
  for (Gate* const gate : gates) gate->Leave();
}

// Inside all of them, or, on failure (as the gate's own Enter fails), inside none.
template <typename Gate>
Status EnterAll(std::span<Gate* const> gates, std::chrono::milliseconds deadline) {
  using Clock = std::chrono::steady_clock;
  std::optional<Clock::time_point> began;
  for (;;) {
    std::size_t count = 0;
    while (count < gates.size() && gates[count]->TryEnter()) ++count;
    if (count == gates.size()) return {};
    LeaveAll<Gate>(gates.first(count));
    if (!began) began = Clock::now();
    const auto waited =
        std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - *began);
    SEGUE_RETURN_IF_ERROR(
        gates[count]->Enter(std::max(deadline - waited, std::chrono::milliseconds(0))));
    gates[count]->Leave();
  }
}

}  // namespace segue
