// SPDX-License-Identifier: Apache-2.0
//
// Chains: bytes do not depend on threads or on how a chain is cut into stretches, and the
// statistics that make a chain realistic lie in their bands.
#include "workload/simulation.h"

#include <gtest/gtest.h>

#include <map>
#include <mutex>
#include <tuple>

namespace segue::workload {
namespace {

// All pieces of a run by where they belong.
using Pieces = std::map<std::tuple<unsigned, std::size_t, Part, std::uint64_t>, ByteVector>;

struct Outcome {
  Pieces pieces;
  std::vector<StepCounts> counts;
};

Simulation MakeSimulation(std::string_view name, std::uint64_t bytes, unsigned steps,
                          std::uint64_t seed = 1) {
  const Preset preset = FindPreset(name).value();
  std::vector<ModelTensor> tensors = MakeModel({bytes, preset.format, preset.has_experts, seed});
  return Simulation::Make(preset, std::move(tensors), seed, steps, 2).value();
}

// Runs versions 0 to `steps` in stretches.
Outcome Follow(std::string_view name, unsigned steps, unsigned threads, unsigned stretch,
               std::uint64_t seed = 1) {
  Simulation simulation = MakeSimulation(name, 300'000, steps, seed);
  Outcome outcome;
  std::mutex mutex;
  const Sink sink = [&](const Piece& piece) -> Status {
    const std::lock_guard lock(mutex);
    outcome.pieces[{piece.version, piece.tensor, piece.part, piece.offset}] =
        ByteVector(piece.bytes.begin(), piece.bytes.end());
    return {};
  };
  for (unsigned first = 0; first <= steps; first += stretch) {
    const unsigned last = std::min(steps, first + stretch - 1);
    EXPECT_TRUE(simulation.Run(first, last, threads, sink).ok());
  }
  outcome.counts = simulation.counts();
  return outcome;
}

class SimulationOf : public testing::TestWithParam<const char*> {};

TEST_P(SimulationOf, DoesNotDependOnThreadsOrStretches) {
  const Outcome one = Follow(GetParam(), 4, 1, 5);
  const Outcome many = Follow(GetParam(), 4, 3, 2);
  EXPECT_EQ(one.pieces, many.pieces);
  ASSERT_EQ(one.counts.size(), 4u);
  for (std::size_t step = 0; step < 4; ++step) {
    EXPECT_EQ(one.counts[step].changed, many.counts[step].changed);
    EXPECT_EQ(one.counts[step].repeated, many.counts[step].repeated);
    EXPECT_EQ(one.counts[step].magnitudes, many.counts[step].magnitudes);
    EXPECT_EQ(one.counts[step].scales_changed, many.counts[step].scales_changed);
  }
  EXPECT_NE(one.pieces, Follow(GetParam(), 4, 2, 5, 2).pieces);
}

INSTANTIATE_TEST_SUITE_P(Some, SimulationOf,
                         testing::Values("bf16-10", "fp8-master-scales", "nvfp4-0.085", "int4-0.1",
                                         "adversarial", "humans-proxy"),
                         [](const auto& test) {
                           std::string name(test.param);
                           for (char& c : name) {
                             if (c == '-' || c == '.') c = '_';
                           }
                           return name;
                         });

TEST(Simulation, RepeatsAndShapeOfAChain) {
  Simulation simulation = MakeSimulation("bf16-1", 2 << 20, 32);
  ASSERT_TRUE(simulation.Run(0, 32, 2, [](const Piece&) { return Status(); }).ok());
  double previous_from_base = 0;
  for (std::size_t step = 0; step < 32; ++step) {
    const GeneratedStep figures = Finish(simulation.counts()[step]);
    if (step > 0) {
      EXPECT_GT(figures.repeat_share, 0.40) << step;
    }
    EXPECT_LT(figures.repeat_share, 0.55) << step;
    EXPECT_NEAR(static_cast<double>(figures.changed) / static_cast<double>(figures.elements), 0.01,
                0.0015);
    EXPECT_GT(figures.one_ulp_share, 0.75);
    EXPECT_NEAR(figures.multi_bit_share, 0.54, 0.04);
    EXPECT_LT(figures.upper_half_share, 0.02);
    EXPECT_LT(figures.magnitude_ratio, 0.35);
    EXPECT_GT(figures.from_base_share, previous_from_base);
    previous_from_base = figures.from_base_share * 0.99;
  }
}

TEST(Simulation, ScalesStayOrMoveAsThePolicySays) {
  Simulation master = MakeSimulation("fp8-master-scales", 2 << 20, 2);
  ASSERT_TRUE(master.Run(0, 2, 2, [](const Piece&) { return Status(); }).ok());
  EXPECT_GT(Finish(master.counts()[1]).scales_changed_share, 0.95);
  Simulation cast = MakeSimulation("fp8-0.07", 2 << 20, 2);
  ASSERT_TRUE(cast.Run(0, 2, 2, [](const Piece&) { return Status(); }).ok());
  EXPECT_LT(Finish(cast.counts()[1]).scales_changed_share, 0.05);
  Simulation proxy = MakeSimulation("humans-proxy", 2 << 20, 2);
  ASSERT_TRUE(proxy.Run(0, 2, 2, [](const Piece&) { return Status(); }).ok());
  EXPECT_EQ(Finish(proxy.counts()[1]).scales_changed_share, 0.0);
  EXPECT_GT(Finish(proxy.counts()[1]).scales, 0u);
}

TEST(Simulation, OneBitIsOneBit) {
  Simulation simulation = MakeSimulation("one-bit", 1 << 20, 5);
  ASSERT_TRUE(simulation.Run(0, 5, 2, [](const Piece&) { return Status(); }).ok());
  for (const StepCounts& counts : simulation.counts()) {
    EXPECT_EQ(counts.changed, 1u);
    EXPECT_EQ(counts.multi_bit, 0u);
  }
}

TEST(Simulation, FailureOfTheSinkIsReturned) {
  Simulation simulation = MakeSimulation("bf16-1", 300'000, 1);
  const Status status =
      simulation.Run(0, 1, 2, [](const Piece&) { return Unavailable("disk is full"); });
  EXPECT_EQ(status.code(), StatusCode::kUnavailable);
}

TEST(Simulation, BandsAreWholeBlocks) {
  EXPECT_EQ(BandRows(Format::kBf16, 1 << 20), 1u);
  EXPECT_EQ(BandRows(Format::kBf16, 1024), 64u);
  EXPECT_EQ(BandRows(Format::kFp8, 4096), 128u);
  EXPECT_EQ(BandRows(Format::kFp8, 128), 512u);
}

}  // namespace
}  // namespace segue::workload
