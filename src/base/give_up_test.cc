// SPDX-License-Identifier: Apache-2.0
//
// Give-up scope: of its thread alone, one within another, and in any order of ends.
#include "segue/give_up.h"

#include <gtest/gtest.h>

#include <memory>
#include <thread>

namespace segue {
namespace {

TEST(GiveUp, NobodySaysIt) { EXPECT_FALSE(GiveUpScope::IsGivenUp()); }

TEST(GiveUp, AnyOfThemIsEnough) {
  bool outer = false;
  bool inner = false;
  const GiveUpScope first([&] { return outer; });
  {
    const GiveUpScope second([&] { return inner; });
    EXPECT_FALSE(GiveUpScope::IsGivenUp());
    outer = true;
    EXPECT_TRUE(GiveUpScope::IsGivenUp());
    outer = false;
    inner = true;
    EXPECT_TRUE(GiveUpScope::IsGivenUp());
  }
  EXPECT_FALSE(GiveUpScope::IsGivenUp());
}

TEST(GiveUp, IsOfItsThreadAlone) {
  const GiveUpScope scope([] { return true; });
  bool elsewhere = true;
  std::jthread([&] { elsewhere = GiveUpScope::IsGivenUp(); }).join();
  EXPECT_FALSE(elsewhere);
  EXPECT_TRUE(GiveUpScope::IsGivenUp());
}

TEST(GiveUp, EndsInAnyOrder) {
  const auto scope = [](bool given_up) {
    return std::make_unique<GiveUpScope>([given_up] { return given_up; });
  };
  auto first = scope(false);
  auto second = scope(true);
  auto third = scope(false);
  second.reset();
  EXPECT_FALSE(GiveUpScope::IsGivenUp());
  first.reset();
  auto fourth = scope(true);
  third.reset();
  EXPECT_TRUE(GiveUpScope::IsGivenUp());
  fourth.reset();
  EXPECT_FALSE(GiveUpScope::IsGivenUp());
}

}  // namespace
}  // namespace segue
