// SPDX-License-Identifier: Apache-2.0
//
// The path of weights: a function of the position alone, and moved as far as the rules say.
#include "workload/optimizer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "workload/quantise.h"

namespace segue::workload {
namespace {

Dynamics Some() {
  Dynamics dynamics;
  dynamics.key = 5;
  dynamics.rows = 40;
  dynamics.columns = 33;  // Odd: the last column has no partner.
  dynamics.learning_rate = 1e-4f;
  return dynamics;
}

std::vector<float> Copy(const Band& band) { return {band.values().begin(), band.values().end()}; }

// Goal: bands may be cut anywhere. Method: the same rows as one band and as two.
TEST(Optimizer, PathsDoNotDependOnTheBand) {
  Band whole;
  Band part;
  whole.Start(Some(), 0, 40);
  part.Start(Some(), 17, 6);
  for (unsigned version = 0; version < 5; ++version) {
    for (std::size_t i = 0; i < part.values().size(); ++i) {
      ASSERT_EQ(part.values()[i], whole.values()[17 * 33 + i]);
    }
    whole.Step();
    part.Step();
  }
  EXPECT_EQ(whole.version(), 5u);
}

TEST(Optimizer, UsedAgainABandForgets) {
  Band used;
  used.Start(Some(), 3, 9);
  used.Step();
  used.Start(Some(), 0, 4);
  Band fresh;
  fresh.Start(Some(), 0, 4);
  EXPECT_EQ(Copy(used), Copy(fresh));
}

TEST(Optimizer, WithoutLearningRateWeightsStayOnTheGridOfTheOrigin) {
  Dynamics dynamics = Some();
  dynamics.learning_rate = 0;
  Band band;
  band.Start(dynamics, 0, 40);
  const std::vector<float> start = Copy(band);
  band.Step();
  EXPECT_EQ(Copy(band), start);
  for (const float value : start) {
    EXPECT_EQ(FloatFromBf16(Bf16FromFloat(value)), value);
  }
  dynamics.origin = Origin::kFp16;
  band.Start(dynamics, 0, 40);
  for (const float value : band.values()) {
    EXPECT_EQ(FloatFromFp16(Fp16FromFloat(value)), value);
  }
}

TEST(Optimizer, WeightsHaveTheirMeanAndScale) {
  Dynamics dynamics = Some();
  dynamics.mean = 1.0f;
  dynamics.scale = 0.03f;
  dynamics.rows = 1000;
  Band band;
  band.Start(dynamics, 0, 1000);
  double sum = 0;
  double squares = 0;
  for (const float value : band.values()) {
    sum += value - 1.0;
    squares += (value - 1.0) * (value - 1.0);
  }
  const auto count = static_cast<double>(band.values().size());
  EXPECT_NEAR(sum / count, 0.0, 1e-3);
  EXPECT_NEAR(std::sqrt(squares / count), 0.03, 1e-3);
}

// Steps are Adam's: bounded by a few learning rates, and for most elements held back by epsilon.
TEST(Optimizer, StepsAreOfTheSizeOfTheLearningRate) {
  Band band;
  band.Start(Some(), 0, 40);
  for (unsigned version = 0; version < 40; ++version) {
    const std::vector<float> before = Copy(band);
    band.Step();
    std::vector<float> distances;
    for (std::size_t i = 0; i < before.size(); ++i) {
      distances.push_back(std::fabs(band.values()[i] - before[i]));
    }
    std::sort(distances.begin(), distances.end());
    EXPECT_LT(distances.back(), 6e-4f);
    EXPECT_GT(distances.back(), 1e-5f);
    EXPECT_LT(distances[distances.size() / 2], 3e-6f);
  }
}

TEST(Optimizer, FarStepsChangeEveryStoredElement) {
  Dynamics dynamics = Some();
  dynamics.rule = StepRule::kFarSteps;
  Band band;
  band.Start(dynamics, 0, 40);
  for (unsigned version = 0; version < 40; ++version) {
    const std::vector<float> before = Copy(band);
    band.Step();
    for (std::size_t i = 0; i < before.size(); ++i) {
      ASSERT_NE(Bf16FromFloat(before[i]), Bf16FromFloat(band.values()[i]));
    }
  }
}

TEST(Optimizer, ZipfTouchesFrequentRowsAlwaysAndRareOnesSeldom) {
  Dynamics dynamics = Some();
  dynamics.row_use = RowUse::kZipf;
  dynamics.rows = 10'000;
  unsigned first = 0;
  unsigned last = 0;
  for (std::size_t row = 0; row < 100; ++row) {
    first += RowTakesPart(dynamics, 3, row);
    last += RowTakesPart(dynamics, 3, 9'999 - row);
  }
  EXPECT_EQ(first, 100u);
  EXPECT_GT(last, 5u);
  EXPECT_LT(last, 40u);
  Band band;
  band.Start(dynamics, 9'900, 100);
  const std::vector<float> before = Copy(band);
  band.Step();
  for (std::size_t row = 0; row < 100; ++row) {
    if (RowTakesPart(dynamics, 0, 9'900 + row)) continue;
    for (std::size_t column = 0; column < 33; ++column) {
      ASSERT_EQ(before[row * 33 + column], band.values()[row * 33 + column]);
    }
  }
}

TEST(Optimizer, IdleTensorsStayAsTheyAre) {
  Dynamics dynamics = Some();
  dynamics.idle_share = 0.5f;
  Band band;
  band.Start(dynamics, 0, 40);
  unsigned idle = 0;
  for (unsigned version = 0; version < 20; ++version) {
    const std::vector<float> before = Copy(band);
    band.Step();
    EXPECT_EQ(Copy(band) == before, !TensorTakesPart(dynamics, version));
    idle += !TensorTakesPart(dynamics, version);
  }
  EXPECT_GT(idle, 3u);
  EXPECT_LT(idle, 17u);
}

TEST(Optimizer, LearningRateDecaysSlowlyFromNearlyItsPeak) {
  EXPECT_GT(LearningRateFactor(0), 0.99f);
  EXPECT_GT(LearningRateFactor(32), 0.98f);
  EXPECT_LT(LearningRateFactor(1000), LearningRateFactor(500));
  EXPECT_NEAR(LearningRateFactor(1'000'000), 0.1f, 1e-6f);
}

}  // namespace
}  // namespace segue::workload
