// SPDX-License-Identifier: Apache-2.0
//
// A delta built tensor by tensor in any order is the one that the encoder makes of both models at
// once: the same rows, the same target, whatever profile, order and threads.
#include "delta/delta_builder.h"

#include <gtest/gtest.h>

#include <numeric>

#include "delta/testing.h"

namespace segue {
namespace {

class DeltaBuilderTest : public testing::TestWithParam<Profile> {
 protected:
  DeltaBuilderTest() {
    test::Mutate(plan_, target_, 0.01, 5);
    // One tensor dense, one unchanged.
    Random random(9);
    for (std::uint64_t i = 0; i < plan_.tensors()[1].size; ++i) {
      target_.Tensor(1)[i] = static_cast<std::byte>(random.Next() >> 56);
    }
    std::copy_n(base_.Tensor(3), plan_.tensors()[3].size, target_.Tensor(3));
  }

  TensorChange Change(std::size_t tensor) {
    return {tensor, base_.Tensor(tensor), target_.Tensor(tensor)};
  }
  ByteVector Payload(const StagedDelta& staged, unsigned threads) {
    ByteVector payload;
    const auto summary = WriteStagedDelta(plan_, staged, threads, [&](ByteSpan bytes) {
      AppendBytes(payload, bytes);
      return Status();
    });
    EXPECT_TRUE(summary.ok());
    EXPECT_EQ(summary->row_count, staged.rows().size());
    return payload;
  }

  Plan plan_ = Plan::Make({test::SpecOfSize("a", Dtype::kBF16, 300'000),
                           test::SpecOfSize("b", Dtype::kU8, 70'001),
                           {"c", Dtype::kF16, {0}},
                           test::SpecOfSize("d", Dtype::kF32, 4096),
                           test::SpecOfSize("e", Dtype::kI64, 90'000)},
                          65536)
                   .value();
  test::Model base_{plan_, 1};
  test::Model target_ = base_;
};

TEST_P(DeltaBuilderTest, EqualsTheEncoder) {
  EncodeOptions options;
  options.profile = GetParam();
  const test::Encoded encoded = test::Encode(plan_, base_, target_, options);
  const StagedDelta expected = test::Stage(plan_, encoded.payload);
  DeltaBuilder builder(plan_, GetParam(), 2);
  ChunkEncoder::Sums total;
  for (const std::size_t tensor : {4, 0, 2, 3, 1}) {
    const auto sums = builder.Add(std::vector{Change(tensor)});
    ASSERT_TRUE(sums.ok());
    total.before += sums->before;
    total.after += sums->after;
  }
  EXPECT_EQ(total.before, encoded.report.base_digest);
  EXPECT_EQ(total.after, encoded.report.target_digest);
  const StagedDelta staged = builder.Take().value();
  EXPECT_TRUE(std::ranges::equal(staged.rows(), expected.rows()));
  EXPECT_EQ(staged.staged_bytes(), expected.staged_bytes());
  const ByteVector payload = Payload(staged, 2);
  EXPECT_EQ(payload, Payload(staged, 1));
  test::Model live = base_;
  ASSERT_TRUE(test::PreflightAndApply(plan_, test::Stage(plan_, payload), live).ok());
  EXPECT_TRUE(live == target_);
}

// What is kept in memory applies as it is: nothing is written and read again for it.
TEST_P(DeltaBuilderTest, AppliesFromMemory) {
  DeltaBuilder builder(plan_, GetParam(), 2);
  std::vector<TensorChange> changes;
  for (std::size_t tensor = 0; tensor < plan_.tensors().size(); ++tensor) {
    changes.push_back(Change(tensor));
  }
  ASSERT_TRUE(builder.Add(changes).ok());
  const StagedDelta staged = builder.Take().value();
  test::Model live = base_;
  ASSERT_TRUE(test::PreflightAndApply(plan_, staged, live).ok());
  EXPECT_TRUE(live == target_);
  EXPECT_TRUE(builder.Take()->rows().empty());
}

INSTANTIATE_TEST_SUITE_P(Profiles, DeltaBuilderTest, testing::ValuesIn(kProfiles));

TEST(DeltaBuilderSmallTest, NothingChanged) {
  const Plan plan = test::OneTensorPlan(Dtype::kU8, 10'000, 4096);
  test::Model model(plan, 3);
  DeltaBuilder builder(plan, Profile::kSparseZstd, 1);
  ASSERT_TRUE(builder.Add(std::vector{TensorChange{0, model.Tensor(0), model.Tensor(0)}}).ok());
  const StagedDelta staged = builder.Take().value();
  EXPECT_TRUE(staged.rows().empty());
  ByteVector payload;
  ASSERT_TRUE(WriteStagedDelta(plan, staged, 1, [&](ByteSpan bytes) {
                AppendBytes(payload, bytes);
                return Status();
              }).ok());
  EXPECT_TRUE(test::Stage(plan, payload).rows().empty());
}

}  // namespace
}  // namespace segue
