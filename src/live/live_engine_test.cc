// SPDX-License-Identifier: Apache-2.0
//
// The steps of an update on an engine, one by one, without a receiver's states: what is asked in
// which order, and what is taken back when a step fails. Order under a receiver:
// engine_steps_test.cc; under several ranks: ranks_test.cc.
#include "live/live_engine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

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
  EXPECT_THAT(calls_, ElementsAre("pause", "default/0", "open", "resume"));
  // And what does not let go is said too.
  ASSERT_TRUE(Engine().Pause().ok());
  failing_ = "resume";
  EXPECT_THAT(Engine().LetGoUnless(Unavailable("later")).message(),
              AllOf(HasSubstr("no to resume"), HasSubstr("later")));
}

TEST_F(LiveEngineTest, AGateThatDoesNotCloseGivesTheEngineBack) {
  ASSERT_TRUE(Engine().HoldBound(model_).ok());
  ASSERT_TRUE(Engine().LetGo().ok());
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
  EXPECT_THAT(calls_, ElementsAre("pause", "close", "close"));
  ASSERT_TRUE(Engine().LetGo().ok());
  EXPECT_THAT(calls_, ElementsAre("pause", "close", "close", "default/2", "open", "resume"));
}

TEST_F(LiveEngineTest, RequestsThatDoNotFitAreRefusedBeforeAnythingIsRead) {
  ASSERT_TRUE(Engine().HoldBound(model_).ok());
  PrepareRequest request;
  request.base_version = 1;
  EXPECT_EQ(Engine().CheckRequest(request).code(), StatusCode::kVersionMismatch);
  request.base_version = 0;
  EXPECT_TRUE(Engine().CheckRequest(request).ok());
  EXPECT_TRUE(Engine().CheckRebuild(1).ok());
  EXPECT_EQ(Engine().CheckRebuild(9).code(), StatusCode::kNotFound);
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

// Caches of old weights, new weights: nothing lets the engine run before the flush.
TEST_F(LiveEngineTest, StaleCachesKeepTheEnginePaused) {
  options_.hooks.flush = [this]() -> Result<std::vector<std::string>> {
    SEGUE_RETURN_IF_ERROR(Call("flush"));
    return std::vector<std::string>{"kv"};
  };
  Advance(2);
  ASSERT_TRUE(Engine().HoldBound(model_).ok());
  ASSERT_TRUE(Engine().CatchUp({}, true).ok());
  failing_ = "flush";
  const Status begun = Engine().LetGo();
  EXPECT_EQ(begun.code(), StatusCode::kUnavailable);
  EXPECT_EQ(Engine().LetGoUnless(begun).code(), StatusCode::kUnavailable);
  EXPECT_EQ(Engine().steps().CallOff().code(), StatusCode::kUnavailable);
  EXPECT_THAT(calls_, ElementsAre("pause", "close", "flush", "flush"));
  failing_ = "";
  ASSERT_TRUE(Engine().LetGo().ok());
  EXPECT_EQ(calls_.back(), "resume");
}

TEST_F(LiveEngineTest, AnEngineThatMustNotRunIsNotToldToGoOn) {
  ASSERT_TRUE(Engine().HoldBound(model_).ok());
  ASSERT_TRUE(Engine().LetGo().ok());
  Engine().weights().SetPhase(Phase::kPoisoned);
  calls_.clear();
  failing_ = "pause";
  EXPECT_EQ(Engine().Pause().code(), StatusCode::kUnavailable);
  EXPECT_THAT(calls_, ElementsAre("pause"));
}

// Who reads weights of this process is there.
TEST_F(LiveEngineTest, AnEngineOfThisProcessCannotBeAbsent) {
  options_.hooks.pause = [](const PauseRequest&) { return NotFound("nobody listens"); };
  EXPECT_EQ(Engine().HoldBound(model_).code(), StatusCode::kNotFound);
  EXPECT_THAT(calls_, IsEmpty());
}

TEST_F(LiveEngineTest, ARebuildThatLeadsNowhereIsFoundOutFirst) {
  Advance(2);
  ASSERT_TRUE(Engine().HoldBound(model_).ok());
  ASSERT_TRUE(Engine().CatchUp({}, true).ok());
  trainer_.Step(3);  // Never published.
  const std::string lost = trainer_.Directory(3);
  ASSERT_TRUE(Engine().CheckRebuild({}).ok());
  std::filesystem::remove_all(options_.checkpoint);
  std::filesystem::copy(lost, options_.checkpoint);
  EXPECT_EQ(Engine().CheckRebuild({}).code(), StatusCode::kVersionMismatch);
}

// A wrong bit that a delta meets: known from then on, nothing more is applied, nothing is written.
TEST_F(LiveEngineTest, BytesThatAreNoLongerTheVersionAreKnownToBeWrong) {
  ASSERT_TRUE(Engine().HoldBound(model_).ok());
  for (ByteVector& buffer : buffers_) {
    for (std::byte& byte : buffer) byte ^= std::byte{0x20};
  }
  const std::vector<ByteVector> before = buffers_;
  PrepareRequest request;
  const auto update = Engine().MakeUpdate(request, {});
  EXPECT_EQ(update.status().code(), StatusCode::kCorruption);
  EXPECT_THAT(update.status().message(), HasSubstr("tensor '"));
  EXPECT_EQ(Engine().CheckHealth().code(), StatusCode::kCorruption);
  EXPECT_EQ(Engine().MakeUpdate(request, {}).status().code(), StatusCode::kCorruption);
  EXPECT_EQ(Engine().Close(1, {}).code(), StatusCode::kCorruption);
  EXPECT_EQ(buffers_, before);
  ASSERT_TRUE(Engine().Load({}).ok());
  EXPECT_TRUE(Engine().CheckHealth().ok());
  EXPECT_TRUE(Holds(0));
}

TEST_F(LiveEngineTest, WeightsOfNoVersionOfALineageThatAppearsLaterAreStrange) {
  options_.lineage = "later";
  ASSERT_TRUE(Engine().HoldBound(model_).ok());
  EXPECT_TRUE(Engine().CheckHealth().ok());
  PublishOptions publish = test::PublishOf(store_, trainer_.Directory(1), trainer_.Directory(1));
  publish.lineage = "later";
  ASSERT_TRUE(Publish(publish).ok());
  EXPECT_EQ(Engine().MakeUpdate({}, {}).status().code(), StatusCode::kVersionMismatch);
  EXPECT_EQ(Engine().CheckHealth().code(), StatusCode::kVersionMismatch);
}

}  // namespace
}  // namespace segue
