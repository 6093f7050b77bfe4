// SPDX-License-Identifier: Apache-2.0
//
// Goal: the sequences are fixed for good (stored files and printed seeds depend on them), bounds
// hold, and the distributions have roughly the right mean and spread.
#include "base/random.h"

#include <gtest/gtest.h>

#include <limits>

namespace segue {
namespace {

TEST(RandomTest, Mix64IsSplitMix64) {
  // First outputs of the published generator with seed 0, where step k mixes k * 0x9e37...7c15.
  EXPECT_EQ(Mix64(0), 0xe220a8397b1dcdafull);
  EXPECT_EQ(Mix64(0x9e3779b97f4a7c15ull), 0x6e789e6aa1b965f4ull);
  EXPECT_EQ(Mix64(2 * 0x9e3779b97f4a7c15ull), 0x06c45d188009454full);
}

TEST(RandomTest, SeedDecidesTheSequence) {
  Random a(1);
  Random b(1);
  Random c(2);
  int equal = 0;
  for (int i = 0; i < 100; ++i) {
    const std::uint64_t value = a.Next();
    EXPECT_EQ(value, b.Next());
    equal += value == c.Next();
  }
  EXPECT_EQ(equal, 0);
}

TEST(RandomTest, BelowStaysBelowAndReachesAll) {
  Random random(3);
  int seen[6] = {};
  for (int i = 0; i < 6000; ++i) ++seen[random.Below(6)];
  for (const int count : seen) EXPECT_NEAR(count, 1000, 150);
  EXPECT_EQ(random.Below(1), 0u);
  const std::uint64_t large = std::numeric_limits<std::uint64_t>::max();
  for (int i = 0; i < 100; ++i) EXPECT_LT(random.Below(large), large);
}

TEST(RandomTest, UniformAndNormalHaveTheirMoments) {
  constexpr int kCount = 20000;
  Random random(4);
  double uniform_sum = 0;
  double normal_sum = 0;
  double normal_squares = 0;
  for (int i = 0; i < kCount; ++i) {
    const double uniform = random.Uniform();
    ASSERT_GE(uniform, 0.0);
    ASSERT_LT(uniform, 1.0);
    uniform_sum += uniform;
    const double normal = random.Normal();
    normal_sum += normal;
    normal_squares += normal * normal;
  }
  EXPECT_NEAR(uniform_sum / kCount, 0.5, 0.01);
  EXPECT_NEAR(normal_sum / kCount, 0.0, 0.03);
  EXPECT_NEAR(normal_squares / kCount, 1.0, 0.05);
}

}  // namespace
}  // namespace segue
