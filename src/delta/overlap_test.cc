// SPDX-License-Identifier: Apache-2.0
//
// Case C1, tensors that share memory: the same part twice is tied and takes equal changes once;
// unequal changes, and every other way to share a byte, are refused with both names. Parts that
// only reach into one another's gaps are no overlap.
#include "delta/overlap.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "delta/applier.h"
#include "delta/live_map.h"
#include "delta/live_scan.h"
#include "delta/testing.h"
#include "delta/tied.h"

namespace segue {
namespace {

using test::Model;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr std::uint64_t kRows = 64;
constexpr std::uint64_t kColumns = 100;
constexpr std::uint64_t kSize = kRows * kColumns * 2;

class OverlapTest : public ::testing::Test {
 protected:
  OverlapTest()
      : plan_(Plan::Make({{"embed", Dtype::kBF16, {kRows, kColumns}},
                          {"head", Dtype::kBF16, {kRows, kColumns}}},
                         4096)
                  .value()),
        base_(plan_, 1),
        memory_(4 * kSize) {
    std::memcpy(base_.Tensor(1), base_.Tensor(0), kSize);
  }

  Result<LiveMap> Bind(std::uint64_t offset_a, std::optional<View> a, std::uint64_t offset_b,
                       std::optional<View> b) {
    const auto size = [&](std::uint64_t offset, const std::optional<View>& view) {
      return view ? memory_.size() - offset : kSize;
    };
    return LiveMap::Make(plan_, {{0, memory_.data() + offset_a, size(offset_a, a), a},
                                 {1, memory_.data() + offset_b, size(offset_b, b), b}});
  }
  void ExpectRefused(const Result<LiveMap>& map) {
    EXPECT_EQ(map.status().code(), StatusCode::kInvalidArgument);
    EXPECT_THAT(map.status().message(),
                AllOf(HasSubstr("'embed'"), HasSubstr("'head'"), HasSubstr("overlap")));
  }

  Plan plan_;
  Model base_;
  ByteVector memory_;
  std::unique_ptr<Device> device_ = MakeHostDevice(1);
};

TEST_F(OverlapTest, EqualChangesOfTiedTensorsAreAppliedOnce) {
  for (const std::optional<View>& view :
       {std::optional<View>(), std::optional(TransposedView(kRows, kColumns, 2))}) {
    const LiveMap live = Bind(0, view, 0, view).value();
    EXPECT_EQ(live.parts()[1].tied_to, &live.parts()[0]);
    Model target = base_;
    test::Mutate(plan_, target, 0.01, 5);
    std::memcpy(target.Tensor(1), target.Tensor(0), kSize);
    ASSERT_TRUE(CopyInto(plan_, target.view(), live, 1).ok());
    const ByteVector expected = memory_;
    for (const Encoding encoding : test::kEncodings) {
      SCOPED_TRACE(EncodingName(encoding));
      ASSERT_TRUE(CopyInto(plan_, base_.view(), live, 1).ok());
      // Both names prove themselves, each with its own digests.
      EXPECT_EQ(DigestLive(plan_, live, 1)->all, DigestModel(plan_, base_.view(), 1));
      const StagedDelta staged =
          test::Stage(plan_, test::EncodeAs(plan_, base_, target, std::span(&encoding, 1)));
      Applier applier(plan_, staged, live, *device_);
      const Status status = applier.Preflight();
      ASSERT_TRUE(status.ok()) << status.ToString();
      ASSERT_TRUE(applier.CheckSums(applier.sums()).ok());
      ASSERT_TRUE(applier.Apply().ok());
      EXPECT_EQ(memory_, expected);
      EXPECT_EQ(DigestLive(plan_, live, 1)->all, DigestModel(plan_, target.view(), 1));
    }
  }
}

TEST_F(OverlapTest, UnequalChangesOfTiedTensorsAreRefused) {
  const LiveMap live = Bind(0, std::nullopt, 0, std::nullopt).value();
  ASSERT_TRUE(CopyInto(plan_, base_.view(), live, 1).ok());
  const ByteVector loaded = memory_;
  for (const bool both : {false, true}) {
    Model target = base_;
    test::Mutate(plan_, target, 0.01, 5);
    // Only one of the names changes; or both do, and one element differs.
    std::memcpy(target.Tensor(1), (both ? target : base_).Tensor(0), kSize);
    target.Tensor(1)[4096 + 8] ^= std::byte{1};
    for (const Encoding encoding : test::kEncodings) {
      const StagedDelta staged =
          test::Stage(plan_, test::EncodeAs(plan_, base_, target, std::span(&encoding, 1)));
      Applier applier(plan_, staged, live, *device_);
      const Status status = applier.Preflight();
      EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
      EXPECT_THAT(status.message(), AllOf(HasSubstr("'embed'"), HasSubstr("tensor 'head' chunk")));
      EXPECT_EQ(memory_, loaded);
    }
  }
}

TEST_F(OverlapTest, SharedBytesInAnyOtherWayAreRefused) {
  const View rows = RowSlice(kColumns, 0, 8, 2);
  ExpectRefused(Bind(0, std::nullopt, 2, std::nullopt));
  ExpectRefused(Bind(0, std::nullopt, kSize - 1, std::nullopt));
  ExpectRefused(Bind(0, std::nullopt, 0, TransposedView(kRows, kColumns, 2)));
  ExpectRefused(Bind(0, std::nullopt, 400, rows));  // A fused tensor and a part of it.
  ExpectRefused(Bind(0, rows, 0, RowSlice(kColumns, 8, 8, 2)));
  // One column that both take.
  ExpectRefused(Bind(0, ColumnSlice(kRows, kColumns, 0, 10, 2, 0, 40), 18,
                     ColumnSlice(kRows, kColumns, 0, 10, 2, 0, 40)));
}

TEST_F(OverlapTest, TheSameTensorTwiceInOnePlaceIsRefused) {
  const auto map = LiveMap::Make(plan_, {{0, memory_.data(), kSize, std::nullopt, 0, 2},
                                         {0, memory_.data(), kSize, std::nullopt, 1, 2}});
  EXPECT_EQ(map.status().code(), StatusCode::kInvalidArgument);
}

TEST_F(OverlapTest, NeighboursAndInterleavedPartsAreFine) {
  EXPECT_TRUE(Bind(0, std::nullopt, kSize, std::nullopt).ok());
  // Columns of both in turn, in rows of one buffer.
  const auto live = Bind(0, ColumnSlice(kRows, kColumns, 0, 10, 2, 0, 40), 20,
                         ColumnSlice(kRows, kColumns, 0, 10, 2, 0, 40));
  ASSERT_TRUE(live.ok()) << live.status().ToString();
  EXPECT_EQ(live->parts()[1].tied_to, nullptr);
  EXPECT_FALSE(live->HoldsAll(0));
}

TEST_F(OverlapTest, PlacementsThatMakeNoSense) {
  const auto refused = [&](const Placement& placement) {
    return LiveMap::Make(plan_, {placement}).status().message();
  };
  EXPECT_THAT(refused({0, memory_.data(), kSize - 1}), HasSubstr("has 12799 bytes, its shape"));
  EXPECT_THAT(refused({0, nullptr, kSize}), HasSubstr("no address"));
  EXPECT_THAT(refused({1, memory_.data(), kSize, std::nullopt, 2, 2}),
              HasSubstr("tensor 'head' is copy 2 of 2"));
  EXPECT_THAT(refused({1, memory_.data(), kSize, RowSlice(kColumns, 60, 8, 2)}),
              AllOf(HasSubstr("tensor 'head'"), HasSubstr("leaves its tensor")));
}

}  // namespace
}  // namespace segue
