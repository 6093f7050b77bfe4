// SPDX-License-Identifier: Apache-2.0
//
// Interrupted applies, cut at every element of a chunk: resolution must end at exactly the target,
// and must see bytes that are somebody else's. Case D1.
#include "live/resolve_live.h"

#include <gtest/gtest.h>

#include <cstring>

#include "delta/testing.h"

namespace segue {
namespace {

constexpr std::uint64_t kChunkSize = 4096;

struct Shape {
  Profile profile;
  Dtype dtype;
  double share;
};

class ResolveLiveTest : public testing::TestWithParam<Shape> {
 protected:
  void SetUp() override {
    plan_ = test::OneTensorPlan(GetParam().dtype, 3 * kChunkSize - 40, kChunkSize);
    base_ = std::make_unique<test::Model>(plan_, 1);
    target_ = std::make_unique<test::Model>(*base_);
    test::Mutate(plan_, *target_, GetParam().share, 2);
    EncodeOptions options;
    options.profile = GetParam().profile;
    payload_ = test::Encode(plan_, *base_, *target_, options).payload;
    const ByteSpan bytes = payload_;
    staged_ = StagedDelta::Stage(plan_, std::span(&bytes, 1), 1).value();
  }

  // Target below byte `split` of the tensor, base from there: what a killed writer leaves.
  test::Model Interrupted(std::uint64_t split) const {
    test::Model live = *target_;
    test::Model base = *base_;
    std::memcpy(live.Tensor(0) + split, base.Tensor(0) + split, plan_.model_size() - split);
    return live;
  }

  Plan plan_;
  std::unique_ptr<test::Model> base_;
  std::unique_ptr<test::Model> target_;
  ByteVector payload_;
  StagedDelta staged_;
};

TEST_P(ResolveLiveTest, CutAtEveryElement) {
  const unsigned width = DtypeWidth(GetParam().dtype);
  // All of the second chunk and the borders around it.
  for (std::uint64_t split = kChunkSize - 8; split <= 2 * kChunkSize + 8; split += width) {
    test::Model live = Interrupted(split);
    const auto resolved = ResolveLive(plan_, staged_, live.live(), 2);
    ASSERT_TRUE(resolved.ok()) << split << ": " << resolved.status().ToString();
    ASSERT_EQ(live, *target_) << split;
  }
}

TEST_P(ResolveLiveTest, CountsWhatItFound) {
  test::Model live = *base_;
  auto resolved = ResolveLive(plan_, staged_, live.live(), 1);
  ASSERT_TRUE(resolved.ok());
  EXPECT_EQ(resolved->chunks_at_base, staged_.rows().size());
  resolved = ResolveLive(plan_, staged_, live.live(), 1);
  ASSERT_TRUE(resolved.ok());
  EXPECT_EQ(resolved->chunks_at_target, staged_.rows().size());
  EXPECT_EQ(live, *target_);
}

TEST_P(ResolveLiveTest, ForeignBytesAreTainted) {
  test::Model live = Interrupted(2 * kChunkSize - 64);
  live.Tensor(0)[kChunkSize + 5] ^= std::byte{4};
  const auto resolved = ResolveLive(plan_, staged_, live.live(), 1);
  if (staged_.rows()[1].encoding == Encoding::kRaw) {
    // Raw bytes do not depend on what was there.
    EXPECT_TRUE(resolved.ok());
    return;
  }
  EXPECT_EQ(resolved.status().code(), StatusCode::kTainted);
  EXPECT_NE(resolved.status().message().find("chunk 1"), std::string::npos);
}

INSTANTIATE_TEST_SUITE_P(Shapes, ResolveLiveTest,
                         testing::Values(Shape{Profile::kSparseZstd, Dtype::kBF16, 0.03},
                                         Shape{Profile::kSparseZstd, Dtype::kU8, 0.02},
                                         Shape{Profile::kSparseZstd, Dtype::kF32, 0.05},
                                         Shape{Profile::kSparseZstd, Dtype::kF64, 0.05},
                                         Shape{Profile::kSparseZstd, Dtype::kBF16, 0.5},
                                         Shape{Profile::kSnappyZstd, Dtype::kBF16, 0.01},
                                         Shape{Profile::kLz4Zstd, Dtype::kF32, 0.02},
                                         Shape{Profile::kZstd, Dtype::kU8, 0.02},
                                         Shape{Profile::kSnappyZstd, Dtype::kU8, 1.0}),
                         [](const auto& shape) { return std::to_string(shape.index); });

}  // namespace
}  // namespace segue
