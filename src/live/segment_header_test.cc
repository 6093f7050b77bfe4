// SPDX-License-Identifier: Apache-2.0
//
// Segment header: a segment that anyone may have made is refused or used safely, never crashed on.
// Every header field gets odd values, then random bytes fall anywhere below the weights.
#include "live/segment_header.h"

#include <gmock/gmock.h>
#include <sys/mman.h>
#include <unistd.h>

#include <initializer_list>
#include <string>
#include <vector>

#include "base/random.h"
#include "live/segment.h"
#include "live/testing.h"
#include "segue/engine.h"

namespace segue {
namespace {

using test::SegmentName;
using test::SmallPlan;
using ::testing::HasSubstr;
using namespace std::chrono_literals;
namespace field = segment_field;

constexpr std::uint64_t kMax = ~0ull;

// A whole segment without a receiver, its bytes below the weights, and a way to damage them.
class SegmentHeader : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(Segment::Create(name_, SmallPlan(), "main", 4).ok());
    object_ = SharedMemory::Open(name_).value();
    contents_ = ReadSegment(object_).value();
    head_.resize(contents_.layout.offsets_offset + 8 * contents_.tensor_offsets.size());
    ASSERT_TRUE(object_.Read(0, head_).ok());
  }

  void Write(std::uint64_t offset, ByteSpan bytes) {
    ASSERT_EQ(
        ::pwrite(object_.descriptor(), bytes.data(), bytes.size(), static_cast<off_t>(offset)),
        static_cast<ssize_t>(bytes.size()));
  }
  template <typename T>
  void WriteValue(std::uint64_t offset, T value) {
    Write(offset, std::as_bytes(std::span(&value, 1)));
  }
  void Restore() { Write(0, head_); }

  void ExpectRefused(const std::string& what) {
    const Status receiver = Segment::Open(name_).status();
    EXPECT_TRUE(receiver.code() == StatusCode::kCorruption ||
                receiver.code() == StatusCode::kUnsupported)
        << what << ": " << receiver.ToString();
    EXPECT_FALSE(EngineWeights::Attach(name_, 0ms).ok()) << what;
  }

  template <typename T>
  void ExpectRefusedValues(std::uint64_t offset, std::initializer_list<std::uint64_t> values) {
    for (const std::uint64_t value : values) {
      WriteValue(offset, static_cast<T>(value));
      ExpectRefused("offset " + std::to_string(offset) + ", value " + std::to_string(value));
      Restore();
    }
  }

  const SegmentName name_;
  SharedMemory object_;
  SegmentContents contents_;
  ByteVector head_;
};

TEST_F(SegmentHeader, ReadsWhatWasWritten) {
  EXPECT_EQ(contents_.lineage, "main");
  EXPECT_EQ(contents_.layout.slot_count, 4u);
  EXPECT_EQ(contents_.plan.digest(), SmallPlan().digest());
  EXPECT_EQ(AsText(ByteSpan(head_).first(8)), "SEGUELIV");
  EXPECT_EQ(contents_.layout.weights_offset % (2 << 20), 0u);
  EXPECT_EQ(contents_.tensor_offsets[0], contents_.layout.weights_offset);
}

TEST_F(SegmentHeader, RefusesOddFields) {
  const SegmentLayout& layout = contents_.layout;
  const std::uint64_t size = layout.segment_size, weights = layout.weights_offset;
  ExpectRefusedValues<std::uint64_t>(field::kMagic, {0, 1, kMax, kSegmentMagic + 1});
  ExpectRefusedValues<std::uint32_t>(field::kFormatVersion, {0, 2, kMax});
  ExpectRefusedValues<std::uint32_t>(field::kSlotCount, {0, 5, 1024, 1025, 1u << 31, kMax});
  ExpectRefusedValues<std::uint64_t>(field::kSegmentSize,
                                     {0, 1, 4096, weights, size - 1, size + 1, 2 * size, kMax});
  ExpectRefusedValues<std::uint64_t>(
      field::kPlanOffset, {0, 1, 4096, layout.plan_offset - 1, layout.plan_offset + 1, weights,
                           size, 1ull << 63, kMax, kMax - layout.plan_size + 1});
  ExpectRefusedValues<std::uint64_t>(
      field::kPlanSize, {0, 1, layout.plan_size - 1, layout.plan_size + 1, layout.plan_size + 8,
                         weights, size, limits::kPlanSizeMax, 1ull << 63, kMax});
  ExpectRefusedValues<std::uint64_t>(
      field::kOffsetsOffset, {0, 1, 8, layout.plan_offset, layout.offsets_offset - 8,
                              layout.offsets_offset + 1, layout.offsets_offset + 8, weights - 8,
                              weights, size - 8, size, 1ull << 63, kMax, kMax - 7});
  ExpectRefusedValues<std::uint64_t>(field::kWeightsOffset, {0, 1, 4096, weights - 1, weights + 256,
                                                             size, 1ull << 62, kMax, kMax << 21});
  ExpectRefusedValues<std::uint32_t>(field::kGate, {3, 1u << 31, kMax});
  ExpectRefusedValues<std::uint32_t>(field::kPhase, {6, 1u << 31, kMax});
  ExpectRefusedValues<std::uint64_t>(field::kVersion, {limits::kVersionMax + 1, kMax});
  ExpectRefusedValues<std::uint64_t>(field::kTargetVersion, {limits::kVersionMax + 1, kMax});
  ExpectRefusedValues<std::uint64_t>(field::kLineageSize, {0, 5, 128, 129, 4096, 1ull << 63, kMax});
  ExpectRefusedValues<std::uint8_t>(field::kLineage, {0, '/', '.', '\n', 0xff});
}

// What an update of several lineages leaves.
TEST_F(SegmentHeader, AnUpdateThatWasAnnounced) {
  SegmentWords words(head_.data());
  const std::vector<std::string> mates(kGroupSizeMax, std::string(64, 'm'));
  words.Announce(7, mates);
  EXPECT_EQ(words.Mates(), mates);
  EXPECT_EQ(words.Record().version, 0u);
  EXPECT_EQ(words.Record().target_version, 7u);
  EXPECT_EQ(words.phase().load(), static_cast<std::uint32_t>(Phase::kPending));
  for (const std::uint64_t size : {std::uint64_t{0}, kMatesSizeMax + 1, kMax}) {
    StoreLittle(head_.data() + field::kMatesSize, size);
    EXPECT_TRUE(words.Mates().empty()) << size;
  }
}

// An engine's stray write: a receiver goes on, and its next record makes the sequence even again.
TEST_F(SegmentHeader, ASequenceThatStaysOddHoldsNobodyUp) {
  SegmentWords words(head_.data());
  words.CommitVersion(3, {{1, 2}});
  StoreLittle(head_.data() + field::kSequence, std::uint64_t{77});
  EXPECT_EQ(words.Record().version, 3u);
  words.CommitVersion(4, {{3, 4}});
  SegmentRecord record;
  EXPECT_TRUE(words.ReadRecord(record));
  EXPECT_EQ(record.version, 4u);
}

TEST_F(SegmentHeader, RefusesOddTensorOffsets) {
  const SegmentLayout& layout = contents_.layout;
  for (std::size_t i = 0; i < contents_.tensor_offsets.size(); ++i) {
    const std::uint64_t right = contents_.tensor_offsets[i];
    ExpectRefusedValues<std::uint64_t>(
        layout.offsets_offset + 8 * i,
        {0, 1, 4096, layout.weights_offset - 256, right + 1, right + 128, layout.segment_size + 256,
         1ull << 63, kMax, kMax - 255});
  }
  // In the wrong order; the last one past the end.
  WriteValue(layout.offsets_offset, contents_.tensor_offsets[2]);
  ExpectRefused("order");
  Restore();
  ExpectRefusedValues<std::uint64_t>(layout.offsets_offset + 24, {layout.segment_size});
}

TEST_F(SegmentHeader, RefusesOtherSizes) {
  // From the largest down, since what is cut off is lost. In between the weights alone are cut.
  for (const std::uint64_t size :
       {contents_.layout.segment_size + 4096, contents_.layout.segment_size - 1,
        contents_.layout.weights_offset, contents_.layout.plan_offset + 3, std::uint64_t{4096},
        std::uint64_t{4095}, std::uint64_t{8}, std::uint64_t{1}, std::uint64_t{0}}) {
    ASSERT_EQ(::ftruncate(object_.descriptor(), static_cast<off_t>(size)), 0);
    ExpectRefused("size " + std::to_string(size));
  }
}

TEST_F(SegmentHeader, NamesFieldAndValue) {
  WriteValue<std::uint64_t>(field::kPlanSize, 12345678901234);
  EXPECT_THAT(Segment::Open(name_).status().message(), HasSubstr("plan_size is 12345678901234"));
}

TEST_F(SegmentHeader, RandomDamageNeverCrashes) {
  Random random(20260101);
  int used_count = 0;
  for (int i = 0; i < 3000; ++i) {
    for (std::uint64_t n = random.Below(4); n != kMax; --n) {
      // The header gets half of the hits, so that its few bytes are not missed.
      const std::uint64_t range = random.Below(2) == 0 ? 384 : head_.size();
      WriteValue(random.Below(range), static_cast<std::uint8_t>(random.Next()));
    }
    const auto segment = Segment::Open(name_);
    const auto engine = EngineWeights::Attach(name_, 0ms);
    if (segment.ok()) {
      ++used_count;
      const MutableModelView view = segment.value()->view();
      const Plan& plan = segment.value()->plan();
      for (std::size_t t = 0; t < view.tensor_count(); ++t) {
        if (plan.tensors()[t].size != 0) view.Tensor(t)[plan.tensors()[t].size - 1] = std::byte{1};
      }
      (void)segment.value()->gate().Close(0ms).ok();
      (void)segment.value()->version();
    }
    if (engine.ok()) (void)engine->version();
    Restore();
  }
  EXPECT_GT(used_count, 0) << "slots, counts and padding may hold anything";
}

TEST_F(SegmentHeader, RecordOfAReceiverThatDiedInside) {
  const EngineWeights engine = EngineWeights::Attach(name_, 0ms).value();
  {
    const auto segment = Segment::Open(name_).value();
    segment->CommitVersion(5, Digest{{1, 2}});
  }
  EXPECT_EQ(engine.version().digest, (Digest{{1, 2}}).ToHex());
  WriteValue<std::uint64_t>(field::kSequence, 3);
  EXPECT_EQ(engine.version().version, 5u);
  EXPECT_EQ(engine.version().digest, "");
  EXPECT_FALSE(engine.version().serving);
  const auto segment = Segment::Open(name_).value();
  EXPECT_EQ(segment->version().version, 5u);
  EXPECT_TRUE(engine.version().serving);
}

}  // namespace
}  // namespace segue
