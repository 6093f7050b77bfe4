// SPDX-License-Identifier: Apache-2.0
//
// Goal: whoever published tensors of another dtype or shape reads at once which, and how they
// differ.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "checkpoint/plan.h"

namespace segue {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

Status Compare(std::vector<TensorSpec> base, std::vector<TensorSpec> target) {
  return ComparePlans(Plan::Make(std::move(base)).value(), Plan::Make(std::move(target)).value(),
                      "version 1", "version 2");
}

std::string Refusal(std::vector<TensorSpec> base, std::vector<TensorSpec> target) {
  const Status status = Compare(std::move(base), std::move(target));
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  return status.message();
}

TEST(PlanCompareTest, SameTensors) {
  EXPECT_TRUE(Compare({}, {}).ok());
  EXPECT_TRUE(Compare({{"w", Dtype::kBF16, {4, 8}}}, {{"w", Dtype::kBF16, {4, 8}}}).ok());
}

TEST(PlanCompareTest, DtypeAndShape) {  // case C4
  EXPECT_EQ(Refusal({{"gate", Dtype::kBF16, {4, 8}}}, {{"gate", Dtype::kF32, {4, 8}}}),
            "version 1 and version 2 do not have the same tensors: tensor 'gate': BF16 [4, 8] in "
            "version 1, F32 [4, 8] in version 2");
  EXPECT_THAT(Refusal({{"w", Dtype::kF32, {4, 8}}}, {{"w", Dtype::kF32, {8, 4}}}),
              HasSubstr("F32 [4, 8] in version 1, F32 [8, 4] in version 2"));
  EXPECT_THAT(
      Refusal({{"embed", Dtype::kBF16, {151936, 64}}}, {{"embed", Dtype::kBF16, {152064, 64}}}),
      HasSubstr("BF16 [151936, 64] in version 1, BF16 [152064, 64] in version 2"));
  EXPECT_THAT(Refusal({{"s", Dtype::kF32, {}}}, {{"s", Dtype::kF32, {1}}}),
              HasSubstr("F32 [] in version 1, F32 [1] in version 2"));
  EXPECT_THAT(Refusal({{"w", Dtype::kF8E4M3, {8}}}, {{"w", Dtype::kBF16, {8}}}),
              HasSubstr("F8_E4M3 [8] in version 1, BF16 [8] in version 2"));
}

TEST(PlanCompareTest, MissingAndAdditional) {  // case C4
  const std::string message =
      Refusal({{"a", Dtype::kU8, {1}}, {"b", Dtype::kU8, {2}}, {"z", Dtype::kU8, {3}}},
              {{"b", Dtype::kU8, {2}}, {"c", Dtype::kU8, {4}}, {"zz", Dtype::kU8, {5}}});
  EXPECT_THAT(message, AllOf(HasSubstr("tensor 'a': U8 [1] in version 1, missing in version 2"),
                             HasSubstr("tensor 'c': not in version 1, U8 [4] in version 2"),
                             HasSubstr("tensor 'z': U8 [3] in version 1, missing in version 2"),
                             HasSubstr("tensor 'zz': not in version 1, U8 [5] in version 2"),
                             Not(HasSubstr("'b'")), Not(HasSubstr("more"))));
}

TEST(PlanCompareTest, ManyDifferencesAreCounted) {
  std::vector<TensorSpec> base;
  base.reserve(100);
  for (int i = 0; i < 100; ++i)
    base.push_back({std::string("t").append(std::to_string(1000 + i)), Dtype::kU8, {1}});
  const std::string message = Refusal(base, {});
  EXPECT_THAT(message, AllOf(HasSubstr("'t1000'"), HasSubstr("'t1007'"), Not(HasSubstr("'t1008'")),
                             HasSubstr("; and 92 more")));
}

}  // namespace
}  // namespace segue
