// SPDX-License-Identifier: Apache-2.0
//
// The publisher's baseline: a copy of what is owned, moved by deltas, its digests kept in step.
#include "sync/baseline.h"

#include <gtest/gtest.h>

#include <cstring>

#include "delta/delta_builder.h"
#include "delta/testing.h"

namespace segue {
namespace {

class BaselineTest : public testing::Test {
 protected:
  BaselineTest() {
    test::Mutate(plan_, target_, 0.01, 5);
    owned_.Add(0);
    owned_.Add(2);
  }
  StagedDelta Difference() {
    DeltaBuilder builder(plan_, Profile::kSparseZstd, 2);
    std::vector<TensorChange> changes;
    for (const std::size_t tensor : {0, 2}) {
      changes.push_back({tensor, base_.Tensor(tensor), target_.Tensor(tensor)});
    }
    EXPECT_TRUE(builder.Add(changes).ok());
    return builder.Take().value();
  }
  bool Holds(const Baseline& baseline, test::Model& model) {
    for (const std::size_t tensor : {0, 2}) {
      if (std::memcmp(baseline.Tensor(tensor), model.Tensor(tensor),
                      plan_.tensors()[tensor].size) != 0) {
        return false;
      }
    }
    return true;
  }

  Plan plan_ =
      Plan::Make({test::SpecOfSize("a", Dtype::kBF16, 100'002),
                  test::SpecOfSize("b", Dtype::kU8, 50'000), test::SpecOfSize("c", Dtype::kF32, 8)},
                 4096)
          .value();
  test::Model base_{plan_, 1};
  test::Model target_ = base_;
  TensorSet owned_{3};
};

TEST_F(BaselineTest, IsReadTensorByTensor) {
  std::vector<std::size_t> order;
  const auto read = [&](std::size_t tensor, std::byte* to) {
    order.push_back(tensor);
    std::memcpy(to, base_.Tensor(tensor), plan_.tensors()[tensor].size);
    return Status();
  };
  const auto baseline = Baseline::Read(plan_, owned_, read, 2).value();
  EXPECT_EQ(order, (std::vector<std::size_t>{0, 2}));
  EXPECT_TRUE(Holds(*baseline, base_));
  const auto copy = Baseline::Copy(plan_, owned_, base_.view(), 2).value();
  EXPECT_EQ(baseline->digest(), copy->digest());
  ASSERT_TRUE(baseline->Advance(Difference()).ok());
  EXPECT_TRUE(Holds(*baseline, target_));
  const auto failed = Baseline::Read(
      plan_, owned_, [](std::size_t, std::byte*) { return Unavailable("no bytes today"); }, 2);
  EXPECT_EQ(failed.status().message(), "no bytes today");
}

TEST_F(BaselineTest, MovesWithADelta) {
  const auto baseline = Baseline::Copy(plan_, owned_, base_.view(), 2).value();
  EXPECT_TRUE(Holds(*baseline, base_));
  EXPECT_GE(baseline->size(), 100'010u);
  EXPECT_LT(baseline->size(), 100'300u);  // Without what another owner has.
  ASSERT_TRUE(baseline->Advance(Difference()).ok());
  EXPECT_TRUE(Holds(*baseline, target_));
  const auto fresh = Baseline::Copy(plan_, owned_, target_.view(), 1).value();
  EXPECT_EQ(baseline->digest(), fresh->digest());
  EXPECT_EQ(baseline->TensorDigest(0), fresh->TensorDigest(0));
}

// A bit of the copy itself: what is made of it from then on is right for nobody.
TEST_F(BaselineTest, ABaselineThatFailedIsNamedRatherThanWhoWrote) {
  const auto baseline = Baseline::Copy(plan_, owned_, base_.view(), 2).value();
  const Digest after = baseline->digest() + Difference().difference();
  EXPECT_TRUE(baseline->Prove(Difference(), after).ok());
  // The delta at fault, the baseline right.
  EXPECT_EQ(baseline->Prove(Difference(), after + after).code(), StatusCode::kCorruption);
  std::size_t changed = 0;
  while (base_.Tensor(0)[changed] == target_.Tensor(0)[changed]) ++changed;
  for (const bool before_it_was_compared : {true, false}) {
    const auto flip = [&] {
      const_cast<std::byte*>(baseline->Tensor(0))[changed] ^= std::byte{4};
      if (before_it_was_compared) base_.Tensor(0)[changed] ^= std::byte{4};
    };
    flip();
    const Status failed = baseline->Prove(Difference(), after);
    EXPECT_EQ(failed.code(), StatusCode::kTainted) << failed.ToString();
    EXPECT_NE(failed.message().find("tensor 'a'"), std::string::npos) << failed.message();
    EXPECT_NE(failed.message().find("open the publisher anew"), std::string::npos);
    flip();
  }
  EXPECT_TRUE(baseline->Prove(Difference(), after).ok());
}

TEST_F(BaselineTest, ADeltaOfOtherBytesIsSeen) {
  test::Model other(plan_, 9);
  const auto baseline = Baseline::Copy(plan_, owned_, other.view(), 2).value();
  EXPECT_EQ(baseline->Advance(Difference()).code(), StatusCode::kTainted);
}

}  // namespace
}  // namespace segue
