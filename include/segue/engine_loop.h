// SPDX-License-Identifier: Apache-2.0
//
// A stand-in for an engine: attaches to live weights and reads them all in a loop, as the forward
// steps of an inference engine do. It shows what an update costs from the engine's side, and
// checks, if asked to, that each step saw exactly the version that it was told.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "segue/status.h"

namespace segue {

struct EngineLoopOptions {
  std::string name = {};
  std::chrono::milliseconds attach_deadline{30'000};
  std::chrono::milliseconds step_deadline{60'000};  // For the gate, in each step.
  std::uint64_t steps = 0;                          // 0: until `stop` says so.
  std::uint64_t until_version = 0;  // Ends after a step at this version or a later one.
  bool verify = true;               // Digest of all weights in each step.
  std::function<bool()> stop = {};  // Asked before each step, and while it waits at the gate.
};

struct EngineVersionSeen {
  std::uint64_t version = 0;
  std::string digest;
  std::uint64_t steps = 0;
};

struct EngineLoopReport {
  std::uint64_t steps = 0;
  double step_s_median = 0;  // Inside the gate.
  double step_s_max = 0;
  double start_wait_s = 0;              // Before the first step: until the receiver served.
  double wait_s_max = 0;                // Longest later wait: the pause as the engine saw it.
  std::vector<double> waits_s;          // Every later one of more than a tenth of a millisecond.
  std::vector<EngineVersionSeen> seen;  // In order.
};

// Corruption when a step saw other bytes than its version's (with `verify`).
Result<EngineLoopReport> RunEngineLoop(const EngineLoopOptions& options);

}  // namespace segue
