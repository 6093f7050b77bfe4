// SPDX-License-Identifier: Apache-2.0
//
// Faults: what may go wrong in a simulation and how often, and the sabotage that shows that the
// checkers see what they are there for.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "base/random.h"

namespace segue::sim {

// Probabilities: of a store call for the first group, of a call's objects for visibility.
struct FaultRates {
  double refused = 0;      // The call fails, nothing happened.
  double reply_lost = 0;   // It happened, the caller is told that it failed.
  double late = 0;         // The caller gives up first, it happens later.
  double disk_full = 0;    // A put fails for want of room.
  double bit_flip = 0;     // A read comes with one bit changed.
  double truncated = 0;    // A read ends early.
  double slow = 0;         // A call takes far longer than most.
  double list_lag = 0;     // A new object is not listed for a while.
  double read_lag = 0;     // A new object is not found for a while.
  double crash = 0;        // Of a process, at each point where it may suspend.
  double device_slow = 0;  // A chunk takes long.
  double device_dies = 0;  // An apply stops in the middle of a chunk and reports a fault.
  double slow_reader = 0;  // An engine stays in the gate beyond the deadline.
  double gate_fails = 0;   // A bound engine's own gate does not do as it is told.

  // Some of them, at rates that depend on the seed: a run with everything at once finds less than
  // many with a few.
  static FaultRates FromSeed(Random& random);
};

// One thing done wrong on purpose.
enum class Sabotage {
  kNone,
  kSkipProof,       // The device writes a wrong byte and reports success.
  kApplyTwice,      // The device applies each chunk twice and reports success.
  kOpenGate,        // The gate reports that it is closed and lets engines in.
  kNoGate,          // The gate reports that it is closed and is open.
  kOverwrite,       // The store lets a second put of a name win.
  kWrongVersion,    // The record gets another version than the one that was applied.
  kDirtyRefusal,    // A preflight that refuses has written before.
  kDirtyPreflight,  // A preflight that succeeds has written.
  kRot,             // A byte of weights at rest changes by itself.
  kLateRot,         // The same where no engine reads.
  kWrongFiles,      // A checkpoint is not what the trainer has in memory.
  kForgetful,       // The store acknowledges manifests that it then does not have.
  kNeverHeals,      // The store answers nobody when faults have stopped.
  kApart,           // The two segments of a pair have a receiver each.
  kRealClock,       // A line of the trace depends on the real clock.
};

std::string_view SabotageName(Sabotage sabotage);
std::optional<Sabotage> SabotageFromName(std::string_view name);

}  // namespace segue::sim
