// SPDX-License-Identifier: Apache-2.0
//
// Engines with control of their own (cases E2, E3): a receiver of bound weights and hooks that
// write down when they are called and fail when told to. The order is always pause, apply, flush,
// version, resume; what fails before the apply changes nothing, what fails after it is owed.
#include "live/engine_steps.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <mutex>
#include <thread>

#include "live/testing.h"

namespace segue {
namespace {

using test::PublishOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class EngineStepsTest : public test::BoundFixture {
 protected:
  EngineStepsTest() {
    model_.close_gate = [this](std::chrono::milliseconds) { return Call("close"); };
    model_.open_gate = [this] { return Call("open"); };
    EngineHooks& hooks = options_.hooks;
    hooks.pause = [this](const PauseRequest& request) {
      last_pause_ = request;
      return Call("pause");
    };
    hooks.flush = [this]() -> Result<std::vector<std::string>> {
      bytes_at_flush_ = buffers_;
      SEGUE_RETURN_IF_ERROR(Call("flush"));
      return std::vector<std::string>{"kv", "mm"};
    };
    hooks.set_version = [this](const std::string& label) { return Call("version " + label); };
    hooks.resume = [this] { return Call("resume"); };
    receiver_ = Receiver::Open(options_, model_).value();
    calls_.clear();
  }

  Status Call(const std::string& what) {
    const std::lock_guard lock(mutex_);
    calls_.push_back(what);
    const std::string verb = what.substr(0, what.find(' '));
    if (verb != failing_.load()) return {};
    return Unavailable("the engine says no to " + verb);
  }

  Status Prepare() {
    PrepareRequest request;
    request.session = "s";
    SEGUE_RETURN_IF_ERROR(receiver_->Prepare(request));
    return receiver_->WaitPrepared();
  }

  std::vector<ByteVector> bytes_at_flush_;
  std::mutex mutex_;  // A follower calls from its own thread.
  std::vector<std::string> calls_;
  std::atomic<const char*> failing_ = "nothing";
  PauseRequest last_pause_;
  std::unique_ptr<Receiver> receiver_;
};

TEST_F(EngineStepsTest, TheOrderIsFixed) {
  Advance(2);
  ASSERT_TRUE(Prepare().ok());
  EXPECT_THAT(calls_, IsEmpty());
  ASSERT_TRUE(receiver_->Apply("s").ok());
  EXPECT_THAT(calls_, ElementsAre("pause", "close", "flush", "version default/2"));
  EXPECT_EQ(bytes_at_flush_, buffers_) << "flushed before the last byte was written";
  EXPECT_TRUE(Holds(2));
  ASSERT_TRUE(receiver_->Resume("s").ok());
  EXPECT_THAT(calls_,
              ElementsAre("pause", "close", "flush", "version default/2", "open", "resume"));
  EXPECT_THAT(receiver_->status().last.flushed_caches, ElementsAre("kv", "mm"));
  EXPECT_FALSE(last_pause_.abort_requests);
  EXPECT_TRUE(last_pause_.flush_cache);
}

TEST_F(EngineStepsTest, ChoicesReachTheEngine) {
  Advance(2);
  PrepareRequest request;
  request.session = "s";
  ASSERT_TRUE(receiver_->Update(request, {false, true}).ok());
  EXPECT_THAT(calls_, ElementsAre("pause", "close", "version default/2", "open", "resume"));
  EXPECT_TRUE(last_pause_.abort_requests);
  EXPECT_FALSE(last_pause_.flush_cache);
  EXPECT_THAT(receiver_->status().last.flushed_caches, IsEmpty());
}

TEST_F(EngineStepsTest, AnUpdateOfNothingPausesNobody) {
  ASSERT_TRUE(Publish(PublishOf(store_, trainer_.Directory(1), trainer_.Directory(1))).ok());
  PrepareRequest request;
  request.session = "s";
  ASSERT_TRUE(receiver_->Update(request).ok());
  EXPECT_THAT(calls_, ElementsAre("version default/2"));
}

TEST_F(EngineStepsTest, ARefusedPauseChangesNothing) {
  Advance(2);
  ASSERT_TRUE(Prepare().ok());
  failing_ = "pause";
  const Status refused = receiver_->Apply("s");
  EXPECT_EQ(refused.code(), StatusCode::kUnavailable);
  EXPECT_THAT(refused.message(), HasSubstr("did not pause"));
  EXPECT_THAT(calls_, ElementsAre("pause", "resume"));
  EXPECT_TRUE(Holds(1));
  EXPECT_EQ(receiver_->status().state, ReceiverState::kPrepared);
  failing_ = "close";
  calls_.clear();
  EXPECT_EQ(receiver_->Apply("s").code(), StatusCode::kUnavailable);
  EXPECT_THAT(calls_, ElementsAre("pause", "close", "resume"));
  EXPECT_TRUE(Holds(1));
  failing_ = "nothing";
  EXPECT_TRUE(receiver_->Apply("s").ok());
  EXPECT_TRUE(receiver_->Resume("s").ok());
  EXPECT_TRUE(Holds(2));
}

// A follower goes on by itself once the engine does.
TEST_F(EngineStepsTest, AFollowerFinishesWhatItLeft) {
  for (const char* const failure : {"flush", "close", "resume"}) {
    SCOPED_TRACE(failure);
    failing_ = failure;
    Advance(trainer_.version() + 1);
    ASSERT_TRUE(receiver_->Follow(std::chrono::milliseconds(2)).ok());
    // While it tries again the message is another one.
    std::string message;
    test::Eventually([&] {
      message = receiver_->status().message;
      return message.find(failure) != std::string::npos;
    });
    EXPECT_THAT(message, HasSubstr(failure));
    Advance(trainer_.version() + 1);
    failing_ = "nothing";
    test::Eventually([&] { return receiver_->status().version == trainer_.version(); });
    EXPECT_EQ(receiver_->status().version, trainer_.version());
    test::Eventually([&] { return receiver_->status().state == ReceiverState::kResumed; });
    EXPECT_TRUE(receiver_->status().ready);
    EXPECT_TRUE(Holds(trainer_.version()));
  }
}

// Applied but not flushed: the engine stays paused until it is, or the caller lets it be.
TEST_F(EngineStepsTest, AFailedFlushIsOwed) {
  Advance(2);
  ASSERT_TRUE(Prepare().ok());
  failing_ = "flush";
  const Status applied = receiver_->Apply("s");
  EXPECT_EQ(applied.code(), StatusCode::kUnavailable);
  EXPECT_THAT(applied.message(), HasSubstr("applied, but the caches stay"));
  EXPECT_TRUE(Holds(2));
  EXPECT_EQ(receiver_->status().state, ReceiverState::kApplied);
  EXPECT_THAT(receiver_->status().message, HasSubstr("caches stay"));
  EXPECT_EQ(receiver_->Resume("s").code(), StatusCode::kUnavailable);
  EXPECT_EQ(receiver_->Apply("s").code(), StatusCode::kUnavailable);
  EXPECT_EQ(std::ranges::count(calls_, "resume"), 0);
  EXPECT_EQ(std::ranges::count(calls_, "close"), 1) << "no second apply";
  failing_ = "nothing";
  ASSERT_TRUE(receiver_->Apply("s").ok());
  ASSERT_TRUE(receiver_->Resume("s").ok());
  EXPECT_TRUE(Holds(2));
  EXPECT_EQ(std::ranges::count(calls_, "pause"), 1);
}

TEST_F(EngineStepsTest, AFailedFlushCanBeLetBe) {
  Advance(2);
  ASSERT_TRUE(Prepare().ok());
  failing_ = "flush";
  EXPECT_FALSE(receiver_->Apply("s").ok());
  ASSERT_TRUE(receiver_->Apply("s", {false, false}).ok());
  ASSERT_TRUE(receiver_->Resume("s").ok());
  EXPECT_TRUE(receiver_->status().ready);
}

TEST_F(EngineStepsTest, AFailedResumeIsTriedAgain) {
  Advance(2);
  ASSERT_TRUE(Prepare().ok());
  ASSERT_TRUE(receiver_->Apply("s").ok());
  failing_ = "resume";
  EXPECT_EQ(receiver_->Resume("s").code(), StatusCode::kUnavailable);
  EXPECT_EQ(receiver_->status().state, ReceiverState::kApplied);
  failing_ = "nothing";
  EXPECT_TRUE(receiver_->Resume("s").ok());
  EXPECT_EQ(receiver_->status().state, ReceiverState::kResumed);
}

TEST_F(EngineStepsTest, KeepPauseLeavesTheEnginePaused) {
  Advance(2);
  ASSERT_TRUE(Prepare().ok());
  ASSERT_TRUE(receiver_->Apply("s").ok());
  ASSERT_TRUE(receiver_->Resume("s", /*keep_pause=*/true).ok());
  EXPECT_EQ(calls_.back(), "open");
}

TEST_F(EngineStepsTest, ARebuildPausesAndFlushes) {
  Advance(2);
  ASSERT_TRUE(receiver_->Rebuild({}).ok());
  EXPECT_EQ(calls_.front(), "pause");
  EXPECT_THAT(std::vector<std::string>(calls_.end() - 4, calls_.end()),
              ElementsAre("flush", "version default/2", "open", "resume"));
  EXPECT_TRUE(Holds(2));
  calls_.clear();
  failing_ = "pause";
  EXPECT_EQ(receiver_->Rebuild({}).code(), StatusCode::kUnavailable);
  EXPECT_TRUE(receiver_->status().ready);
  EXPECT_TRUE(Holds(2));
  EXPECT_EQ(std::ranges::count(calls_, "close"), 0);
}

// Whoever does not get as far as to serve leaves the engine running.
TEST_F(EngineStepsTest, AStartThatFailsLetsTheEngineGoOn) {
  receiver_.reset();
  Advance(2);
  ASSERT_TRUE(RemoveTree(store_ + "/default/payloads/0000000002").ok());
  EXPECT_FALSE(Receiver::Open(options_, model_).ok());
  EXPECT_THAT(calls_, ElementsAre("pause", "flush", "version default/1", "open", "resume"));
  EXPECT_TRUE(Holds(1));
}

// The weights have moved on, the caches have not: the engine stays paused.
TEST_F(EngineStepsTest, AStartThatFailsAfterTheWeightsChangedKeepsTheEnginePaused) {
  receiver_.reset();
  Advance(2);
  failing_ = "flush";
  EXPECT_EQ(Receiver::Open(options_, model_).status().code(), StatusCode::kUnavailable);
  EXPECT_TRUE(Holds(2));
  EXPECT_EQ(std::ranges::count(calls_, "resume"), 0);
}

// No way leads round the flush that a rebuild owes; while it is owed the receiver is not ready.
TEST_F(EngineStepsTest, AnUpdateOfNothingAfterARebuildFlushesFirst) {
  failing_ = "flush";
  EXPECT_EQ(receiver_->Rebuild({}).code(), StatusCode::kUnavailable);
  EXPECT_FALSE(receiver_->status().ready);
  PrepareRequest request;
  request.session = "s";
  EXPECT_EQ(receiver_->Update(request).status().code(), StatusCode::kUnavailable);
  EXPECT_EQ(std::ranges::count(calls_, "resume"), 0);
  failing_ = "nothing";
  ASSERT_TRUE(receiver_->Apply("s").ok());
  ASSERT_TRUE(receiver_->Resume("s").ok());
  EXPECT_EQ(calls_.back(), "resume");
  EXPECT_TRUE(receiver_->status().ready);
}

// Nothing is asked of the engine by anybody else while a rebuild still has to do with it.
TEST_F(EngineStepsTest, ARebuildEndsBeforeAnotherUpdateBegins) {
  Advance(2);
  Status meanwhile;
  options_.hooks.set_version = [&](const std::string& label) {
    if (receiver_ && label == "default/2") {
      PrepareRequest request;
      request.session = "other";
      meanwhile = receiver_->Prepare(request);
      EXPECT_FALSE(receiver_->status().ready);
    }
    return Call("version " + label);
  };
  receiver_.reset();
  receiver_ = Receiver::Open(options_, model_).value();
  ASSERT_TRUE(receiver_->Rebuild({}).ok());
  EXPECT_EQ(meanwhile.code(), StatusCode::kUnavailable);
}

// A clean end finishes what is applied.
TEST_F(EngineStepsTest, ReleaseLetsTheEngineGoOn) {
  Advance(2);
  ASSERT_TRUE(Prepare().ok());
  failing_ = "flush";
  EXPECT_FALSE(receiver_->Apply("s").ok());
  failing_ = "nothing";
  EXPECT_FALSE(receiver_->status().ready) << "the gate is closed";
  ASSERT_TRUE(receiver_->Release().ok());
  EXPECT_EQ(calls_.back(), "resume");
  EXPECT_EQ(receiver_->status().state, ReceiverState::kResumed);
  Advance(3);
  PrepareRequest request;
  request.session = "t";
  ASSERT_TRUE(receiver_->Prepare(request).ok());
  ASSERT_TRUE(receiver_->Release().ok());
  EXPECT_EQ(receiver_->status().state, ReceiverState::kAborted);
}

// As by a handler of a signal that comes while the engine answers.
TEST_F(EngineStepsTest, TheEngineAsksForTheStatusWhileItIsAsked) {
  receiver_.reset();
  int asked = 0;
  model_.generation = [&]() -> std::uint64_t {
    if (receiver_ && ++asked == 1) {
      EXPECT_TRUE(receiver_->status().ready);
    }
    return 1;
  };
  receiver_ = Receiver::Open(options_, model_).value();
  EXPECT_TRUE(receiver_->status().ready);
  EXPECT_EQ(asked, 2);
}

TEST_F(EngineStepsTest, ManyThreadsBeginToFollow) {
  {
    std::vector<std::jthread> threads;
    for (int i = 0; i < 8; ++i) {
      threads.emplace_back([&] {
        for (int k = 0; k < 20; ++k) {
          EXPECT_TRUE(receiver_->Follow(std::chrono::milliseconds(1)).ok());
        }
      });
    }
  }
  Advance(2);
  while (receiver_->status().version != 2) std::this_thread::yield();
  EXPECT_TRUE(receiver_->Release().ok());
}

TEST_F(EngineStepsTest, ASecondReceiverOfASegmentAsksNothingOfTheEngine) {
  const test::SegmentName name("engine-steps");
  options_.name = name;
  receiver_ = Receiver::Open(options_).value();
  calls_.clear();
  EXPECT_EQ(Receiver::Open(options_).status().code(), StatusCode::kUnavailable);
  EXPECT_THAT(calls_, IsEmpty());
}

TEST_F(EngineStepsTest, WhatAnEngineCannotDoIsRefusedFirst) {
  Advance(2);
  receiver_.reset();
  options_.hooks.flush = nullptr;
  receiver_ = Receiver::Open(options_, model_).value();
  Advance(3);
  PrepareRequest request;
  request.session = "s";
  EXPECT_EQ(receiver_->Update(request).status().code(), StatusCode::kUnsupported);
  EXPECT_TRUE(Holds(2));
  EXPECT_TRUE(receiver_->Update(request, {false, false}).ok());
  options_.hooks = {};
  receiver_.reset();
  receiver_ = Receiver::Open(options_, model_).value();
  Advance(4);
  EXPECT_EQ(receiver_->Update(request, {true, true}).status().code(), StatusCode::kUnsupported);
  EXPECT_TRUE(Holds(3));
  ASSERT_TRUE(Prepare().ok());
  ASSERT_TRUE(receiver_->Apply("s").ok());
  EXPECT_EQ(receiver_->Resume("s", true).code(), StatusCode::kUnsupported);
  EXPECT_TRUE(receiver_->Resume("s").ok());
}

}  // namespace
}  // namespace segue
