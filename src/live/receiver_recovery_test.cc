// SPDX-License-Identifier: Apache-2.0
//
// A receiver whose weights went wrong, or that was killed: what is not the version is found,
// nothing is written to it, a rebuild leads out, and the next receiver takes over. Cases D1 and D9
// of the faults reported in the field.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "checkpoint/checkpoint.h"
#include "delta/manifest.h"
#include "delta/model_view.h"
#include "live/receiver_testing.h"
#include "live/segment.h"
#include "live/testing.h"
#include "segue/engine.h"
#include "segue/receiver.h"

namespace segue {
namespace {

using std::chrono::milliseconds;

// Where a tensor lies in a segment's bytes.
std::uint64_t OffsetOfTensor(ByteSpan segment, const std::string& name) {
  const auto number = [&](std::uint64_t offset) {
    return LoadLittle<std::uint64_t>(segment.data() + offset);
  };
  const Plan plan = Plan::Parse(segment.subspan(number(segment_field::kPlanOffset),
                                                number(segment_field::kPlanSize)))
                        .value();
  for (std::size_t i = 0; i < plan.tensors().size(); ++i) {
    if (plan.tensors()[i].spec.name == name) {
      return number(number(segment_field::kOffsetsOffset) + 8 * i);
    }
  }
  ADD_FAILURE() << "no tensor " << name;
  return 0;
}

class ReceiverRecoveryTest : public test::ReceiverFixture {
 protected:
  ReceiverRecoveryTest() : ReceiverFixture("recovery") {}
};

// case D9: live bytes that are not the base are refused before anything is written.
TEST_F(ReceiverRecoveryTest, WrongLiveBytes) {
  Advance(1);
  const auto receiver = Open(Options());
  trainer_.tensors()[0].bytes[4242] ^= std::byte{1};
  Advance(2, 100);
  // Another hand in the shared memory: the place that version 2 changes for sure.
  const std::string path = "/dev/shm/segue-" + static_cast<const std::string&>(name_);
  auto weights = EngineWeights::Attach(name_, milliseconds(1000)).value();
  const auto* place = const_cast<std::byte*>(weights.Find("a.weight")->data) + 4242;
  const std::byte held = *place;
  MappedFile file = MappedFile::Open(path, MappedFile::Mode::kReadWrite).value();
  const std::uint64_t offset = OffsetOfTensor(file.bytes(), "a.weight") + 4242;
  ASSERT_EQ(file.bytes()[offset], held);
  file.mutable_bytes()[offset] ^= std::byte{0x40};
  const auto refused = receiver->Update(To(2));
  EXPECT_EQ(refused.status().code(), StatusCode::kCorruption) << refused.status().ToString();
  EXPECT_NE(refused.status().message().find("a.weight"), std::string::npos);
  EXPECT_EQ(receiver->status().state, ReceiverState::kFailed);
  EXPECT_EQ(receiver->status().failure, StatusCode::kCorruption);
  EXPECT_FALSE(receiver->status().ready);
  // What went wrong once is not believed again, whatever it holds.
  file.mutable_bytes()[offset] ^= std::byte{0x40};
  EXPECT_EQ(receiver->Update(To(2)).status().code(), StatusCode::kCorruption);
  ASSERT_TRUE(receiver->Rebuild({}).ok());
  EXPECT_TRUE(receiver->status().ready);
  ExpectLive(2);
}

// The scrub finds a wrong byte that no update touches; a rebuild leads out.
TEST_F(ReceiverRecoveryTest, ScrubAndRebuild) {
  Advance(1);
  ReceiverOptions options = Options();
  options.scrub_rate = 4ull << 30;
  const auto receiver = Open(options);
  const auto wait_for = [&](auto reached) {
    return test::Eventually([&] { return reached(receiver->status()); });
  };
  ASSERT_TRUE(wait_for([](const ReceiverStatus& status) { return status.scrub_passes >= 2; }));
  EXPECT_TRUE(receiver->status().ready);
  const std::string path = "/dev/shm/segue-" + static_cast<const std::string&>(name_);
  MappedFile file = MappedFile::Open(path, MappedFile::Mode::kReadWrite).value();
  file.mutable_bytes()[OffsetOfTensor(file.bytes(), "b.weight")] ^= std::byte{1};
  ASSERT_TRUE(wait_for([](const ReceiverStatus& status) { return status.scrub_faults >= 1; }));
  EXPECT_FALSE(receiver->status().ready);
  Advance(2);
  EXPECT_EQ(receiver->Update(To(2)).status().code(), StatusCode::kCorruption);
  EXPECT_EQ(receiver->status().version, 1u);
  ASSERT_TRUE(receiver->Rebuild({}).ok());
  EXPECT_TRUE(receiver->status().ready);
  ExpectLive(2);
}

TEST_F(ReceiverRecoveryTest, RebuildGoesWhereItIsTold) {
  for (std::uint64_t seed = 1; seed <= 3; ++seed) Advance(seed);
  const auto receiver = Open(Options());
  ExpectLive(3);
  ASSERT_TRUE(receiver->Rebuild(2).ok());
  ExpectLive(2);
  ASSERT_TRUE(receiver->Update(To(3)).ok());
  ExpectLive(3);
  // What cannot be begun changes nothing.
  EXPECT_EQ(receiver->Rebuild(9).code(), StatusCode::kNotFound);
  ASSERT_TRUE(RenameFile(trainer_.Directory(0), trainer_.Directory(0) + "-away").ok());
  EXPECT_FALSE(receiver->Rebuild({}).ok());
  ASSERT_TRUE(RenameFile(trainer_.Directory(0) + "-away", trainer_.Directory(0)).ok());
  EXPECT_TRUE(receiver->status().ready);
  ExpectLive(3);
  // What fails in the middle leaves a gate that stays closed.
  const std::string payloads = JoinPath(store_, object_name::PayloadFolder("default", 2));
  ASSERT_TRUE(RenameFile(payloads, directory_.File("away")).ok());
  EXPECT_EQ(receiver->Rebuild({}).code(), StatusCode::kNotFound);
  EXPECT_EQ(receiver->status().state, ReceiverState::kPoisoned);
  EXPECT_FALSE(receiver->status().ready);
  EXPECT_EQ(receiver->Update(To(3)).status().code(), StatusCode::kTainted);
  ASSERT_TRUE(RenameFile(directory_.File("away"), payloads).ok());
  ASSERT_TRUE(receiver->Rebuild({}).ok());
  ExpectLive(3);
}

// Found by a user: a rebuild held the engine for seconds and reported a pause of 0, from the
// checkpoint's version.
TEST_F(ReceiverRecoveryTest, RebuildReportsItsPause) {
  for (std::uint64_t seed = 1; seed <= 3; ++seed) Advance(seed);
  const auto receiver = Open(Options());
  ASSERT_NE(receiver, nullptr);
  for (const std::uint64_t target : {2u, 0u}) {  // With a way from the checkpoint, and without.
    const std::uint64_t held = receiver->status().version;
    ASSERT_TRUE(receiver->Rebuild(target).ok());
    const ReceiverStatus status = receiver->status();
    EXPECT_EQ(status.base_version, held);
    EXPECT_EQ(status.last.base_version, held);
    EXPECT_EQ(status.last.target_version, target);
    EXPECT_EQ(status.last.changed_elements != 0, target != 0);
    EXPECT_GT(status.last.pause_s, status.last.gate_s + status.last.apply_s);
    EXPECT_LT(status.last.pause_started_ns, status.last.fence_completed_ns);
    EXPECT_LT(status.last.fence_completed_ns, status.last.resumed_ns);
  }
}

// The segment outlives its receiver, and the next one takes it over without the checkpoint's bytes.
TEST_F(ReceiverRecoveryTest, TakesOverWhatServes) {
  Advance(1);
  Open(Options()).reset();
  Advance(2);
  const auto receiver = Open(Options());
  ASSERT_NE(receiver, nullptr);
  EXPECT_EQ(receiver->status().last.base_version, 1u);
  ExpectLive(2);
  EXPECT_EQ(Receiver::Open(Options()).status().code(), StatusCode::kUnavailable);
}

// case D1: a receiver killed in the middle of an apply, at both ends of each chunk's changes.
TEST_F(ReceiverRecoveryTest, TakesOverAnInterruptedApply) {
  Advance(1);
  Open(Options()).reset();
  Advance(2);
  const Checkpoint target = Checkpoint::Open(trainer_.Directory(2)).value();
  {
    const auto segment = Segment::Open(name_).value();
    ASSERT_TRUE(segment->gate().Close(milliseconds(100)).ok());
    segment->BeginApply(2);
    // Up to the middle of the first tensor's third chunk.
    const std::size_t written = 2 * 65536 + 30000;
    std::memcpy(segment->view().Tensor(0), target.TensorBytes(0).data(), written);
  }
  auto engine = EngineWeights::Attach(name_, milliseconds(1000)).value();
  EXPECT_EQ(engine.Enter(milliseconds(20)).code(), StatusCode::kUnavailable);
  const auto receiver = Open(Options());
  ASSERT_NE(receiver, nullptr);
  EXPECT_TRUE(engine.Enter(milliseconds(1000)).ok());
  engine.Leave();
  ExpectLive(2);
}

TEST_F(ReceiverRecoveryTest, InterruptedApplyWithForeignBytesIsPoisoned) {
  Advance(1);
  Open(Options()).reset();
  Advance(2);
  {
    const auto segment = Segment::Open(name_).value();
    ASSERT_TRUE(segment->gate().Close(milliseconds(100)).ok());
    segment->BeginApply(2);
    for (int i = 0; i < 1000; ++i) segment->view().Tensor(0)[70000 + i] ^= std::byte{0x11};
  }
  EXPECT_EQ(Receiver::Open(Options()).status().code(), StatusCode::kTainted);
  EXPECT_EQ(Receiver::Open(Options()).status().code(), StatusCode::kTainted);
  auto engine = EngineWeights::Attach(name_, milliseconds(1000)).value();
  EXPECT_EQ(engine.Enter(milliseconds(20)).code(), StatusCode::kUnavailable);
  ReceiverOptions options = Options();
  options.rebuild = true;
  const auto receiver = Open(options);
  ASSERT_NE(receiver, nullptr);
  ExpectLive(2);
}

}  // namespace
}  // namespace segue
