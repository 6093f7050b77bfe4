// SPDX-License-Identifier: Apache-2.0
//
// Simulation: one run from one seed. Faults for a number of steps, then none; the checkers of all
// parts watch throughout, and at the end every receiver must reach a version that was published
// after the faults had stopped.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string>

#include "sim/faults.h"
#include "sim/world.h"

namespace segue::sim {

struct SimulationOptions {
  std::uint64_t seed = 1;
  std::uint64_t steps = 20'000;  // With faults.
  Sabotage sabotage = Sabotage::kNone;
  bool print = false;   // The trace, as it happens.
  std::string scratch;  // An existing folder; what is made there is removed again.
};

struct SimulationReport {
  std::optional<Violation> violation;
  std::string hash;  // Of the trace.
  std::deque<std::string> tail;
  std::uint64_t steps = 0;
  std::uint64_t published = 0;
  std::uint64_t updates = 0;
  std::uint64_t takeovers = 0;
  std::uint64_t rebuilds = 0;
  std::uint64_t deaths = 0;     // Of processes.
  std::uint64_t resolved = 0;   // Takeovers of an apply that another receiver had begun.
  std::uint64_t announced = 0;  // Segments whose update with others had not come to them.

  // Adds the figures of another run.
  void Add(const SimulationReport& other);
};

SimulationReport RunSimulation(const SimulationOptions& options);

}  // namespace segue::sim
