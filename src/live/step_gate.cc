// SPDX-License-Identifier: Apache-2.0
//
// Step gate: the waits. Those who enter and those who leave while it is open never come here.
#include "segue/step_gate.h"

#include <algorithm>
#include <memory>
#include <string>
#include <utility>

#include "live/futex.h"

namespace segue {
namespace {

using std::chrono::milliseconds;

// How often who waits at the gate asks whether to go on.
constexpr milliseconds kStopLook{100};

std::uint32_t* WordOf(std::atomic<std::uint32_t>& value) {
  static_assert(sizeof(value) == sizeof(std::uint32_t));
  return reinterpret_cast<std::uint32_t*>(&value);
}

}  // namespace

void StepGate::Guard(BoundModel& model, Ask ask) {
  const auto held = std::make_shared<Held>(false);
  model.close_gate = [this, held, ask = std::move(ask)](milliseconds deadline) {
    return CloseFor(*held, deadline, ask);
  };
  model.open_gate = [this, held] {
    OpenFor(*held);
    return Status();
  };
}

Status StepGate::EnterWhenOpen(milliseconds deadline, const std::function<bool()>& stop) {
  const SteadyTime began = std::chrono::steady_clock::now();
  const SteadyTime limit = DeadlineAfter(deadline);
  for (;;) {
    for (std::uint32_t closed = closed_.load(); closed != 0; closed = closed_.load()) {
      const SteadyTime now = std::chrono::steady_clock::now();
      if (now >= limit || (stop && stop())) {
        const auto waited =
            std::min(deadline, std::chrono::duration_cast<milliseconds>(now - began));
        return Unavailable("the gate was still closed after " + std::to_string(waited.count()) +
                           " ms: an update is being applied, or the weights are poisoned");
      }
      FutexWait(WordOf(closed_), closed, stop ? std::min(limit, DeadlineAfter(kStopLook)) : limit);
    }
    if (TryEnter()) return {};
  }
}

void StepGate::Drained() {
  drained_.fetch_add(1);
  FutexWakeAll(WordOf(drained_));
}

Status StepGate::CloseFor(Held& held, milliseconds deadline, const Ask& ask) {
  const SteadyTime limit = DeadlineAfter(deadline);
  const bool was_closed = held.exchange(true);
  if (!was_closed) closed_.fetch_add(1);
  SteadyTime next_ask = ask ? std::chrono::steady_clock::now() + kStopLook : limit;
  for (;;) {
    const std::uint32_t drained = drained_.load();
    const std::uint32_t inside = inside_.load();
    if (inside == 0) return {};
    const SteadyTime now = std::chrono::steady_clock::now();
    Status ended;
    if (now >= limit) {
      ended = Unavailable(std::to_string(inside) + (inside == 1 ? " step was" : " steps were") +
                          " still inside the gate after " + std::to_string(deadline.count()) +
                          " ms; nothing was changed");
    } else if (now >= next_ask) {
      ended = ask();
      next_ask = now + kStopLook;
    }
    if (!ended.ok()) {
      if (!was_closed) OpenFor(held);
      return ended;
    }
    FutexWait(WordOf(drained_), drained, std::min(limit, next_ask));
  }
}

void StepGate::OpenFor(Held& held) {
  if (!held.exchange(false) || closed_.fetch_sub(1) != 1) return;
  FutexWakeAll(WordOf(closed_));
}

}  // namespace segue
