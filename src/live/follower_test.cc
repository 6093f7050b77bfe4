// SPDX-License-Identifier: Apache-2.0
//
// A follower and a receiver that says what it is told to: what is asked for, in which order, and
// what becomes of an update that an earlier look left half way.
#include "live/follower.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "live/forwarding_environment.h"

namespace segue {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

class FakeReceiver : public Followed {
 public:
  Result<std::vector<std::optional<std::uint64_t>>> Newest() const override {
    if (!listing.ok()) return listing;
    std::optional<std::uint64_t> newest;
    if (!versions.empty()) newest = versions.back();
    return std::vector{newest};
  }
  std::vector<std::uint64_t> held_versions() const override { return {held}; }
  ReceiverState StateOf(const std::string& session) const override {
    return session == begun ? state : ReceiverState::kIdle;
  }
  Status RebuildAgain() override {
    if (rebuilds_due == 0) return {};
    calls.emplace_back("rebuild");
    return --rebuilds_due == 0 ? Status() : Unavailable("rebuild failed");
  }
  Status Take(const FollowRequest& request, const std::stop_token&) override {
    calls.push_back("update " + request.session + " to " + std::to_string(*request.targets[0]));
    if (!is_busy) begun = request.session;
    if (update.ok()) held = *request.targets[0];
    return update;
  }
  Status Apply(const std::string& session, const ApplyChoices&) override {
    calls.push_back("apply " + session);
    return apply;
  }
  Status Resume(const std::string& session, bool) override {
    calls.push_back("resume " + session);
    return {};
  }
  Status Abort(const std::string& session) override {
    calls.push_back("abort " + session);
    return {};
  }
  void NoteLook(const Status& status) override { looks.push_back(status.message()); }

  std::vector<std::uint64_t> versions;
  std::uint64_t held = 0;
  std::string begun;
  ReceiverState state = ReceiverState::kIdle;
  Status listing, update, apply;
  int rebuilds_due = 0;  // All but the last one fail.
  bool is_busy = false;  // With somebody else's update.
  std::vector<std::string> calls;
  std::vector<std::string> looks;  // Empty where all was well.
};

TEST(FollowerTest, TakesTheNewestOnce) {
  FakeReceiver receiver;
  receiver.versions = {3, 7};
  Follower follower(receiver);
  EXPECT_TRUE(follower.TakeNewest());
  EXPECT_TRUE(follower.TakeNewest());
  EXPECT_THAT(receiver.calls, ElementsAre("update follow-7 to 7"));
}

// Nobody else would: who asked for it has been told that it failed.
TEST(FollowerTest, RebuildsAgainBeforeItLooksForNews) {
  FakeReceiver receiver;
  receiver.versions = {3};
  receiver.rebuilds_due = 2;
  Follower follower(receiver);
  EXPECT_FALSE(follower.TakeNewest());
  EXPECT_THAT(receiver.looks, ElementsAre("rebuild failed"));
  EXPECT_TRUE(follower.TakeNewest());
  EXPECT_THAT(receiver.calls, ElementsAre("rebuild", "rebuild", "update follow-3 to 3"));
}

TEST(FollowerTest, HasNothingToDoBeforeTheFirstVersion) {
  FakeReceiver receiver;
  EXPECT_TRUE(Follower(receiver).TakeNewest());
  EXPECT_THAT(receiver.calls, IsEmpty());
}

TEST(FollowerTest, NotesThatVersionsCannotBeListed) {
  FakeReceiver receiver;
  receiver.listing = Unavailable("the store is away");
  EXPECT_FALSE(Follower(receiver).TakeNewest());
  EXPECT_THAT(receiver.looks, ElementsAre("the store is away"));
  receiver.listing = {};
  EXPECT_TRUE(Follower(receiver).TakeNewest());
  EXPECT_THAT(receiver.looks, ElementsAre("the store is away", ""));
}

// A controller that prepares and goes away must not stop a follower without a word.
TEST(FollowerTest, NotesThatSomebodyElsesUpdateIsInTheWay) {
  FakeReceiver receiver;
  receiver.versions = {1};
  receiver.begun = "controller";
  receiver.state = ReceiverState::kPrepared;
  receiver.is_busy = true;
  receiver.update = Unavailable("an update is in progress (session 'controller', PREPARED)");
  EXPECT_FALSE(Follower(receiver).TakeNewest());
  EXPECT_THAT(receiver.looks, ElementsAre(receiver.update.message()));
}

class RestingEnvironment : public ForwardingEnvironment {
 public:
  RestingEnvironment() : ForwardingEnvironment(SystemEnvironment()) {}
  Clock::time_point Now() override { return now; }
  void Sleep(Clock::duration duration, const std::stop_token&) override {
    rests.push_back(duration);
    if (rests.size() == 6) stop.request_stop();
  }
  std::unique_ptr<Device> MakeDevice(unsigned) override { return nullptr; }
  Result<std::unique_ptr<LiveWeights>> OpenWeights(const std::string&) override {
    return Unsupported("no weights here");
  }
  Result<std::unique_ptr<LiveWeights>> CreateWeights(const std::string&, const Plan&,
                                                     const std::string&) override {
    return Unsupported("no weights here");
  }
  Clock::time_point now = {};
  std::vector<Clock::duration> rests;
  std::stop_source stop;
};

// Engines wait at a gate that is being closed: who does not get it closed leaves it open for longer
// than that.
TEST(FollowerTest, RestsForLongerThanAFailedTryTook) {
  RestingEnvironment environment;
  class SlowReceiver : public FakeReceiver {
   public:
    explicit SlowReceiver(RestingEnvironment& world) : world_(world) {}
    Status Take(const FollowRequest& request, const std::stop_token& stop) override {
      world_.now += std::chrono::seconds(30);
      return FakeReceiver::Take(request, stop);
    }

   private:
    RestingEnvironment& world_;
  } receiver(environment);
  receiver.versions = {1};
  receiver.update = Unavailable("the gate did not close");
  Follower(receiver).Run(environment, std::chrono::milliseconds(100), environment.stop.get_token());
  using std::chrono::seconds;
  EXPECT_THAT(environment.rests, ElementsAre(seconds(60), seconds(120), seconds(240), seconds(240),
                                             seconds(240), seconds(240)));
}

TEST(FollowerTest, FinishesWhatWasAppliedAndStillOwed) {
  FakeReceiver receiver;
  receiver.versions = {1};
  receiver.update = Unavailable("a cache was not flushed");
  Follower follower(receiver);
  EXPECT_FALSE(follower.TakeNewest());
  receiver.state = ReceiverState::kApplied;
  receiver.held = 1;
  receiver.apply = Unavailable("not flushed yet");
  EXPECT_FALSE(follower.TakeNewest());
  receiver.apply = {};
  EXPECT_TRUE(follower.TakeNewest());
  EXPECT_THAT(receiver.calls, ElementsAre("update follow-1 to 1", "apply follow-1",
                                          "apply follow-1", "resume follow-1"));
}

TEST(FollowerTest, GivesUpWhatIsPreparedWhereSomethingNewerIsThere) {
  FakeReceiver receiver;
  receiver.versions = {1};
  receiver.update = Unavailable("the gate did not close");
  Follower follower(receiver);
  EXPECT_FALSE(follower.TakeNewest());
  receiver.state = ReceiverState::kPrepared;
  receiver.versions = {1, 2};
  receiver.update = {};
  EXPECT_TRUE(follower.TakeNewest());
  EXPECT_THAT(receiver.calls,
              ElementsAre("update follow-1 to 1", "abort follow-1", "update follow-2 to 2"));
}

TEST(FollowerTest, LeavesTheUpdateOfSomebodyElseAlone) {
  FakeReceiver receiver;
  receiver.versions = {1};
  receiver.held = 1;
  receiver.begun = "controller";
  receiver.state = ReceiverState::kPrepared;
  EXPECT_TRUE(Follower(receiver).TakeNewest());
  EXPECT_THAT(receiver.calls, IsEmpty());
}

}  // namespace
}  // namespace segue
