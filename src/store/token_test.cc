// SPDX-License-Identifier: Apache-2.0
//
// Tokens: what cannot be sent is refused, and a variable that is set is never taken for none.
#include "segue/token.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

namespace segue {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr const char* kVariable = "SEGUE_TEST_TOKEN";

TEST(TokenTest, WhatCannotBeSentIsRefused) {
  for (const std::string& token : {std::string("a b"), std::string("a\r\nX: y"), std::string(),
                                   std::string(1025, 'a'), std::string("\xc3\xa9")}) {
    EXPECT_EQ(CheckToken(token).code(), StatusCode::kInvalidArgument) << token;
  }
  EXPECT_TRUE(CheckToken("a-token").ok());
}

TEST(TokenTest, AVariableThatIsSetIsMeant) {
  ASSERT_EQ(::unsetenv(kVariable), 0);
  EXPECT_EQ(TokenFromEnvironment(kVariable).value(), "");
  ASSERT_EQ(::setenv(kVariable, "a-token", 1), 0);
  EXPECT_EQ(TokenFromEnvironment(kVariable).value(), "a-token");
  for (const char* const value : {"", " ", "\t", "secret \n"}) {
    ASSERT_EQ(::setenv(kVariable, value, 1), 0);
    const Status status = TokenFromEnvironment(kVariable).status();
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << '"' << value << '"';
    EXPECT_THAT(status.message(), AllOf(HasSubstr(kVariable), Not(HasSubstr("secret"))));
  }
  ASSERT_EQ(::unsetenv(kVariable), 0);
}

}  // namespace
}  // namespace segue
