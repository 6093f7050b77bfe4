// SPDX-License-Identifier: Apache-2.0
//
// Sets of tensors: their text, and what owners' sets are asked for.
#include "delta/tensor_set.h"

#include <gtest/gtest.h>

namespace segue {
namespace {

TEST(TensorSetTest, Text) {
  TensorSet set(6);
  EXPECT_EQ(set.ToHex(), "00");
  for (const std::size_t tensor : {0, 3, 5}) set.Add(tensor);
  EXPECT_EQ(set.ToHex(), "92");
  const auto again = TensorSet::FromHex("92", 6);
  ASSERT_TRUE(again);
  for (std::size_t tensor = 0; tensor < 6; ++tensor) {
    EXPECT_EQ(again->Contains(tensor), set.Contains(tensor)) << tensor;
  }
  EXPECT_EQ(TensorSet(0).ToHex(), "");
  EXPECT_TRUE(TensorSet::FromHex("", 0));
}

TEST(TensorSetTest, RefusesWhatIsNoSet) {
  for (const char* text : {"9", "920", "9A", "94", "9g", ""}) {
    EXPECT_FALSE(TensorSet::FromHex(text, 6)) << text;  // "94": a bit for tensor 6.
  }
}

TEST(TensorSetTest, MergesWhatIsDisjoint) {
  TensorSet set = *TensorSet::FromHex("3", 4);
  EXPECT_EQ(set.Merge(*TensorSet::FromHex("4", 4)), std::nullopt);
  EXPECT_EQ(set.ToHex(), "7");
  EXPECT_EQ(set.Merge(*TensorSet::FromHex("c", 4)), 2u);
}

// A tensor without bytes is nobody's.
TEST(TensorSetTest, FindsWhatIsMissing) {
  const Plan plan =
      Plan::Make({{"a", Dtype::kU8, {4}}, {"b", Dtype::kU8, {0}}, {"c", Dtype::kU8, {4}}}).value();
  TensorSet set(3);
  set.Add(0);
  EXPECT_EQ(set.FirstMissing(plan), 2u);
  set.Add(2);
  EXPECT_EQ(set.FirstMissing(plan), std::nullopt);
}

}  // namespace
}  // namespace segue
