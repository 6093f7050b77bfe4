// SPDX-License-Identifier: Apache-2.0
//
// The simulator itself: a seed is a run, and each checker finds the fault that it is there for. The
// seeds that judge the product are tests of their own (segue_sim_*).
#include "sim/simulation.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "base/file.h"

namespace segue::sim {
namespace {

SimulationReport RunSeed(std::uint64_t seed, std::uint64_t steps,
                         Sabotage sabotage = Sabotage::kNone) {
  SimulationOptions options;
  options.seed = seed;
  options.steps = steps;
  options.sabotage = sabotage;
  options.scratch = FileExists("/dev/shm") ? "/dev/shm" : "";
  return RunSimulation(options);
}

TEST(SimulationTest, ASeedIsARun) {
  std::set<std::string> hashes;
  for (std::uint64_t seed = 1; seed <= 8; ++seed) {
    const SimulationReport first = RunSeed(seed, 4000);
    const SimulationReport again = RunSeed(seed, 4000);
    ASSERT_FALSE(first.violation) << first.violation->what;
    EXPECT_EQ(first.hash, again.hash) << seed;
    EXPECT_EQ(first.steps, again.steps);
    hashes.insert(first.hash);
  }
  EXPECT_EQ(hashes.size(), 8u);
}

// The comparison above would see it if anything came from outside the world.
TEST(SimulationTest, WhatComesFromOutsideIsSeen) {
  EXPECT_NE(RunSeed(1, 1000, Sabotage::kRealClock).hash,
            RunSeed(1, 1000, Sabotage::kRealClock).hash);
}

// What happened in a few runs is what the simulator is for. A death between the announcement of an
// update of several segments and its end is rare: which seeds have one changes with the code.
TEST(SimulationTest, RunsAreFullOfEvents) {
  SimulationReport sum;
  for (std::uint64_t seed = 1; seed <= 80 || (sum.announced == 0 && seed <= 300); ++seed) {
    const SimulationReport report = RunSeed(seed, 10'000);
    ASSERT_FALSE(report.violation) << seed << ": " << report.violation->what;
    sum.Add(report);
  }
  EXPECT_GT(sum.published, 50u);
  EXPECT_GT(sum.updates, 50u);
  EXPECT_GT(sum.takeovers, 50u);
  EXPECT_GT(sum.rebuilds, 5u);
  EXPECT_GT(sum.deaths, 50u);
  EXPECT_GT(sum.resolved, 0u);
  EXPECT_GT(sum.announced, 0u);
}

struct Mutation {
  Sabotage sabotage;
  const char* checker;
};

class MutationTest : public testing::TestWithParam<Mutation> {};

// Whichever checker comes first ends a run, so a few seeds may be needed until it is this one.
TEST_P(MutationTest, IsFound) {
  const auto [sabotage, checker] = GetParam();
  std::map<std::string, int> found;
  for (std::uint64_t seed = 1; seed <= 150; ++seed) {
    const SimulationReport report = RunSeed(seed, 5000, sabotage);
    if (!report.violation) continue;
    if (report.violation->checker == checker) return;
    ++found[report.violation->checker];
  }
  std::string others;
  for (const auto& [name, count] : found) others += name + " " + std::to_string(count) + "; ";
  FAIL() << "checker '" << checker << "' never came first; " << others;
}

INSTANTIATE_TEST_SUITE_P(
    Checkers, MutationTest,
    testing::Values(
        Mutation{Sabotage::kSkipProof, "bytes"}, Mutation{Sabotage::kSkipProof, "mix"},
        Mutation{Sabotage::kApplyTwice, "twice"}, Mutation{Sabotage::kOpenGate, "mix"},
        Mutation{Sabotage::kNoGate, "gate"}, Mutation{Sabotage::kOverwrite, "two-contents"},
        Mutation{Sabotage::kWrongVersion, "mix"}, Mutation{Sabotage::kDirtyRefusal, "refusal"},
        Mutation{Sabotage::kDirtyPreflight, "preflight"}, Mutation{Sabotage::kLateRot, "scrub"},
        Mutation{Sabotage::kRot, "mix"}, Mutation{Sabotage::kLateRot, "status"},
        Mutation{Sabotage::kWrongFiles, "manifest"}, Mutation{Sabotage::kForgetful, "lost"},
        Mutation{Sabotage::kNeverHeals, "convergence"}, Mutation{Sabotage::kApart, "pair"}),
    [](const auto& test) {
      std::string name = std::string(SabotageName(test.param.sabotage)) + "_" + test.param.checker;
      std::replace(name.begin(), name.end(), '-', '_');
      return name;
    });

}  // namespace
}  // namespace segue::sim
