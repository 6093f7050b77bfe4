// SPDX-License-Identifier: Apache-2.0
//
// Starts of a receiver over what is there already: a segment that serves and a checkpoint that does
// or does not lead where the start is to come to. A start that is refused changes nothing: weights,
// phase and gate are as they were, and engines step on.
#include "live/takeover.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "base/check.h"
#include "base/file.h"
#include "checkpoint/checkpoint.h"
#include "delta/manifest.h"
#include "live/group_testing.h"
#include "live/receiver_testing.h"
#include "live/segment.h"
#include "live/testing.h"
#include "segue/engine.h"
#include "segue/receiver.h"
#include "segue/receiver_group.h"
#include "sync/testing.h"

namespace segue {
namespace {

using std::chrono::milliseconds;
using ::testing::HasSubstr;

class TakeoverTest : public test::ReceiverFixture {
 protected:
  TakeoverTest() : ReceiverFixture("takeover") {}

  ReceiverOptions Rebuilding(std::uint64_t version = 0) const {
    ReceiverOptions options = Options(version);
    options.rebuild = true;
    return options;
  }

  // A segment at the newest version, without a receiver.
  void LeaveServing() { ASSERT_TRUE(Receiver::Open(Options()).ok()); }

  void ExpectStarts(const ReceiverOptions& options) {
    const auto receiver = Receiver::Open(options);
    EXPECT_TRUE(receiver.ok()) << receiver.status().ToString();
  }

  // A checkpoint of a model that no lineage has.
  std::string OtherModel() const {
    const std::string other = directory_.File("other");
    SEGUE_CHECK(MakeDirectories(other).ok());
    test::WriteShardedCheckpoint(
        other, {{test::RandomTensor({"a.weight", Dtype::kBF16, {300, 1001}}, 1)}});
    return other;
  }
};

// Found by a user: the weights were overwritten first, and the gate stayed closed for good.
TEST_F(TakeoverTest, RebuildThatCannotComeToItsVersionChangesNothing) {
  for (std::uint64_t seed = 1; seed <= 3; ++seed) Advance(seed);
  LeaveServing();
  auto engine = EngineWeights::Attach(name_, milliseconds(1000)).value();
  ReceiverOptions options = Rebuilding();
  options.version = 9;
  EXPECT_EQ(Receiver::Open(options).status().code(), StatusCode::kNotFound);
  ExpectSees(engine, 3);
  // A checkpoint beyond the version that is asked for.
  options = Rebuilding(3);
  options.version = 2;
  EXPECT_EQ(Receiver::Open(options).status().code(), StatusCode::kVersionMismatch);
  ExpectSees(engine, 3);
  // None at all, and one of another model.
  options = Rebuilding();
  options.checkpoint = directory_.File("nowhere");
  EXPECT_FALSE(Receiver::Open(options).ok());
  options.checkpoint = OtherModel();
  EXPECT_FALSE(Receiver::Open(options).ok());
  ExpectSees(engine, 3);
  // One that is no version of the lineage, also where the start is to stay at it.
  trainer_.Step(17, 100);
  for (const bool catch_up : {true, false}) {
    options = Rebuilding(4);
    options.catch_up = catch_up;
    EXPECT_EQ(Receiver::Open(options).status().code(), StatusCode::kVersionMismatch);
    ExpectSees(engine, 3);
  }
  // A way that was pruned.
  const std::string manifest = JoinPath(store_, object_name::Version("default", 2));
  ASSERT_TRUE(RenameFile(manifest, directory_.File("away")).ok());
  EXPECT_FALSE(Receiver::Open(Rebuilding()).ok());
  ExpectSees(engine, 3);
  ASSERT_TRUE(RenameFile(directory_.File("away"), manifest).ok());
  options = Rebuilding();
  options.version = 2;
  ExpectStarts(options);
  ExpectSees(engine, 2);
}

// All that is to be loaded is looked at, also what has nothing to lose itself.
TEST_F(TakeoverTest, RebuildOfAGroupThatCannotComeToItsVersionsChangesNothing) {
  test::GroupLineage policy("policy", directory_.File("group"), store_);
  test::GroupLineage draft("draft", directory_.File("group"), store_);
  const test::SegmentName policy_name("policy");
  const test::SegmentName draft_name("draft");
  policy.options.name = policy_name;
  draft.options.name = draft_name;
  policy.Advance(1);
  draft.Advance(1);
  GroupOptions options;
  options.lineages = {policy.options, draft.options};
  ASSERT_TRUE(ReceiverGroup::Open(options).ok());
  ASSERT_TRUE(RemoveSegment(draft_name).ok());  // To be made anew, from a checkpoint that is lost.
  auto engine = EngineWeights::Attach(policy_name, milliseconds(1000)).value();
  draft.trainer.Step(17, 100);
  options.lineages[0].rebuild = true;
  options.lineages[1].checkpoint = draft.trainer.Directory(2);
  const Status refused = ReceiverGroup::Open(options).status();
  EXPECT_EQ(refused.code(), StatusCode::kVersionMismatch) << refused.ToString();
  EXPECT_THAT(refused.message(), HasSubstr("draft"));
  EXPECT_EQ(engine.version().version, 1u);
  EXPECT_TRUE(engine.Enter(milliseconds(100)).ok());
  engine.Leave();
}

// A receiver whose segment was taken from it does not say that it serves.
TEST_F(TakeoverTest, ReceiverOfARemovedSegmentIsNotReady) {
  Advance(1);
  const auto receiver = Receiver::Open(Options());
  ASSERT_TRUE(receiver.ok()) << receiver.status().ToString();
  ASSERT_TRUE(RemoveSegment(name_).ok());
  EXPECT_FALSE(receiver.value()->status().ready);
  EXPECT_THAT(receiver.value()->status().message, HasSubstr("was removed"));
  Advance(2);
  EXPECT_EQ(receiver.value()->Update({}).status().code(), StatusCode::kNotFound);
  ExpectStarts(Options());
  ExpectLive(2);
}

// Found by a user: "whatever the segment holds" was refused for another lineage or model, and no
// command led out.
TEST_F(TakeoverTest, RebuildPutsAnotherLineageOrModelInItsPlace) {
  Advance(1);
  LeaveServing();
  auto engine = EngineWeights::Attach(name_, milliseconds(1000)).value();
  // Another lineage of the same model: not without being told to, nor to what is not there.
  ReceiverOptions options = Options(1);
  options.lineage = "second";
  const Status refused = Receiver::Open(options).status();
  EXPECT_EQ(refused.code(), StatusCode::kVersionMismatch);
  EXPECT_THAT(refused.message(), HasSubstr("--rebuild"));
  options.rebuild = true;
  options.version = 5;
  EXPECT_EQ(Receiver::Open(options).status().code(), StatusCode::kNotFound);
  ExpectSees(engine, 1);
  options.version.reset();
  ExpectStarts(options);
  EXPECT_EQ(engine.Enter(milliseconds(1000)).code(), StatusCode::kNotFound);
  engine = EngineWeights::Attach(name_, milliseconds(1000)).value();
  EXPECT_EQ(engine.version().lineage, "second");
  EXPECT_EQ(engine.version().version, 0u);
  // Another model.
  options.lineage = "third";
  options.checkpoint = OtherModel();
  ExpectStarts(options);
  EXPECT_EQ(engine.Enter(milliseconds(1000)).code(), StatusCode::kNotFound);
  engine = EngineWeights::Attach(name_, milliseconds(1000)).value();
  EXPECT_EQ(engine.version().lineage, "third");
  EXPECT_EQ(engine.tensors().size(), 1u);
  // And back.
  ExpectStarts(Rebuilding());
  ExpectLive(1);
}

TEST_F(TakeoverTest, RebuildPutsASegmentInThePlaceOfWhatIsNone) {
  Advance(1);
  ASSERT_TRUE(SharedMemory::Create(name_).ok());  // Never finished.
  EXPECT_EQ(Receiver::Open(Options()).status().code(), StatusCode::kCorruption);
  ExpectStarts(Rebuilding());
  ExpectLive(1);
}

// Found by a user: it was told to rebuild from the checkpoint, which was the cause, and what it had
// made stayed.
TEST_F(TakeoverTest, CheckpointBeyondTheVersionThatIsAskedFor) {
  for (std::uint64_t seed = 1; seed <= 3; ++seed) Advance(seed);
  ReceiverOptions options = Options(3);
  options.version = 2;
  const Status refused = Receiver::Open(options).status();
  EXPECT_EQ(refused.code(), StatusCode::kVersionMismatch);
  EXPECT_THAT(refused.message(), HasSubstr("is version 3 of lineage 'default', after version 2"));
  EXPECT_EQ(Segment::Open(name_).status().code(), StatusCode::kNotFound);
  // What was there before stays.
  LeaveServing();
  options.checkpoint = trainer_.Directory(0);
  EXPECT_EQ(Receiver::Open(options).status().code(), StatusCode::kVersionMismatch);
  ExpectLive(3);
}

// Refusing would keep a good engine from its updates: it is told instead.
TEST_F(TakeoverTest, ACheckpointThatNoRebuildCouldUseIsTold) {
  Advance(1);
  LeaveServing();
  ReceiverOptions options = Options();
  for (const std::string& wrong : {directory_.File("nowhere"), OtherModel()}) {
    options.checkpoint = wrong;
    const auto receiver = Receiver::Open(options);
    ASSERT_TRUE(receiver.ok()) << receiver.status().ToString();
    EXPECT_TRUE(receiver.value()->status().ready);
    EXPECT_THAT(receiver.value()->status().message, HasSubstr("a rebuild would fail"));
  }
  const auto receiver = Receiver::Open(Options());
  ASSERT_TRUE(receiver.ok());
  EXPECT_EQ(receiver.value()->status().message, "");
}

TEST_F(TakeoverTest, AGroupThatIsTakenOverInPartIsTold) {
  Advance(1);
  LeaveServing();
  {
    const auto segment = Segment::Open(name_).value();
    const LiveVersion held = segment->version();
    segment->Announce(2, {name_, "its-draft"});  // An update of both, as it is left when done.
    segment->CommitVersion(held.version, held.digest);
  }
  const auto receiver = Receiver::Open(Options());
  ASSERT_TRUE(receiver.ok()) << receiver.status().ToString();
  EXPECT_TRUE(receiver.value()->status().ready);
  EXPECT_THAT(receiver.value()->status().message, HasSubstr("'its-draft'"));
}

// A trainer that went back: versions 1 and 3 have the same bytes, and 2 others.
class RepeatedBytesTest : public TakeoverTest {
 protected:
  RepeatedBytesTest() {
    for (std::uint64_t seed = 1; seed <= 2; ++seed) Advance(seed);
    PublishStep(2, 1);
  }
  // One more version, from one of the trainer's checkpoints to another.
  void PublishStep(std::uint64_t base, std::uint64_t target) {
    const auto published =
        Publish(test::PublishOf(store_, trainer_.Directory(base), trainer_.Directory(target)));
    SEGUE_CHECK(published.ok());
  }
  void ExpectHolds(const ReceiverStatus& status, std::uint64_t version, std::uint64_t bytes_of) {
    EXPECT_EQ(status.version, version);
    auto weights = EngineWeights::Attach(name_, milliseconds(1000)).value();
    const auto step = weights.BeginStep(milliseconds(1000));
    ASSERT_TRUE(step.ok());
    const Checkpoint expected = Checkpoint::Open(trainer_.Directory(bytes_of)).value();
    for (std::size_t i = 0; i < expected.tensors().size(); ++i) {
      const EngineTensor& tensor = weights.tensors()[i];
      EXPECT_TRUE(std::ranges::equal(ByteSpan(tensor.data, tensor.size), expected.TensorBytes(i)));
    }
  }
};

TEST_F(RepeatedBytesTest, TheRecordedNumberStaysAndNothingLeadsBack) {
  LeaveServing();
  const auto receiver = Receiver::Open(Options()).value();
  ExpectHolds(receiver->status(), 3, 1);
  for (const std::uint64_t earlier : {1, 2}) {
    const auto back = receiver->Update({"back", {}, earlier});
    EXPECT_EQ(back.status().code(), StatusCode::kVersionMismatch) << earlier;
    EXPECT_THAT(back.status().message(), HasSubstr("does not lead back"));
    ExpectHolds(receiver->status(), 3, 1);
  }
  trainer_.Step(9);
  PublishStep(1, 3);
  const auto on = receiver->Update({"on"});
  ASSERT_TRUE(on.ok()) << on.status().ToString();
  EXPECT_EQ(on->base_version, 3u);
  ExpectHolds(receiver->status(), 4, 3);
}

// An older listing, or a store that was put back, does not take a receiver with it.
TEST_F(RepeatedBytesTest, ARestartDoesNotGoBackToAnEarlierNumber) {
  LeaveServing();
  const std::string manifest = JoinPath(store_, object_name::Version("default", 3));
  ASSERT_TRUE(RenameFile(manifest, directory_.File("away")).ok());
  EXPECT_EQ(Receiver::Open(Options()).status().code(), StatusCode::kVersionMismatch);
  ReceiverOptions stays = Options();
  stays.catch_up = false;
  ExpectHolds(Receiver::Open(stays).value()->status(), 3, 1);
  ASSERT_TRUE(RenameFile(directory_.File("away"), manifest).ok());
  ExpectHolds(Receiver::Open(Options()).value()->status(), 3, 1);
}

TEST_F(RepeatedBytesTest, AnInterruptedApplyIsResolvedToTheNumberThatItHadBegun) {
  ReceiverOptions second = Options();
  second.version = 2;
  ASSERT_TRUE(Receiver::Open(second).ok());
  {
    const auto segment = Segment::Open(name_).value();
    ASSERT_TRUE(segment->gate().Close(milliseconds(100)).ok());
    segment->BeginApply(3);
  }
  ReceiverOptions stays = Options();
  stays.catch_up = false;
  ExpectHolds(Receiver::Open(stays).value()->status(), 3, 1);
}

// Bytes without a record stand at each version that they are.
TEST_F(RepeatedBytesTest, BytesFromACheckpointStandAtTheVersionThatIsAskedFor) {
  for (const std::uint64_t wanted : {1, 2, 3}) {
    ReceiverOptions options = Options(1);
    options.version = wanted;
    options.rebuild = true;
    const auto receiver = Receiver::Open(options);
    ASSERT_TRUE(receiver.ok()) << receiver.status().ToString();
    ExpectHolds(receiver.value()->status(), wanted, wanted == 2 ? 2 : 1);
    ASSERT_TRUE(receiver.value()->Rebuild(2).ok()) << wanted;
    ExpectHolds(receiver.value()->status(), 2, 2);
  }
}

}  // namespace
}  // namespace segue
