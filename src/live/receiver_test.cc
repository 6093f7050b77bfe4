// SPDX-License-Identifier: Apache-2.0
//
// The receiver against a real store, a real segment and engines that read while it works. Every
// test that ends well holds the live bytes against the trainer's files. Cases D7, E1, E2, E4, E7
// and E9 of the faults reported in the field; what goes wrong: receiver_recovery_test.cc.
#include "segue/receiver.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <thread>

#include "checkpoint/checkpoint.h"
#include "live/receiver_testing.h"
#include "live/testing.h"
#include "segue/engine.h"
#include "segue/engine_loop.h"
#include "sync/testing.h"

namespace segue {
namespace {

using std::chrono::milliseconds;
using test::PublishOf;

class ReceiverTest : public test::ReceiverFixture {
 protected:
  ReceiverTest() : ReceiverFixture("receiver") {}

  // Version 0 in `buffers`, bound in another order than the plan's.
  BoundModel Bind(std::vector<ByteVector>& buffers, std::function<Status()> open_gate) const {
    const Checkpoint base = Checkpoint::Open(trainer_.Directory(0)).value();
    BoundModel model;
    for (std::size_t i = 0; i < base.tensors().size(); ++i) {
      const ByteSpan bytes = base.TensorBytes(i);
      buffers.emplace_back(bytes.begin(), bytes.end());
    }
    for (std::size_t i = buffers.size(); i-- > 0;) {
      const TensorSpec& spec = base.tensors()[i].spec;
      model.tensors.push_back({spec.name, std::string(DtypeName(spec.dtype)), spec.shape,
                               buffers[i].data(), buffers[i].size()});
    }
    model.close_gate = [](milliseconds) { return Status(); };
    model.open_gate = std::move(open_gate);
    return model;
  }
};

TEST_F(ReceiverTest, DoesNotGoBackAndSaysWhatDoes) {
  Advance(1);
  Advance(2);
  const auto receiver = Open(Options());
  ASSERT_NE(receiver, nullptr);
  const Result<UpdateReport> back = receiver->Update(To(1));
  EXPECT_EQ(back.status().code(), StatusCode::kVersionMismatch);
  EXPECT_THAT(back.status().message(),
              ::testing::HasSubstr("version 2 of lineage 'default' does not lead back"));
  EXPECT_THAT(back.status().message(), ::testing::HasSubstr("rebuild"));
  EXPECT_TRUE(receiver->status().ready);
  ASSERT_TRUE(receiver->Rebuild(1).ok());
  ExpectLive(1);
}

// A retry is the same request; the name of a session alone makes none.
TEST_F(ReceiverTest, ASessionOfTheSameNameForSomethingElseIsRefused) {
  Advance(1);
  ReceiverOptions options = Options();
  const auto receiver = Open(options);
  ASSERT_NE(receiver, nullptr);
  Advance(2);
  Advance(3);
  ASSERT_TRUE(receiver->Prepare(To(2, "x")).ok());
  EXPECT_TRUE(receiver->Prepare(To(2, "x")).ok());
  PrepareRequest other = To(2, "x");
  other.base_version = 77;
  EXPECT_EQ(receiver->Prepare(other).code(), StatusCode::kUnavailable);
  other = To(2, "x");
  other.manifest_sha256 = std::string(64, '0');
  EXPECT_EQ(receiver->Prepare(other).code(), StatusCode::kUnavailable);
  EXPECT_EQ(receiver->Update(To(3, "x")).status().code(), StatusCode::kUnavailable);
  ASSERT_TRUE(receiver->WaitPrepared().ok());
  EXPECT_EQ(receiver->status().target_version, 2u);
  EXPECT_EQ(receiver->status().version, 1u);
}

TEST_F(ReceiverTest, PrepareApplyResume) {
  Advance(1);
  const auto receiver = Open(Options());
  ASSERT_NE(receiver, nullptr);
  EXPECT_TRUE(receiver->status().ready);
  ExpectLive(1);  // It caught up before it was ready (case E7).
  Advance(2);
  ASSERT_TRUE(receiver->Prepare(To(2)).ok());
  ASSERT_TRUE(receiver->WaitPrepared().ok());
  EXPECT_EQ(receiver->status().state, ReceiverState::kPrepared);
  ExpectLive(1);
  ASSERT_TRUE(receiver->Apply("s").ok());
  EXPECT_EQ(receiver->status().state, ReceiverState::kApplied);
  EXPECT_EQ(receiver->status().version, 2u);
  ASSERT_TRUE(receiver->Resume("s").ok());
  ExpectLive(2);
  const ReceiverStatus status = receiver->status();
  EXPECT_EQ(status.state, ReceiverState::kResumed);
  EXPECT_EQ(status.last.target_version, 2u);
  EXPECT_GT(status.last.changed_elements, 0u);
  EXPECT_GE(status.last.pause_s, status.last.gate_s + status.last.apply_s);
  EXPECT_TRUE(ListDirectory(directory_.File("staging")).value().empty());
  EXPECT_TRUE(receiver->Clear().ok());
  EXPECT_EQ(receiver->status().state, ReceiverState::kIdle);
}

TEST_F(ReceiverTest, OneStepOverManyVersions) {
  for (std::uint64_t seed = 1; seed <= 4; ++seed) Advance(seed);
  const auto receiver = Open(Options());
  ASSERT_NE(receiver, nullptr);
  EXPECT_EQ(receiver->status().last.steps, 4u);
  ExpectLive(4);
}

// An engine may start before the trainer has published anything.
TEST_F(ReceiverTest, StaysAtTheVersionHeldWhenToldTo) {
  Advance(1);
  Advance(2);
  ReceiverOptions options = Options();
  options.catch_up = false;
  const auto receiver = Open(options);
  ASSERT_NE(receiver, nullptr);
  EXPECT_EQ(receiver->status().version, 0u);
  EXPECT_TRUE(receiver->status().ready);
  ExpectLive(0);
  ASSERT_TRUE(receiver->Update(To(1)).ok());
  ExpectLive(1);
}

TEST_F(ReceiverTest, BeforeTheFirstVersion) {
  ASSERT_TRUE(MakeDirectories(store_).ok());
  ReceiverOptions options = Options();
  const auto receiver = Open(options);
  ASSERT_NE(receiver, nullptr);
  EXPECT_EQ(receiver->status().version, 0u);
  ExpectLive(0);
  EXPECT_EQ(receiver->Update(To(1)).status().code(), StatusCode::kNotFound);
}

// How a lineage is cut into chunks is the first publisher's choice; a receiver that was there
// before could never follow it (found by the simulator).
TEST_F(ReceiverTest, BeforeTheFirstVersionWithChunksOfAnotherSize) {
  ASSERT_TRUE(MakeDirectories(store_).ok());
  const auto receiver = Open(Options());
  ASSERT_NE(receiver, nullptr);
  const std::string before = receiver->status().plan_digest;
  Advance(1);  // In chunks of 64 KiB, not of 1 MiB.
  PrepareRequest request = To(1);
  request.plan_digest = std::string(64, '0');
  EXPECT_EQ(receiver->Update(request).status().code(), StatusCode::kVersionMismatch);
  ASSERT_TRUE(receiver->Update(To(1, "t")).ok());
  ExpectLive(1);
  EXPECT_NE(receiver->status().plan_digest, before);
  request = To(1, "u");
  request.plan_digest = before;
  EXPECT_EQ(receiver->Prepare(request).code(), StatusCode::kVersionMismatch);
  ASSERT_TRUE(receiver->Rebuild({}).ok());
  ExpectLive(1);
}

// The segment says what it was made with, so the next receiver learns it again.
TEST_F(ReceiverTest, TakesOverASegmentWithChunksOfAnotherSize) {
  ASSERT_TRUE(MakeDirectories(store_).ok());
  ASSERT_NE(Open(Options()), nullptr);
  Advance(1);
  const auto receiver = Open(Options());
  ASSERT_NE(receiver, nullptr);
  EXPECT_EQ(receiver->status().version, 1u);
  ExpectLive(1);
}

// case D7: an update of nothing moves the version and holds nobody.
TEST_F(ReceiverTest, UpdateOfNothing) {
  Advance(1);
  const auto receiver = Open(Options());
  trainer_.Write();  // The same bytes once more.
  PublishOptions nothing = PublishOf(store_, trainer_.Directory(1), trainer_.Directory(1));
  ASSERT_TRUE(Publish(nothing).ok());
  auto engine = EngineWeights::Attach(name_, milliseconds(1000)).value();
  ASSERT_TRUE(engine.Enter(milliseconds(0)).ok());
  const auto report = receiver->Update(To(2));  // Would wait for this engine at the gate.
  ASSERT_TRUE(report.ok()) << report.status().ToString();
  EXPECT_EQ(report->pause_s, 0);
  EXPECT_EQ(engine.version().version, 2u);
  engine.Leave();
}

// case E4: a retry of what is done changes nothing and succeeds.
TEST_F(ReceiverTest, UpdateToTheVersionHeld) {
  Advance(1);
  const auto receiver = Open(Options());
  Advance(2);
  ASSERT_TRUE(receiver->Update(To(2)).ok());
  const auto again = receiver->Update(To(2));
  ASSERT_TRUE(again.ok()) << again.status().ToString();
  EXPECT_EQ(again->changed_elements, 0u);
  EXPECT_EQ(receiver->status().applied_count, 2u);
  ExpectLive(2);
}

// case E1: one update at a time; the same one again is answered, another is refused.
TEST_F(ReceiverTest, OneUpdateAtATime) {
  Advance(1);
  const auto receiver = Open(Options());
  Advance(2);
  Advance(3);
  ASSERT_TRUE(receiver->Prepare(To(2, "first")).ok());
  EXPECT_TRUE(receiver->Prepare(To(2, "first")).ok());
  EXPECT_EQ(receiver->Prepare(To(3, "second")).code(), StatusCode::kUnavailable);
  ASSERT_TRUE(receiver->WaitPrepared().ok());
  EXPECT_EQ(receiver->Prepare(To(3, "second")).code(), StatusCode::kUnavailable);
  EXPECT_EQ(receiver->Apply("second").code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(receiver->Clear().code(), StatusCode::kUnavailable);
  EXPECT_EQ(receiver->Rebuild({}).code(), StatusCode::kUnavailable);
  EXPECT_EQ(receiver->Resume("first").code(), StatusCode::kUnavailable);
  ASSERT_TRUE(receiver->Apply("first").ok());
  EXPECT_EQ(receiver->Abort("first").code(), StatusCode::kUnavailable);
  EXPECT_TRUE(receiver->Apply("first").ok());
  ASSERT_TRUE(receiver->Resume("first").ok());
  EXPECT_TRUE(receiver->Resume("first").ok());
  ExpectLive(2);
  ASSERT_TRUE(receiver->Update(To(3, "second")).ok());
  ExpectLive(3);
}

TEST_F(ReceiverTest, TwoUpdatesInParallel) {
  Advance(1);
  const auto receiver = Open(Options());
  for (std::uint64_t version = 2; version <= 9; version += 2) {
    Advance(version);
    Advance(version + 1);
    Status first;
    Status second;
    {
      const std::jthread a([&] { first = receiver->Update(To(version, "a")).status(); });
      const std::jthread b([&] { second = receiver->Update(To(version + 1, "b")).status(); });
    }
    EXPECT_TRUE(first.ok() || second.ok());
    const std::uint64_t held = receiver->status().version;
    EXPECT_TRUE(held == version || held == version + 1);
    ASSERT_TRUE(receiver->Update(To(version + 1, "c")).ok());
    ExpectLive(version + 1);
  }
}

TEST_F(ReceiverTest, AbortKeepsTheVersion) {
  Advance(1);
  const auto receiver = Open(Options());
  Advance(2);
  ASSERT_TRUE(receiver->Prepare(To(2)).ok());
  ASSERT_TRUE(receiver->Abort("s").ok());
  EXPECT_EQ(receiver->status().state, ReceiverState::kAborted);
  ExpectLive(1);
  ASSERT_TRUE(receiver->Prepare(To(2)).ok());
  ASSERT_TRUE(receiver->WaitPrepared().ok());
  ASSERT_TRUE(receiver->Abort("s").ok());
  ExpectLive(1);
  EXPECT_EQ(receiver->Apply("s").code(), StatusCode::kUnavailable);
  ASSERT_TRUE(receiver->Update(To(2)).ok());
  ExpectLive(2);
}

// case E2: an engine that does not leave the gate; nothing is written, and the update is still
// there.
TEST_F(ReceiverTest, EngineThatDoesNotLeave) {
  Advance(1);
  ReceiverOptions options = Options();
  options.gate_deadline = milliseconds(50);
  const auto receiver = Open(options);
  Advance(2);
  auto engine = EngineWeights::Attach(name_, milliseconds(1000)).value();
  ASSERT_TRUE(engine.Enter(milliseconds(0)).ok());
  ASSERT_TRUE(receiver->Prepare(To(2)).ok());
  ASSERT_TRUE(receiver->WaitPrepared().ok());
  EXPECT_EQ(receiver->Apply("s").code(), StatusCode::kUnavailable);
  EXPECT_EQ(receiver->status().state, ReceiverState::kPrepared);
  EXPECT_EQ(engine.version().version, 1u);
  engine.Leave();
  ASSERT_TRUE(receiver->Apply("s").ok());
  ASSERT_TRUE(receiver->Resume("s").ok());
  ExpectLive(2);
}

// In one process: the caller's own buffers and gate.
TEST_F(ReceiverTest, BoundModel) {
  Advance(1);
  std::vector<ByteVector> buffers;
  BoundModel model = Bind(buffers, [] { return Status(); });
  int closed = 0;
  model.close_gate = [&](milliseconds) {
    ++closed;
    return Status();
  };
  BoundModel overlapping = model;
  overlapping.tensors[0].data = overlapping.tensors[2].data;
  EXPECT_EQ(Receiver::Open(Options(), overlapping).status().code(), StatusCode::kInvalidArgument);
  BoundModel short_one = model;
  short_one.tensors[0].size -= 8;
  EXPECT_EQ(Receiver::Open(Options(), short_one).status().code(), StatusCode::kInvalidArgument);
  const auto receiver = Receiver::Open(Options(), model);
  ASSERT_TRUE(receiver.ok()) << receiver.status().ToString();
  Advance(2);
  ASSERT_TRUE(receiver.value()->Update(To(2)).ok());
  EXPECT_EQ(closed, 2);
  const Checkpoint expected = Checkpoint::Open(trainer_.Directory(2)).value();
  for (std::size_t i = 0; i < buffers.size(); ++i) {
    EXPECT_TRUE(std::ranges::equal(buffers[i], expected.TensorBytes(i)));
  }
}

// case E9: the store's lineage is of another model.
TEST_F(ReceiverTest, AnotherModel) {
  Advance(1);
  const std::string other = directory_.File("other");
  ASSERT_TRUE(MakeDirectories(other).ok());
  test::WriteShardedCheckpoint(other,
                               {{test::RandomTensor({"a.weight", Dtype::kBF16, {300, 1001}}, 1)}});
  ReceiverOptions options = Options();
  options.checkpoint = other;
  EXPECT_FALSE(Receiver::Open(options).ok());
}

TEST_F(ReceiverTest, RequestsThatDoNotFit) {
  Advance(1);
  const auto receiver = Open(Options());
  Advance(2);
  PrepareRequest request = To(2);
  request.base_version = 0;
  EXPECT_EQ(receiver->Prepare(request).code(), StatusCode::kVersionMismatch);
  request = To(2);
  request.plan_digest = std::string(64, 'a');
  EXPECT_EQ(receiver->Prepare(request).code(), StatusCode::kVersionMismatch);
  request = To(2);
  request.manifest_sha256 = std::string(64, 'a');
  EXPECT_EQ(receiver->Update(request).status().code(), StatusCode::kCorruption);
  EXPECT_EQ(receiver->Update(To(7)).status().code(), StatusCode::kNotFound);
  ExpectLive(1);
}

// Engines read all the time while versions come; none ever sees a mix.
TEST_F(ReceiverTest, FollowsUnderReaders) {
  Advance(1);
  const auto receiver = Open(Options());
  ASSERT_TRUE(receiver->Follow(milliseconds(5)).ok());
  std::vector<Result<EngineLoopReport>> reports(2, Internal("not run"));
  {
    std::vector<std::jthread> engines;
    engines.reserve(reports.size());
    for (auto& report : reports) {
      engines.emplace_back([&] {
        EngineLoopOptions options;
        options.name = name_;
        options.until_version = 6;
        report = RunEngineLoop(options);
      });
    }
    for (std::uint64_t version = 2; version <= 6; ++version) Advance(version, 50);
  }
  for (const auto& report : reports) {
    ASSERT_TRUE(report.ok()) << report.status().ToString();
    EXPECT_EQ(report->seen.back().version, 6u);
  }
  ExpectLive(6);
}

// case E2 for a follower: what it has prepared waits for a gate that does not close; when a newer
// version comes it must let go of it (found by the simulator: it never did).
TEST_F(ReceiverTest, FollowerWhoseGateDoesNotClose) {
  Advance(1);
  ReceiverOptions options = Options();
  options.gate_deadline = milliseconds(20);
  const auto receiver = Open(options);
  auto engine = EngineWeights::Attach(name_, milliseconds(1000)).value();
  ASSERT_TRUE(engine.Enter(milliseconds(0)).ok());
  ASSERT_TRUE(receiver->Follow(milliseconds(1)).ok());
  Advance(2);
  const auto waits_for = [&](const std::string& session) {
    test::Eventually([&] { return receiver->status().session == session; });
    return receiver->status().session;
  };
  EXPECT_EQ(waits_for("follow-2"), "follow-2");
  Advance(3);
  EXPECT_EQ(waits_for("follow-3"), "follow-3");
  engine.Leave();
  EXPECT_TRUE(test::Eventually([&] { return receiver->status().version == 3; }));
  ExpectLive(3);
}

// An engine's own control may fail to go on; the follower asks it again.
TEST_F(ReceiverTest, FollowerWhoseGateDoesNotOpen) {
  Advance(1);
  std::vector<ByteVector> buffers;
  std::atomic<int> opened{0};
  const auto receiver = Receiver::Open(Options(), Bind(buffers, [&]() -> Status {
                                         if (++opened == 2)
                                           return Unavailable("the engine does not answer");
                                         return {};
                                       }));
  ASSERT_TRUE(receiver.ok()) << receiver.status().ToString();
  ASSERT_TRUE(receiver.value()->Follow(milliseconds(1)).ok());
  Advance(2);
  test::Eventually([&] { return opened >= 3; });
  EXPECT_EQ(opened, 3);
  EXPECT_EQ(receiver.value()->status().version, 2u);
}

}  // namespace
}  // namespace segue
