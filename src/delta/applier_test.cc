// SPDX-License-Identifier: Apache-2.0
//
// Applier: what the preflight must refuse, and that a refusal writes nothing. Method: for every
// encoding, live bytes with one wrong bit (where the XOR flips, in a changed element where it does
// not, elsewhere), and payloads whose digests lie; after each the live bytes are compared with what
// they were, and the message must name tensor and chunk.
#include "delta/applier.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "delta/testing.h"

namespace segue {
namespace {

using test::Model;
using ::testing::HasSubstr;

constexpr std::uint64_t kChunk = 4096;
constexpr std::uint64_t kPlace = kChunk + 200;  // Byte of the changed element, in chunk 1.

// Three chunks of BF16; one element of chunk 1 changes, in its lowest bit, among others that keep
// dense encodings and their rows alike.
class ApplierTest : public ::testing::Test {
 protected:
  ApplierTest()
      : plan_(test::OneTensorPlan(Dtype::kBF16, 3 * kChunk, kChunk)),
        base_(plan_, 1),
        target_(base_) {
    target_.Tensor(0)[kPlace] ^= std::byte{1};
  }

  StagedDelta StageAs(Encoding encoding) const {
    return test::Stage(plan_, test::EncodeAs(plan_, base_, target_, std::span(&encoding, 1)));
  }

  // Expects a refusal with `code` that leaves `live` as it is.
  void ExpectRefused(const StagedDelta& staged, Model live, StatusCode code) const {
    const Model copy = live;
    const Status status = test::Preflight(plan_, staged, live);
    EXPECT_EQ(status.code(), code) << status.ToString();
    EXPECT_THAT(status.message(), HasSubstr("tensor 'w' chunk 1"));
    EXPECT_TRUE(live == copy);
  }

  Model BaseWithFlip(std::uint64_t byte, std::byte bit) const {
    Model live = base_;
    live.Tensor(0)[byte] ^= bit;
    return live;
  }

  Plan plan_;
  Model base_;
  Model target_;
};

TEST_F(ApplierTest, RefusesAWrongBitWhereTheXorFlips) {
  for (const Encoding encoding : test::kEncodings) {
    SCOPED_TRACE(EncodingName(encoding));
    ExpectRefused(StageAs(encoding), BaseWithFlip(kPlace, std::byte{1}),
                  StatusCode::kVersionMismatch);
  }
}

// A bit that the XOR leaves alone, in an element that changes.
TEST_F(ApplierTest, RefusesAWrongBitThatTheXorLeavesAlone) {
  for (const Encoding encoding : test::kEncodings) {
    SCOPED_TRACE(EncodingName(encoding));
    for (const std::byte bit : {std::byte{2}, std::byte{0x80}}) {
      ExpectRefused(StageAs(encoding), BaseWithFlip(kPlace, bit), StatusCode::kVersionMismatch);
      ExpectRefused(StageAs(encoding), BaseWithFlip(kPlace + 1, bit), StatusCode::kVersionMismatch);
    }
  }
}

// Why `touched` exists: such a bit changes old and new value alike, so the difference is the same.
TEST_F(ApplierTest, TheDifferenceAloneWouldNotSeeThatBit) {
  const StagedDelta staged = StageAs(Encoding::kSparse);
  Model live = BaseWithFlip(kPlace + 1, std::byte{0x80});
  const ChunkWork work = staged.Work(plan_, 0, live.Tensor(0) + kChunk);
  const auto sums = host::ActiveKernels().sparse_preflight(work.key, work.sparse, work.live);
  EXPECT_EQ(sums.difference, work.after - work.before);
  EXPECT_NE(sums.touched, work.touched);
}

TEST_F(ApplierTest, DenseEncodingsAndUnrecordedTouchedProveTheWholeChunk) {
  for (const Encoding encoding : test::kEncodings) {
    SCOPED_TRACE(EncodingName(encoding));
    StagedDelta staged = StageAs(encoding);
    if (encoding == Encoding::kSparse) {
      staged =
          test::Stage(plan_, test::Rewrite(plan_, staged, [](ChunkRow& row) { row.touched = 0; }));
    }
    Model live = base_;
    ASSERT_TRUE(test::Preflight(plan_, staged, live).ok());
    for (const std::uint64_t byte : {kChunk, kPlace - 1, kPlace + 2, 2 * kChunk - 1}) {
      ExpectRefused(staged, BaseWithFlip(byte, std::byte{0x10}), StatusCode::kVersionMismatch);
    }
  }
}

// A sparse row with `touched` proves what it changes and reads nothing else (docs/format.md).
TEST_F(ApplierTest, SparseProvesTheChangedElementsAlone) {
  const StagedDelta staged = StageAs(Encoding::kSparse);
  Model live = BaseWithFlip(kPlace + 2, std::byte{1});
  EXPECT_TRUE(test::PreflightAndApply(plan_, staged, live).ok());
  target_.Tensor(0)[kPlace + 2] ^= std::byte{1};
  EXPECT_TRUE(live == target_);
}

TEST_F(ApplierTest, ChunksWithoutRowsAreNotLookedAt) {
  Model live = BaseWithFlip(0, std::byte{1});
  EXPECT_TRUE(test::Preflight(plan_, StageAs(Encoding::kSparse), live).ok());
}

TEST_F(ApplierTest, RefusesAPayloadThatLiesAboutItsTarget) {
  for (const Encoding encoding : test::kEncodings) {
    SCOPED_TRACE(EncodingName(encoding));
    for (const unsigned lane : {0u, 1u}) {
      const auto lie = [&](ChunkRow& row) { row.after.lane[lane] += 1; };
      const ByteVector payload = test::Rewrite(plan_, StageAs(encoding), lie);
      ExpectRefused(test::Stage(plan_, payload), base_, StatusCode::kCorruption);
    }
  }
}

TEST_F(ApplierTest, RefusesAPayloadThatLiesAboutItsBase) {
  for (const Encoding encoding : test::kEncodings) {
    SCOPED_TRACE(EncodingName(encoding));
    const auto lie = [&](ChunkRow& row) { row.before.lane[1] += 1; };
    const StagedDelta staged = test::Stage(plan_, test::Rewrite(plan_, StageAs(encoding), lie));
    Model live = base_;
    const Status status = test::Preflight(plan_, staged, live);
    EXPECT_FALSE(status.ok());
    EXPECT_TRUE(live == base_);
  }
}

// The base is right, so the payload is at fault: another base must not be asked for.
TEST_F(ApplierTest, RefusesAWrongTouched) {
  const auto lie = [](ChunkRow& row) { row.touched += 1; };
  const ByteVector payload = test::Rewrite(plan_, StageAs(Encoding::kSparse), lie);
  ExpectRefused(test::Stage(plan_, payload), base_, StatusCode::kCorruption);
  ExpectRefused(test::Stage(plan_, payload), BaseWithFlip(kPlace, std::byte{4}),
                StatusCode::kVersionMismatch);
}

TEST_F(ApplierTest, AFaultDuringApplyTaints) {
  for (const Encoding encoding : test::kEncodings) {
    if (encoding == Encoding::kRaw) continue;  // What raw writes does not depend on the base.
    const StagedDelta staged = StageAs(encoding);
    Model live = base_;
    const auto device = MakeHostDevice(1);
    Applier applier(plan_, staged, live.live(), *device);
    ASSERT_TRUE(applier.Preflight().ok());
    live.Tensor(0)[kPlace] ^= std::byte{1};  // Between the two.
    const Status status = applier.Apply();
    EXPECT_EQ(status.code(), StatusCode::kTainted) << EncodingName(encoding);
    EXPECT_NE(status.message().find("somebody else wrote to the weights"), std::string::npos);
    EXPECT_THAT(status.message(), HasSubstr("tensor 'w' chunk 1"));
  }
}

TEST_F(ApplierTest, ADeltaThatIsAppliedAlreadyIsRefused) {
  for (const Encoding encoding : test::kEncodings) {
    ExpectRefused(StageAs(encoding), target_, StatusCode::kVersionMismatch);
  }
}

TEST_F(ApplierTest, NoRowsIsFine) {
  const StagedDelta staged = test::Stage(plan_, test::WritePayload([](GroupBuilder&) {}));
  Model live = base_;
  EXPECT_TRUE(test::PreflightAndApply(plan_, staged, live).ok());
  EXPECT_TRUE(live == base_);
}

TEST_F(ApplierTest, DescribesAChunkByTensorAndItsOwnCount) {
  const Plan plan =
      Plan::Make({{"a", Dtype::kU8, {5000}}, {"b", Dtype::kU8, {9000}}}, 4096).value();
  EXPECT_EQ(DescribeChunk(plan, 1), "tensor 'a' chunk 1");
  EXPECT_EQ(DescribeChunk(plan, 2), "tensor 'b' chunk 0");
  EXPECT_EQ(DescribeChunk(plan, 4), "tensor 'b' chunk 2");
}

}  // namespace
}  // namespace segue
