// SPDX-License-Identifier: Apache-2.0
//
// A follower and a receiver that says what it is told to: what is asked for, in which order, and
// what becomes of an update that an earlier look left half way.
#include "live/follower.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

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
  Status Take(const FollowRequest& request) override {
    calls.push_back("update " + request.session + " to " + std::to_string(*request.targets[0]));
    begun = request.session;
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
  void NoteTrouble(const Status& status) override { calls.push_back(status.message()); }

  std::vector<std::uint64_t> versions;
  std::uint64_t held = 0;
  std::string begun;
  ReceiverState state = ReceiverState::kIdle;
  Status listing, update, apply;
  std::vector<std::string> calls;
};

TEST(FollowerTest, TakesTheNewestOnce) {
  FakeReceiver receiver;
  receiver.versions = {3, 7};
  Follower follower(receiver);
  EXPECT_TRUE(follower.TakeNewest());
  EXPECT_TRUE(follower.TakeNewest());
  EXPECT_THAT(receiver.calls, ElementsAre("update follow-7 to 7"));
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
  EXPECT_THAT(receiver.calls, ElementsAre("the store is away"));
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
