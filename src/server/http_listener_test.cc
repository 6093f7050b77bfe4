// SPDX-License-Identifier: Apache-2.0
//
// Addresses and tokens, as all our servers read them.
#include "server/http_listener.h"

#include <gtest/gtest.h>

namespace segue {
namespace {

TEST(ListenAddressTest, WhoCanReachIt) {
  for (const char* const text : {"127.0.0.1:0", "127.9.9.9:1", "localhost:80", "::1:80"}) {
    EXPECT_TRUE(ListenAddress::Parse(text).value().IsLoopback()) << text;
  }
  for (const char* const text : {"0.0.0.0:0", "10.0.0.1:80", "::80", "example.org:65535"}) {
    EXPECT_FALSE(ListenAddress::Parse(text).value().IsLoopback()) << text;
  }
  for (const char* const text : {"", "80", ":80", "h:", "h:x", "h:65536", "h:-1", "h:80 "}) {
    EXPECT_EQ(ListenAddress::Parse(text).status().code(), StatusCode::kInvalidArgument) << text;
  }
}

TEST(TokenTest, MatchesItselfAlone) {
  EXPECT_TRUE(TokenMatches("abc", "Bearer abc"));
  for (const char* const header :
       {"", "abc", "Bearer ", "Bearer ab", "Bearer abcd", "Bearer abC", "bearer abc"}) {
    EXPECT_FALSE(TokenMatches("abc", header)) << header;
  }
}

}  // namespace
}  // namespace segue
