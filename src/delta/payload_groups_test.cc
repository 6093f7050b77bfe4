// SPDX-License-Identifier: Apache-2.0
//
// Payload groups: a payload is the same bytes whether its groups are compressed early, whatever
// rows come when, and those that come in order are.
#include "delta/payload_groups.h"

#include <gtest/gtest.h>

#include "delta/delta_builder.h"
#include "delta/testing.h"

namespace segue {
namespace {

// Many tensors, dense and sparse ones: several groups.
class PayloadGroupsTest : public testing::Test {
 protected:
  static constexpr std::size_t kTensors = 40;
  PayloadGroupsTest() {
    std::vector<TensorSpec> specs;
    for (std::size_t i = 0; i < kTensors; ++i) {
      specs.push_back(test::SpecOfSize("t" + std::to_string(100 + i), Dtype::kBF16, 600'002));
    }
    plan_ = Plan::Make(std::move(specs), 65536).value();
    base_.emplace(plan_, 1);
    target_.emplace(*base_);
    test::Mutate(plan_, *target_, 0.01, 5);
    Random random(9);
    for (std::size_t tensor = 0; tensor < kTensors; tensor += 2) {
      for (std::uint64_t i = 0; i < plan_.tensors()[tensor].size; i += 3) {
        target_->Tensor(tensor)[i] = static_cast<std::byte>(random.Next() >> 56);
      }
    }
  }

  // Rows of these tensors, as they come.
  StagedDelta Rows(DeltaBuilder& builder, std::vector<std::size_t> tensors) {
    for (const std::size_t tensor : tensors) {
      const TensorChange change = {tensor, base_->Tensor(tensor), target_->Tensor(tensor)};
      EXPECT_TRUE(builder.Add({&change, 1}).ok());
    }
    return builder.Take().value();
  }
  ByteVector Payload(const StagedDelta& staged, EncodedGroups early) {
    ByteVector payload;
    const auto sink = [&](ByteSpan bytes) {
      AppendBytes(payload, bytes);
      return Status();
    };
    EXPECT_TRUE(WriteStagedDelta(plan_, staged, 2, sink, std::move(early)).ok());
    return payload;
  }
  StagedDelta All() {
    DeltaBuilder builder(plan_, Profile::kSparseZstd, 2);
    std::vector<std::size_t> all;
    for (std::size_t i = 0; i < kTensors; ++i) all.push_back(i);
    return Rows(builder, all);
  }
  // Gives the first `count` rows of `from`, which has them in order, to `to`.
  void Give(const StagedDelta& from, std::size_t begin, std::size_t end, StagedDelta& to) {
    for (std::size_t row = begin; row < end; ++row) {
      std::array<ByteVector, kStreamCount> streams;
      const auto parts = from.Parts(plan_, row);
      for (unsigned s = 0; s < kStreamCount; ++s) AppendBytes(streams[s], parts[s]);
      to.AddGroup(plan_, from.rows().subspan(row, 1), streams);
    }
  }

  Plan plan_;
  std::optional<test::Model> base_;
  std::optional<test::Model> target_;
};

TEST_F(PayloadGroupsTest, RowsInOrderAreCompressedEarlyToTheSameBytes) {
  const StagedDelta all = All();
  const ByteVector expected = Payload(all, {});
  for (const std::size_t step : {std::size_t{1}, std::size_t{7}, all.rows().size()}) {
    SCOPED_TRACE(step);
    EarlyGroups early(plan_, 2);
    StagedDelta staged;
    for (std::size_t row = 0; row < all.rows().size(); row += step) {
      Give(all, row, std::min(row + step, all.rows().size()), staged);
      ASSERT_TRUE(early.Add(staged, row).ok());
    }
    EncodedGroups groups = early.Take();
    // All but the last, which nothing says is complete.
    std::size_t rows = 0;
    for (const auto& [chunk, group] : groups) rows += group.rows.size();
    EXPECT_GE(groups.size(), 2u);
    EXPECT_LT(rows, all.rows().size());
    ASSERT_TRUE(staged.SortRows().ok());
    EXPECT_EQ(Payload(staged, std::move(groups)), expected);
    EXPECT_TRUE(early.Take().empty());
  }
}

// What is compressed early is used, and not made once more.
TEST_F(PayloadGroupsTest, TakesTheGroupsThatAreThere) {
  const StagedDelta all = All();
  EarlyGroups early(plan_, 2);
  ASSERT_TRUE(early.Add(all, 0).ok());
  EncodedGroups groups = early.Take();
  const ByteVector expected = Payload(all, groups);
  groups.begin()->second.bytes[0] ^= std::byte{1};
  const ByteVector found = Payload(all, std::move(groups));
  EXPECT_EQ(found.size(), expected.size());
  EXPECT_NE(found, expected);
}

TEST_F(PayloadGroupsTest, RowsOutOfOrderEndIt) {
  const StagedDelta all = All();
  const ByteVector expected = Payload(all, {});
  const std::size_t half = all.rows().size() / 2;
  EarlyGroups early(plan_, 2);
  StagedDelta staged;
  Give(all, half, all.rows().size(), staged);
  ASSERT_TRUE(early.Add(staged, 0).ok());
  Give(all, 0, half, staged);
  ASSERT_TRUE(early.Add(staged, all.rows().size() - half).ok());
  EXPECT_TRUE(early.Take().empty());
  ASSERT_TRUE(staged.SortRows().ok());
  EXPECT_EQ(Payload(staged, {}), expected);
}

// Rows that nobody told of lie between those of a group: it is made anew.
TEST_F(PayloadGroupsTest, GroupsThatAreNotThePayloadsAreNotUsed) {
  const StagedDelta all = All();
  const ByteVector expected = Payload(all, {});
  EarlyGroups early(plan_, 2);
  StagedDelta some;
  for (std::size_t row = 0; row < all.rows().size(); ++row) {
    if (row % 5 != 2) Give(all, row, row + 1, some);
  }
  ASSERT_TRUE(early.Add(some, 0).ok());
  EncodedGroups groups = early.Take();
  EXPECT_FALSE(groups.empty());
  EXPECT_EQ(Payload(all, std::move(groups)), expected);
}

}  // namespace
}  // namespace segue
