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
    if (!engine_) {
      engine_ = std::make_unique<LiveEngine>(std::vector{options_}, options_.hooks,
                                             SystemLiveEnvironment());
    }
    return *engine_;
  }

  Status Hold() { return Engine().HoldBound({model_}); }

  static EngineRequest Asked(const PrepareRequest& part) { return {"s", {part}}; }
  static EngineRequest To(std::optional<std::uint64_t> version) {
    PrepareRequest part;
    part.target_version = version;
    return Asked(part);
  }

  std::vector<std::string> calls_;
  std::string failing_;
  std::unique_ptr<LiveEngine> engine_;
};

TEST_F(LiveEngineTest, HeldWeightsAreProvenAndPaused) {
  ASSERT_TRUE(Hold().ok());
  EXPECT_THAT(calls_, ElementsAre("pause"));
  EXPECT_EQ(Engine().weights().version().version, 0u);
  EXPECT_TRUE(Engine().steps().paused());
}

TEST_F(LiveEngineTest, BytesOfNoVersionAreNotHeld) {
  buffers_[0][5] ^= std::byte{1};
  EXPECT_EQ(Hold().code(), StatusCode::kVersionMismatch);
  EXPECT_THAT(calls_, IsEmpty()) << "an engine was paused for weights that are not held";
}

TEST_F(LiveEngineTest, AStartThatFailsLetsTheEngineGoOn) {
  ASSERT_TRUE(Hold().ok());
  EXPECT_EQ(Engine().LetGoUnless(Unavailable("later")).code(), StatusCode::kUnavailable);
  EXPECT_THAT(calls_, ElementsAre("pause", "default/0", "open", "resume"));
  // And what does not let go is said too.
  ASSERT_TRUE(Engine().Pause().ok());
  failing_ = "resume";
  EXPECT_THAT(Engine().LetGoUnless(Unavailable("later")).message(),
              AllOf(HasSubstr("no to resume"), HasSubstr("later")));
}

TEST_F(LiveEngineTest, AGateThatDoesNotCloseGivesTheEngineBack) {
  ASSERT_TRUE(Hold().ok());
  ASSERT_TRUE(Engine().LetGo().ok());
  calls_.clear();
  failing_ = "close";
  const auto update = Engine().MakeUpdate(To(1), {});
  ASSERT_TRUE(update.ok());
  EXPECT_EQ(Engine().Close(*update.value(), {}).code(), StatusCode::kUnavailable);
  EXPECT_THAT(calls_, ElementsAre("pause", "close", "resume"));
  EXPECT_TRUE(Holds(0));
}

TEST_F(LiveEngineTest, CatchesUpWithTheNewestOrTheOneAskedFor) {
  Advance(2);
  ASSERT_TRUE(Hold().ok());
  auto update = Engine().CatchUp(To(1), true);
  ASSERT_TRUE(update.ok()) << update.status().ToString();
  EXPECT_EQ(update.value()->part(0)->report().target_version, 1u);
  EXPECT_TRUE(Holds(1));
  update = Engine().CatchUp(To({}), true);
  ASSERT_TRUE(update.ok());
  EXPECT_EQ(update.value()->part(0)->report().base_version, 1u);
  EXPECT_TRUE(Holds(2));
  EXPECT_THAT(calls_, ElementsAre("pause", "close", "close"));
  ASSERT_TRUE(Engine().LetGo().ok());
  EXPECT_THAT(calls_, ElementsAre("pause", "close", "close", "default/2", "open", "resume"));
}

TEST_F(LiveEngineTest, RequestsThatDoNotFitAreRefusedBeforeAnythingIsRead) {
  ASSERT_TRUE(Hold().ok());
  PrepareRequest request;
  request.base_version = 1;
  EXPECT_EQ(Engine().CheckRequest(Asked(request)).code(), StatusCode::kVersionMismatch);
  request.base_version = 0;
  EXPECT_TRUE(Engine().CheckRequest(Asked(request)).ok());
  EXPECT_TRUE(Engine().CheckRebuild(To(1)).ok());
  EXPECT_EQ(Engine().CheckRebuild(To(9)).code(), StatusCode::kNotFound);
}

// Caches of old weights, new weights: nothing lets the engine run before the flush.
TEST_F(LiveEngineTest, StaleCachesKeepTheEnginePaused) {
  options_.hooks.flush = [this]() -> Result<std::vector<std::string>> {
    SEGUE_RETURN_IF_ERROR(Call("flush"));
    return std::vector<std::string>{"kv"};
  };
  Advance(2);
  ASSERT_TRUE(Hold().ok());
  ASSERT_TRUE(Engine().CatchUp(To({}), true).ok());
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
  ASSERT_TRUE(Hold().ok());
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
  EXPECT_EQ(Hold().code(), StatusCode::kNotFound);
  EXPECT_THAT(calls_, IsEmpty());
}

}  // namespace
}  // namespace segue
