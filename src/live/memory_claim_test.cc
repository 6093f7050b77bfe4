// SPDX-License-Identifier: Apache-2.0
//
// Memory claims: who may bind what another receiver has, alone and through receivers and groups.
#include "live/memory_claim.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "live/testing.h"
#include "segue/receiver_group.h"
#include "segue/step_gate.h"

namespace segue {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// A plan of two matrices of 4 rows and 8 columns, U8.
class MemoryClaimTest : public ::testing::Test {
 protected:
  static Plan MakePlan() {
    return Plan::Make({{"a", Dtype::kU8, {4, 8}}, {"b", Dtype::kU8, {4, 8}}}).value();
  }
  // Only "a", whole, there.
  LiveMap At(std::size_t offset) {
    return LiveMap::Make(plan_, {{0, memory_.data() + offset, 32}}).value();
  }
  // Columns of "b" in a buffer of 4 x 16 at the start, from column `column` on.
  LiveMap Columns(std::int64_t column) {
    View view;
    view.source_offset = 0;
    view.target_offset = static_cast<std::uint64_t>(column);
    view.axes = {{4, 8, 16}, {8, 1, 1}};
    return LiveMap::Make(plan_, {{1, memory_.data(), 64, view}}).value();
  }
  Result<std::unique_ptr<MemoryClaim>> Take(const LiveMap& map, const std::string& lineage = "x",
                                            const std::string& device = "") {
    return MemoryClaim::Take(plan_, map, lineage, device);
  }

  const Plan plan_ = MakePlan();
  ByteVector memory_ = ByteVector(256);
};

TEST_F(MemoryClaimTest, AByteIsOneReceiversAlone) {
  const LiveMap here = At(0);
  const LiveMap last_byte = At(31);
  const LiveMap behind = At(32);
  auto claim = Take(here, "policy");
  ASSERT_TRUE(claim.ok());
  for (const LiveMap* map : {&here, &last_byte}) {
    const Status refused = Take(*map, "draft").status();
    EXPECT_EQ(refused.code(), StatusCode::kInvalidArgument);
    EXPECT_THAT(refused.message(), AllOf(HasSubstr("tensor 'a' of lineage 'draft'"),
                                         HasSubstr("tensor 'a' of lineage 'policy'")));
  }
  EXPECT_TRUE(Take(behind).ok());
  EXPECT_TRUE(Take(here, "x", "cuda:0").ok()) << "the same address of another memory";
  claim.value().reset();
  EXPECT_TRUE(Take(last_byte).ok());
}

TEST_F(MemoryClaimTest, PartsInOneAnothersGapsShareNothing) {
  const LiveMap left = Columns(0);
  const LiveMap right = Columns(8);
  const LiveMap middle = Columns(4);
  const LiveMap gap = At(64);
  const auto claim = Take(left);
  ASSERT_TRUE(claim.ok());
  EXPECT_TRUE(Take(right).ok());
  EXPECT_TRUE(Take(gap).ok());
  EXPECT_THAT(Take(middle).status().message(), HasSubstr("tensor 'b'"));
  EXPECT_THAT(Take(At(30)).status().message(), HasSubstr("tensor 'a'"));
}

TEST_F(MemoryClaimTest, AForkedChildsMemoryIsItsOwn) {
  const LiveMap here = At(0);
  const auto claim = Take(here);
  ASSERT_TRUE(claim.ok());
  test::Child child([&] { return Take(here).ok() ? 0 : 1; });
  EXPECT_EQ(child.Join(), 0);
}

class BoundTwiceTest : public test::BoundFixture {
 protected:
  BoundTwiceTest() { gate_.Guard(model_); }
  StepGate gate_;
};

TEST_F(BoundTwiceTest, TheSecondReceiverIsRefusedUntilTheFirstIsGone) {
  auto first = Receiver::Open(options_, model_);
  ASSERT_TRUE(first.ok()) << first.status().ToString();
  const auto second = Receiver::Open(options_, model_);
  EXPECT_EQ(second.status().code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(second.status().message(), HasSubstr("has bound already"));
  EXPECT_TRUE((*first)->status().ready);
  first->reset();
  EXPECT_TRUE(Receiver::Open(options_, model_).ok());
}

TEST_F(BoundTwiceTest, LineagesOfAGroupShareNoMemory) {
  GroupOptions options;
  options.lineages = {options_, options_};
  options.lineages[1].lineage = "draft";
  const auto group = ReceiverGroup::Open(options, {model_, model_});
  EXPECT_EQ(group.status().code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(group.status().message(),
              AllOf(HasSubstr("of lineage 'draft'"), HasSubstr("of lineage 'default'")));
  EXPECT_TRUE(Receiver::Open(options_, model_).ok()) << "nothing is left claimed";
}

}  // namespace
}  // namespace segue
