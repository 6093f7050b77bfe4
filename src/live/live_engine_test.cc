// SPDX-License-Identifier: Apache-2.0
//
// The steps of an update on an engine, one by one, without a receiver's states: what is asked in
// which order, and what is taken back when a step fails. Order under a receiver:
// engine_steps_test.cc; under several ranks: ranks_test.cc.
#include "live/live_engine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "live/testing.h"

namespace segue {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class LiveEngineTest : public test::BoundFixture {
 protected:
  LiveEngineTest() {
    model_.close_gate = [this](std::chrono::milliseconds) { return Call("close"); };
    model_.open_gate = [this] { return Call("open"); };
    options_.hooks.pause = [this](const PauseRequest&) { return Call("pause"); };
    options_.hooks.resume = [this] { return Call("resume"); };
    options_.hooks.set_version = [this](const std::string& label) { return Call(label); };
  }

  Status Call(const std::string& what) {
    calls_.push_back(what);
    return what == failing_ ? Unavailable("no to " + what) : Status();
  }

  LiveEngine& Engine() {
    if (!engine_) engine_ = std::make_unique<LiveEngine>(options_, SystemLiveEnvironment());
    return *engine_;
  }

  std::vector<std::string> calls_;
  std::string failing_;
  std::unique_ptr<LiveEngine> engine_;
};

TEST_F(LiveEngineTest, HeldWeightsAreProvenAndPaused) {
  ASSERT_TRUE(Engine().HoldBound(model_).ok());
  EXPECT_THAT(calls_, ElementsAre("pause"));
  EXPECT_EQ(Engine().weights().version().version, 0u);
  EXPECT_TRUE(Engine().steps().paused());
}

TEST_F(LiveEngineTest, BytesOfNoVersionAreNotHeld) {
  buffers_[0][5] ^= std::byte{1};
  EXPECT_EQ(Engine().HoldBound(model_).code(), StatusCode::kVersionMismatch);
  EXPECT_THAT(calls_, IsEmpty()) << "an engine was paused for weights that are not held";
}

TEST_F(LiveEngineTest, AStartThatFailsLetsTheEngineGoOn) {
  ASSERT_TRUE(Engine().HoldBound(model_).ok());
  EXPECT_EQ(Engine().LetGoUnless(Unavailable("later")).code(), StatusCode::kUnavailable);
  EXPECT_THAT(calls_, ElementsAre("pause", "resume"));
  // And what does not let go is said too.
  ASSERT_TRUE(Engine().steps().Pause({}).ok());
  failing_ = "resume";
  EXPECT_THAT(Engine().LetGoUnless(Unavailable("later")).message(),
              AllOf(HasSubstr("no to resume"), HasSubstr("later")));
}

TEST_F(LiveEngineTest, AGateThatDoesNotCloseGivesTheEngineBack) {
  ASSERT_TRUE(Engine().HoldBound(model_).ok());
  ASSERT_TRUE(Engine().Tell().ok());
  calls_.clear();
  failing_ = "close";
  EXPECT_EQ(Engine().Close(1, {}).code(), StatusCode::kUnavailable);
  EXPECT_THAT(calls_, ElementsAre("pause", "close", "resume"));
  EXPECT_TRUE(Holds(0));
}

TEST_F(LiveEngineTest, CatchesUpWithTheNewestOrTheOneAskedFor) {
  Advance(2);
  ASSERT_TRUE(Engine().HoldBound(model_).ok());
  auto report = Engine().CatchUp(1, true);
  ASSERT_TRUE(report.ok()) << report.status().ToString();
  EXPECT_EQ(report.value()->target_version, 1u);
  EXPECT_TRUE(Holds(1));
  report = Engine().CatchUp({}, true);
  ASSERT_TRUE(report.ok());
  EXPECT_EQ(report.value()->base_version, 1u);
  EXPECT_TRUE(Holds(2));
  EXPECT_THAT(calls_, ElementsAre("pause", "close", "open", "close", "open"));
}

TEST_F(LiveEngineTest, RequestsThatDoNotFitAreRefusedBeforeAnythingIsRead) {
  ASSERT_TRUE(Engine().HoldBound(model_).ok());
  PrepareRequest request;
  request.base_version = 1;
  EXPECT_EQ(Engine().CheckRequest(request).code(), StatusCode::kVersionMismatch);
  request.base_version = 0;
  EXPECT_TRUE(Engine().CheckRequest(request).ok());
  EXPECT_TRUE(Engine().CheckTarget(1).ok());
  EXPECT_EQ(Engine().CheckTarget(9).code(), StatusCode::kNotFound);
}

TEST_F(LiveEngineTest, ADifferentPlanOrManifestIsRefused) {
  ASSERT_TRUE(Engine().HoldBound(model_).ok());
  PrepareRequest request;
  request.plan_digest = std::string(32, '0');
  EXPECT_EQ(Engine().MakeUpdate(request, {}).status().code(), StatusCode::kVersionMismatch);
  request.plan_digest = Engine().weights().plan().digest().ToHex();
  request.manifest_sha256 = std::string(64, '0');
  EXPECT_EQ(Engine().MakeUpdate(request, {}).status().code(), StatusCode::kCorruption);
  EXPECT_TRUE(Holds(0));
}

}  // namespace
}  // namespace segue
