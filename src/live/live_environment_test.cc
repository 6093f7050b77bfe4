// SPDX-License-Identifier: Apache-2.0
//
// The machine's live environment: weights by name are segments, which outlive who held them.
#include "live/live_environment.h"

#include <gtest/gtest.h>

#include "live/testing.h"

namespace segue {
namespace {

TEST(LiveEnvironmentTest, WeightsOutliveTheirReceiver) {
  const test::SegmentName name;
  LiveEnvironment& machine = SystemLiveEnvironment();
  EXPECT_EQ(machine.OpenWeights(name).status().code(), StatusCode::kNotFound);
  {
    const auto made = machine.CreateWeights(name, test::SmallPlan(), "run");
    ASSERT_TRUE(made.ok()) << made.status().ToString();
    EXPECT_EQ(made.value()->phase(), Phase::kLoading);
    EXPECT_EQ(machine.OpenWeights(name).status().code(), StatusCode::kUnavailable);
    made.value()->Commit(7, Digest());
  }
  const auto opened = machine.OpenWeights(name);
  ASSERT_TRUE(opened.ok()) << opened.status().ToString();
  EXPECT_EQ(opened.value()->phase(), Phase::kServing);
  EXPECT_EQ(opened.value()->version().version, 7u);
  EXPECT_EQ(opened.value()->version().lineage, "run");
}

// A start that fails before the weights are a version's.
TEST(LiveEnvironmentTest, WeightsThatNeverServedGo) {
  const test::SegmentName name;
  LiveEnvironment& machine = SystemLiveEnvironment();
  ASSERT_TRUE(machine.CreateWeights(name, test::SmallPlan(), "run").ok());
  EXPECT_EQ(machine.OpenWeights(name).status().code(), StatusCode::kNotFound);
  // One that was there before is somebody's, whatever became of it.
  { machine.CreateWeights(name, test::SmallPlan(), "run").value()->Commit(7, Digest()); }
  { machine.OpenWeights(name).value()->SetPhase(Phase::kLoading); }
  EXPECT_EQ(machine.OpenWeights(name).value()->phase(), Phase::kLoading);
}

TEST(LiveEnvironmentTest, TheRestIsTheMachines) {
  LiveEnvironment& machine = SystemLiveEnvironment();
  EXPECT_NE(machine.MakeDevice(1), nullptr);
  EXPECT_EQ(machine.OpenStore("gopher:x", false).status().code(), StatusCode::kUnsupported);
  const auto start = machine.Now();
  machine.Sleep(std::chrono::milliseconds(1), {});
  EXPECT_GT(machine.Now(), start);
  bool ran = false;
  machine.Start(TaskPriority::kNormal, [&](const std::stop_token&) { ran = true; }).reset();
  EXPECT_TRUE(ran);
}

}  // namespace
}  // namespace segue
