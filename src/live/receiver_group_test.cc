// SPDX-License-Identifier: Apache-2.0
//
// A group of receivers over bound weights, with gates and hooks that say what is asked of them and
// fail where they are told to: all lineages move or none does, whatever fails when. Over segments,
// with real kills: receiver_group_segment_test.cc.
#include "segue/receiver_group.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <filesystem>
#include <numeric>
#include <thread>

#include "base/file.h"
#include "delta/manifest.h"
#include "live/group_testing.h"
#include "live/testing.h"
#include "segue/enter_all.h"
#include "segue/step_gate.h"

namespace segue {
namespace {

using std::chrono::milliseconds;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;

class ReceiverGroupTest : public test::GroupFixture {
 protected:
  ReceiverGroupTest() {
    policy_.Advance(1);
    draft_.Advance(1);
    policy_.Bind();
    draft_.Bind();
    for (test::GroupLineage* const lineage : {&policy_, &draft_}) {
      const std::string name = lineage->name;
      lineage->model.close_gate = [this, lineage, name](milliseconds) {
        const Status closed = Call("close " + name);
        if (closed.ok() && lineage->at_close) lineage->at_close();
        return closed;
      };
      lineage->model.open_gate = [this, name] {
        // Nobody may read before the last lineage is where it belongs.
        at_open_.push_back({policy_.Held(), draft_.Held()});
        return Call("open " + name);
      };
    }
  }

  void AddHooks() {
    options_.hooks.pause = [this](const PauseRequest&) { return Call("pause"); };
    options_.hooks.flush = [this]() -> Result<std::vector<std::string>> {
      SEGUE_RETURN_IF_ERROR(Call("flush"));
      return std::vector<std::string>{"kv"};
    };
    options_.hooks.set_version = [this](const std::string& label) {
      return Call("version " + label);
    };
    options_.hooks.resume = [this] { return Call("resume"); };
  }

  Status Call(const std::string& what) {
    calls_.push_back(what);
    return what == failing_ ? Unavailable("no to " + what) : Status();
  }

  // At version 1 of each; what was asked until then is forgotten.
  void Open() {
    options_.lineages = {policy_.options, draft_.options};
    auto group = ReceiverGroup::Open(options_, {policy_.model, draft_.model});
    ASSERT_TRUE(group.ok()) << group.status().ToString();
    group_ = std::move(group).value();
    ExpectHeld(1, 1);
    calls_.clear();
    at_open_.clear();
  }

  void ExpectHeld(std::uint64_t policy, std::uint64_t draft) {
    EXPECT_EQ(policy_.Held(), policy);
    EXPECT_EQ(draft_.Held(), draft);
    const auto status = group_->status();
    EXPECT_EQ(status[0].version, policy);
    EXPECT_EQ(status[1].version, draft);
  }

  static GroupRequest Both(std::string session = "s") { return {std::move(session), {}, {}}; }

  std::vector<std::string> calls_;
  std::vector<std::pair<std::uint64_t, std::uint64_t>> at_open_;
  std::string failing_;
  std::unique_ptr<ReceiverGroup> group_;
};

TEST_F(ReceiverGroupTest, StartsWithTheNewestOfEachTogether) {
  draft_.Advance(2);
  options_.lineages = {policy_.options, draft_.options};
  auto group = ReceiverGroup::Open(options_, {policy_.model, draft_.model});
  ASSERT_TRUE(group.ok()) << group.status().ToString();
  group_ = std::move(group).value();
  ExpectHeld(1, 2);
  EXPECT_THAT(calls_, ElementsAre("close policy", "close draft", "open policy", "open draft"));
  for (const ReceiverStatus& status : group_->status()) EXPECT_TRUE(status.ready);
}

TEST_F(ReceiverGroupTest, OnePauseForAllInAFixedOrder) {
  AddHooks();
  Open();
  policy_.Advance(2);
  draft_.Advance(2);
  ASSERT_TRUE(group_->Prepare(Both()).ok());
  ASSERT_TRUE(group_->WaitPrepared().ok());
  EXPECT_THAT(calls_, IsEmpty());
  ASSERT_TRUE(group_->Apply("s").ok());
  EXPECT_THAT(calls_, ElementsAre("pause", "close policy", "close draft", "flush",
                                  "version policy/2 draft/2"));
  EXPECT_FALSE(group_->status()[1].ready);
  ASSERT_TRUE(group_->Resume("s").ok());
  EXPECT_THAT(calls_,
              ElementsAre("pause", "close policy", "close draft", "flush",
                          "version policy/2 draft/2", "open policy", "open draft", "resume"));
  EXPECT_THAT(at_open_, ElementsAre(std::pair(2, 2), std::pair(2, 2)));
  ExpectHeld(2, 2);
  for (const ReceiverStatus& status : group_->status()) {
    EXPECT_TRUE(status.ready);
    EXPECT_EQ(status.state, ReceiverState::kResumed);
    EXPECT_GT(status.last.pause_s, 0);
    EXPECT_THAT(status.last.flushed_caches, ElementsAre("kv"));
  }
}

// Statuses that are put together from two moments show a pair that was never served.
TEST_F(ReceiverGroupTest, AStatusIsOfOneMoment) {
  Open();
  std::atomic<std::uint64_t> mixed{0};
  std::vector<std::jthread> askers;
  for (int i = 0; i < 2; ++i) {
    askers.emplace_back([&](const std::stop_token& stop) {
      while (!stop.stop_requested()) {
        const auto status = group_->status();
        const bool ready = status[0].ready && status[1].ready;
        if (ready && status[0].version != status[1].version) ++mixed;
      }
    });
  }
  for (std::uint64_t version = 2; version < 40; ++version) {
    policy_.Advance(version);
    draft_.Advance(version);
    ASSERT_TRUE(group_->Update(Both("to " + std::to_string(version))).ok());
  }
  askers.clear();
  EXPECT_EQ(mixed, 0u);
}

TEST_F(ReceiverGroupTest, ALineageThatIsNotNamedStays) {
  Open();
  policy_.Advance(2);
  draft_.Advance(2);
  GroupRequest request{"s", {{"draft", {}}}, {}};
  ASSERT_TRUE(group_->Update(request).ok());
  ExpectHeld(1, 2);
  EXPECT_THAT(calls_, ElementsAre("close draft", "open draft"));
  EXPECT_EQ(group_->status()[0].target_version, 1u);
  request.lineages = {{"policy", {}}, {"draft", {}}};
  request.lineages["policy"].target_version = 2;
  request.lineages["draft"].target_version = 2;
  request.session = "t";
  ASSERT_TRUE(group_->Update(request).ok());
  ExpectHeld(2, 2);
  EXPECT_THAT(calls_, ElementsAre("close draft", "open draft", "close policy", "open policy"))
      << "a lineage that is at its target was held";
}

TEST_F(ReceiverGroupTest, OneNumberIsForAll) {
  Open();
  policy_.Advance(2);
  policy_.Advance(3);
  draft_.Advance(2);
  ASSERT_TRUE(group_->Update({"s", {}, 2}).ok());
  ExpectHeld(2, 2);
  const Status refused = group_->Update({"t", {}, 3});
  EXPECT_EQ(refused.code(), StatusCode::kNotFound);
  EXPECT_THAT(refused.message(), StartsWith("lineage 'draft' has no version 3")) << "named once";
  ExpectHeld(2, 2);
}

TEST_F(ReceiverGroupTest, RequestsThatMakeNoSenseAreRefused) {
  Open();
  const Status unknown = group_->Update({"s", {{"critic", {}}}, {}});
  EXPECT_EQ(unknown.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(unknown.message(), HasSubstr("'critic'"));
  EXPECT_EQ(group_->Update({"s", {{"draft", {}}}, 2}).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(group_->Rebuild({{"draft", 1}}).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(group_->Versions("critic").status().code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(group_->Versions("draft").value(), ElementsAre(1u));
  EXPECT_EQ(group_->status()[0].state, ReceiverState::kIdle);
  GroupRequest request = Both();
  request.lineages["draft"].base_version = 9;
  const Status base = group_->Prepare(request);
  EXPECT_EQ(base.code(), StatusCode::kVersionMismatch);
  EXPECT_THAT(base.message(), HasSubstr("lineage 'draft'"));
}

TEST_F(ReceiverGroupTest, OptionsThatMakeNoSenseAreRefused) {
  const auto code = [&] {
    return ReceiverGroup::Open(options_, {policy_.model, draft_.model}).status().code();
  };
  EXPECT_EQ(code(), StatusCode::kInvalidArgument) << "no lineages";
  options_.lineages = {policy_.options, policy_.options};
  EXPECT_EQ(code(), StatusCode::kInvalidArgument) << "twice the same";
  options_.lineages = {policy_.options};
  EXPECT_EQ(code(), StatusCode::kInvalidArgument) << "a model too many";
  options_.lineages = {policy_.options, draft_.options};
  options_.lineages[1].hooks.pause = [](const PauseRequest&) { return Status(); };
  EXPECT_EQ(code(), StatusCode::kInvalidArgument) << "hooks of its own";
  EXPECT_THAT(calls_, IsEmpty());
}

TEST_F(ReceiverGroupTest, APrepareThatFailsLeavesAll) {
  Open();
  policy_.Advance(2);
  draft_.Advance(2);
  const std::string payloads = JoinPath(store_, object_name::PayloadFolder("draft", 2));
  std::filesystem::remove_all(payloads);
  const Status failed = group_->Update(Both());
  EXPECT_EQ(failed.code(), StatusCode::kNotFound);
  EXPECT_THAT(failed.message(), HasSubstr("lineage 'draft'"));
  EXPECT_THAT(calls_, IsEmpty());
  ExpectHeld(1, 1);
  for (const ReceiverStatus& status : group_->status()) {
    EXPECT_EQ(status.state, ReceiverState::kFailed);
    EXPECT_TRUE(status.ready) << "the old versions serve on";
  }
  EXPECT_EQ(group_->counts()[0].update_failures, 1u);
  ASSERT_TRUE(group_->Update({"t", {{"policy", {}}}, {}}).ok());
  ExpectHeld(2, 1);
  EXPECT_EQ(group_->counts()[1].update_failures, 1u);
}

// What nobody saw as it happened shows in numbers that stay.
TEST_F(ReceiverGroupTest, CountsLooksAndPauses) {
  Open();
  const auto pauses = [this](std::size_t i) {
    const auto counts = group_->counts()[i].pauses.counts;
    return std::accumulate(counts.begin(), counts.end(), std::uint64_t{0});
  };
  EXPECT_EQ(pauses(0), 0u);
  policy_.Advance(2);
  EXPECT_EQ(group_->counts()[0].newest_version, 1u) << "nobody has looked yet";
  ASSERT_TRUE(group_->Versions("policy").ok());
  EXPECT_EQ(group_->counts()[0].newest_version, 2u);
  EXPECT_EQ(group_->counts()[1].newest_version, 1u);
  ASSERT_TRUE(group_->Update({"s", {{"policy", {}}}, {}}).ok());
  EXPECT_EQ(pauses(0), 1u);
  EXPECT_EQ(pauses(1), 0u) << "its gate stayed open";
  EXPECT_DOUBLE_EQ(group_->counts()[0].pauses.seconds, group_->status()[0].last.pause_s);
  EXPECT_EQ(group_->counts()[0].look_failures, 0u);
  const std::string away = store_ + "-away";
  std::filesystem::rename(store_, away);
  EXPECT_FALSE(group_->Versions("policy").ok());
  std::filesystem::rename(away, store_);
  EXPECT_EQ(group_->counts()[0].look_failures, 1u);
  EXPECT_EQ(group_->counts()[1].look_failures, 0u);
  EXPECT_EQ(group_->counts()[0].newest_version, 2u);
}

TEST_F(ReceiverGroupTest, AGateThatDoesNotCloseOpensTheOthersAgain) {
  AddHooks();
  Open();
  policy_.Advance(2);
  draft_.Advance(2);
  failing_ = "close draft";
  EXPECT_EQ(group_->Update(Both()).code(), StatusCode::kUnavailable);
  EXPECT_THAT(calls_, ElementsAre("pause", "close policy", "close draft", "open policy", "resume"));
  EXPECT_THAT(at_open_, ElementsAre(std::pair(1, 1))) << "something was written";
  EXPECT_EQ(group_->status()[0].state, ReceiverState::kPrepared);
  calls_.clear();
  failing_ = "close policy";
  EXPECT_EQ(group_->Apply("s").code(), StatusCode::kUnavailable);
  EXPECT_THAT(calls_, ElementsAre("pause", "close policy", "resume"));
  ExpectHeld(1, 1);
  EXPECT_EQ(group_->counts()[0].pause_failures, 2u);
  EXPECT_EQ(group_->counts()[0].update_failures, 0u);
  failing_ = "";
  ASSERT_TRUE(group_->Apply("s").ok());
  ASSERT_TRUE(group_->Resume("s").ok());
  ExpectHeld(2, 2);
}

// A byte that changed under the last gate: found out in the apply, when the policy is there
// already.
TEST_F(ReceiverGroupTest, AFaultInTheApplyKeepsAllGatesClosedUntilARebuild) {
  AddHooks();
  Open();
  policy_.Advance(2);
  draft_.Advance(2);
  draft_.at_close = [this] {
    for (ByteVector& buffer : draft_.buffers) {
      for (std::byte& byte : buffer) byte ^= std::byte{0x20};
    }
  };
  EXPECT_EQ(group_->Update(Both()).code(), StatusCode::kTainted);
  EXPECT_THAT(calls_, ElementsAre("pause", "close policy", "close draft"));
  for (const ReceiverStatus& status : group_->status()) {
    EXPECT_EQ(status.state, ReceiverState::kPoisoned);
    EXPECT_FALSE(status.ready);
    EXPECT_THAT(status.message, HasSubstr("lineage 'draft'"));
  }
  EXPECT_EQ(group_->Update(Both("t")).code(), StatusCode::kTainted);
  EXPECT_EQ(group_->Resume("s").code(), StatusCode::kTainted);
  EXPECT_THAT(at_open_, IsEmpty());
  EXPECT_EQ(group_->counts()[0].update_failures, 1u);
  EXPECT_EQ(group_->counts()[0].pauses.seconds, 0);
  draft_.at_close = {};
  ASSERT_TRUE(group_->Rebuild().ok());
  ExpectHeld(2, 2);
  EXPECT_THAT(at_open_, ElementsAre(std::pair(2, 2), std::pair(2, 2)));
  EXPECT_EQ(calls_.back(), "resume");
}

TEST_F(ReceiverGroupTest, AFaultInTheFirstApplyLeavesTheOthersUnwritten) {
  Open();
  policy_.Advance(2);
  draft_.Advance(2);
  policy_.at_close = [this] {
    for (ByteVector& buffer : policy_.buffers) {
      for (std::byte& byte : buffer) byte ^= std::byte{0x20};
    }
  };
  EXPECT_EQ(group_->Update(Both()).code(), StatusCode::kTainted);
  EXPECT_EQ(draft_.Held(), 1u);
  EXPECT_THAT(at_open_, IsEmpty());
  policy_.at_close = {};
  ASSERT_TRUE(group_->Rebuild(1).ok());
  ExpectHeld(1, 1);
}

TEST_F(ReceiverGroupTest, WhatIsOwedToTheEngineIsDoneBeforeAnyGateOpens) {
  AddHooks();
  Open();
  policy_.Advance(2);
  draft_.Advance(2);
  failing_ = "flush";
  EXPECT_EQ(group_->Update(Both()).code(), StatusCode::kUnavailable);
  EXPECT_EQ(group_->status()[1].state, ReceiverState::kApplied);
  EXPECT_EQ(group_->Resume("s").code(), StatusCode::kUnavailable);
  EXPECT_THAT(at_open_, IsEmpty());
  failing_ = "open draft";
  ASSERT_TRUE(group_->Apply("s").ok());
  EXPECT_EQ(group_->Resume("s").code(), StatusCode::kUnavailable);
  EXPECT_EQ(group_->status()[0].state, ReceiverState::kApplied);
  EXPECT_FALSE(group_->status()[0].ready);
  failing_ = "";
  ASSERT_TRUE(group_->Resume("s").ok());
  ExpectHeld(2, 2);
}

TEST_F(ReceiverGroupTest, ARebuildThatCannotBeginChangesNothing) {
  Open();
  policy_.Advance(2);
  draft_.Advance(2);
  ASSERT_TRUE(group_->Update(Both()).ok());
  calls_.clear();
  EXPECT_EQ(group_->Rebuild({{"policy", 1}, {"draft", 9}}).code(), StatusCode::kNotFound);
  failing_ = "close draft";
  EXPECT_EQ(group_->Rebuild({{"policy", 1}, {"draft", 1}}).code(), StatusCode::kUnavailable);
  EXPECT_THAT(calls_, ElementsAre("close policy", "close draft", "open policy"));
  ExpectHeld(2, 2);
  EXPECT_TRUE(group_->status()[0].ready);
  failing_ = "";
  ASSERT_TRUE(group_->Rebuild({{"policy", 1}, {"draft", 2}}).ok());
  ExpectHeld(1, 2);
}

TEST_F(ReceiverGroupTest, ReleaseFinishesWhatIsApplied) {
  Open();
  policy_.Advance(2);
  draft_.Advance(2);
  ASSERT_TRUE(group_->Prepare(Both()).ok());
  ASSERT_TRUE(group_->WaitPrepared().ok());
  ASSERT_TRUE(group_->Apply("s").ok());
  ASSERT_TRUE(group_->Release().ok());
  EXPECT_THAT(calls_, ElementsAre("close policy", "close draft", "open policy", "open draft"));
}

TEST_F(ReceiverGroupTest, SameVersionTakesWhatAllOffer) {
  options_.same_version = true;
  Open();
  policy_.Advance(2);
  policy_.Advance(3);
  draft_.Advance(2);
  ASSERT_TRUE(group_->Update(Both()).ok());
  ExpectHeld(2, 2);
  ASSERT_TRUE(group_->Update({"t", {{"policy", {}}}, {}}).ok());
  ExpectHeld(3, 2);
  const Status beyond = group_->Update(Both("u"));
  EXPECT_EQ(beyond.code(), StatusCode::kVersionMismatch);
  draft_.Advance(3);
  ASSERT_TRUE(group_->Update(Both("v")).ok());
  ExpectHeld(3, 3);
}

class GroupFollowTest : public ReceiverGroupTest {
 protected:
  bool Reaches(std::uint64_t policy, std::uint64_t draft) {
    return test::Eventually([&] {
      const auto status = group_->status();
      return status[0].version == policy && status[1].version == draft && status[0].ready &&
             status[1].ready;
    });
  }
};

TEST_F(GroupFollowTest, TakesWhateverHasNews) {
  Open();
  ASSERT_TRUE(group_->Follow(milliseconds(2)).ok());
  draft_.Advance(2);
  EXPECT_TRUE(Reaches(1, 2));
  policy_.Advance(2);
  EXPECT_TRUE(Reaches(2, 2));
}

TEST_F(GroupFollowTest, WithSameVersionWaitsForAll) {
  options_.same_version = true;
  Open();
  policy_.Advance(2);
  ASSERT_TRUE(group_->Follow(milliseconds(2)).ok());
  std::this_thread::sleep_for(milliseconds(60));
  EXPECT_TRUE(Reaches(1, 1));
  draft_.Advance(2);
  EXPECT_TRUE(Reaches(2, 2));
  EXPECT_THAT(at_open_, ElementsAre(std::pair(2, 2), std::pair(2, 2)));
}

// One gate for all models of a process: it is open when none of them holds it.
TEST_F(ReceiverGroupTest, ModelsMayShareAStepGate) {
  StepGate gate;
  gate.Guard(policy_.model);
  gate.Guard(draft_.model);
  Open();
  policy_.Advance(2);
  draft_.Advance(2);
  ASSERT_TRUE(group_->Prepare(Both()).ok());
  ASSERT_TRUE(group_->WaitPrepared().ok());
  ASSERT_TRUE(gate.TryEnter());
  std::jthread leaver([&] {
    std::this_thread::sleep_for(milliseconds(20));
    gate.Leave();
  });
  ASSERT_TRUE(group_->Apply("s").ok());
  EXPECT_FALSE(gate.TryEnter());
  ASSERT_TRUE(group_->Resume("s").ok());
  EXPECT_TRUE(gate.TryEnter());
  gate.Leave();
  ExpectHeld(2, 2);
}

// What a step reads in buffers that two gates guard was put together by one update, always.
TEST_F(ReceiverGroupTest, NoStepSeesAMix) {
  StepGate policy_gate;
  StepGate draft_gate;
  policy_gate.Guard(policy_.model);
  draft_gate.Guard(draft_.model);
  Open();
  for (std::uint64_t version = 2; version <= 6; ++version) {
    policy_.Advance(version);
    draft_.Advance(version);
  }
  StepGate* const gates[] = {&policy_gate, &draft_gate};
  std::atomic<bool> stop{false};
  std::atomic<int> steps{0};
  std::atomic<int> mixes{0};
  std::jthread engine([&] {
    while (!stop) {
      if (!EnterAll<StepGate>(gates, milliseconds(10'000)).ok()) return;
      if (policy_.Held() != draft_.Held()) ++mixes;
      LeaveAll<StepGate>(gates);
      ++steps;
    }
  });
  for (std::uint64_t version = 2; version <= 6; ++version) {
    ASSERT_TRUE(group_->Update({std::to_string(version), {}, version}).ok());
  }
  while (steps == 0) std::this_thread::yield();
  stop = true;
  engine.join();
  EXPECT_EQ(mixes, 0);
  ExpectHeld(6, 6);
}

}  // namespace
}  // namespace segue
