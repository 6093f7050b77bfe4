// SPDX-License-Identifier: Apache-2.0
//
// Moments and quantiles of the draws, at fixed keys.
#include "workload/noise.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace segue::workload {
namespace {

TEST(Noise, QuantilesAreThoseOfTheNormalDistribution) {
  EXPECT_NEAR(NormalQuantile(0.5), 0.0, 1e-9);
  EXPECT_NEAR(NormalQuantile(0.975), 1.959963984540054, 1e-8);
  EXPECT_NEAR(NormalQuantile(0.001), -3.090232306167813, 1e-7);
  EXPECT_NEAR(NormalQuantile(0.999), 3.090232306167813, 1e-7);
}

TEST(Noise, TableRunsFromBoundToBoundAndIsMonotone) {
  const NormalTable& table = NormalTable::Get();
  EXPECT_EQ(table.FromBits(0), -NormalTable::kBound);
  EXPECT_NEAR(table.FromBits(std::numeric_limits<std::uint32_t>::max()), NormalTable::kBound, 1e-4);
  EXPECT_NEAR(table.FromBits(1u << 31), 0.0f, 1e-7);
  float previous = -NormalTable::kBound;
  for (std::uint64_t bits = 0; bits < 1ull << 32; bits += 999'983) {
    const float value = table.FromBits(static_cast<std::uint32_t>(bits));
    EXPECT_GE(value, previous);
    previous = value;
  }
}

// Goal: the moments that the mechanism relies on. Method: a fixed key, so nothing is left to
// chance.
TEST(Noise, DrawsHaveMeanZeroAndVarianceOne) {
  double sum = 0;
  double squares = 0;
  constexpr int kCount = 1 << 18;
  for (std::uint64_t i = 0; i < kCount; ++i) {
    const float value = NormalTable::Get().FromBits(static_cast<std::uint32_t>(HashAt(7, i)));
    sum += value;
    squares += static_cast<double>(value) * value;
  }
  EXPECT_NEAR(sum / kCount, 0.0, 0.01);
  EXPECT_NEAR(squares / kCount, 1.0, 0.01);
}

TEST(Noise, LogNormalHasItsMedianAndSpread) {
  const LogNormalTable table(2.0);
  EXPECT_NEAR(table.FromBits(511) * table.FromBits(512), 1.0f, 1e-5);
  EXPECT_NEAR(std::log(table.FromBits(861)), 2.0 * NormalQuantile(861.5 / 1024), 1e-5);
  EXPECT_EQ(table.FromBits(5), table.FromBits(5 + 1024));
}

TEST(Noise, KeysOfPartsDiffer) {
  EXPECT_NE(SubKey(1, 0), SubKey(1, 1));
  EXPECT_NE(SubKey(1, 0), SubKey(2, 0));
  EXPECT_NE(HashAt(1, 0), HashAt(1, 1));
}

}  // namespace
}  // namespace segue::workload
