// SPDX-License-Identifier: Apache-2.0
//
// SharedGate: all accesses to gate, drained and inside are sequentially consistent (the default).
#include "live/shared_gate.h"

#include <algorithm>
#include <string>

#include "base/out_of_memory.h"
#include "live/futex.h"

namespace segue {
namespace {

// Nobody wakes the receiver for an engine that died, so it looks itself this often.
constexpr std::chrono::milliseconds kBuryPeriod{5};

}  // namespace

Status SharedGate::Close(std::chrono::milliseconds deadline) {
  const std::uint32_t before = Set(kGateClosed);
  SEGUE_RETURN_IF_ERROR(CheckThere());
  // What cannot be said for want of memory must not keep the gate closed either.
  Status status = CatchOutOfMemory([&] { return WaitUntilEmpty(deadline); });
  if (!status.ok() && before == kGateOpen) SEGUE_RETURN_IF_ERROR(Open());
  return status;
}

Status SharedGate::Open() {
  Set(kGateOpen);
  FutexWakeAll(words_.gate_address());
  return CheckThere();
}

void SharedGate::CloseForGood(SegmentWords words) {
  words.gate().store(kGateRemoved);
  FutexWakeAll(words.gate_address());
}

Status SharedGate::CheckThere() const {
  if (words_.gate().load() != kGateRemoved) return {};
  return NotFound(object_.Describe() + " was removed: its engines have to attach to another");
}

// What it was before. Removed stays removed.
std::uint32_t SharedGate::Set(std::uint32_t value) {
  std::uint32_t before = words_.gate().load();
  while (before != kGateRemoved && !words_.gate().compare_exchange_weak(before, value)) {
  }
  return before;
}

Status SharedGate::WaitUntilEmpty(std::chrono::milliseconds deadline) {
  const SteadyTime limit = DeadlineAfter(deadline);
  SteadyTime next_burial{};
  for (;;) {
    const std::uint32_t drained = words_.drained().load();
    const SteadyTime now = std::chrono::steady_clock::now();
    const bool last = now >= limit;
    const bool bury = last || now >= next_burial;
    if (bury) next_burial = now + kBuryPeriod;
    SEGUE_ASSIGN_OR_RETURN(const std::uint64_t inside, CountInside(bury));
    if (inside == 0) return {};
    if (last) {
      return Unavailable(object_.Describe() + ": " + std::to_string(inside) +
                         " engine threads were still inside the gate after " +
                         std::to_string(deadline.count()) + " ms; nothing was changed");
    }
    FutexWait(words_.drained_address(), drained, std::min(limit, next_burial));
  }
}

Result<std::uint64_t> SharedGate::CountInside(bool bury) {
  std::uint64_t count = 0;
  for (unsigned slot = 0; slot < slot_count_; ++slot) {
    const std::uint32_t inside = words_.inside(slot).load();
    if (inside == 0) continue;
    if (bury) {
      SEGUE_ASSIGN_OR_RETURN(const bool dead, ClearIfDead(slot));
      if (dead) continue;
    }
    count += inside;
  }
  return count;
}

Result<bool> SharedGate::ClearIfDead(unsigned slot) {
  // Under the lock, so that no engine can take the slot and enter in between.
  SEGUE_ASSIGN_OR_RETURN(const bool dead, object_.TryLock(SlotLock(slot)));
  if (!dead) return false;
  words_.inside(slot).store(0);
  object_.Unlock(SlotLock(slot));
  return true;
}

}  // namespace segue
