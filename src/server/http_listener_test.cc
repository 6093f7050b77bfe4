// SPDX-License-Identifier: Apache-2.0
//
// Addresses and tokens, as all our servers read them.
#include "server/http_listener.h"

#include <gtest/gtest.h>

namespace segue {
namespace {

TEST(ListenAddressTest, WhoCanReachIt) {
  for (const char* const text : {"127.0.0.1:0", "127.9.9.9:1", "localhost:80", "::1:80",
                                 "[::1]:17001", "[0:0:0:0:0:0:0:1]:1"}) {
    EXPECT_TRUE(ListenAddress::Parse(text).value().IsLoopback()) << text;
  }
  for (const char* const text : {"0.0.0.0:0", "10.0.0.1:80", "::80", "example.org:65535", "[::]:80",
                                 "[fe80::1]:80", "127.evil.example:80", "::2:80"}) {
    EXPECT_FALSE(ListenAddress::Parse(text).value().IsLoopback()) << text;
  }
  for (const char* const text :
       {"", "80", ":80", "h:", "h:x", "h:65536", "h:-1", "h:80 ", "[]:80", "[::1:80", "::1]:80"}) {
    EXPECT_EQ(ListenAddress::Parse(text).status().code(), StatusCode::kInvalidArgument) << text;
  }
}

TEST(HttpListenerTest, OnePortHasOneServer) {
  const ConnectionLimits limits{.connections = 1};
  HttpListener first;
  first.SetLimits(limits);
  ASSERT_TRUE(first.Start(ListenAddress::Parse("127.0.0.1:0").value()).ok());
  HttpListener second;
  second.SetLimits(limits);
  const Status status = second.Start(ListenAddress::Parse(first.url().substr(7)).value());
  EXPECT_EQ(status.code(), StatusCode::kUnavailable);
  EXPECT_NE(status.message().find("cannot listen on"), std::string::npos) << status.message();
  // Once it is free, at once.
  const std::string address = first.url().substr(7);
  first.Stop();
  HttpListener third;
  third.SetLimits(limits);
  EXPECT_TRUE(third.Start(ListenAddress::Parse(address).value()).ok());
}

TEST(HttpListenerTest, AddressesOfSixInUrls) {
  HttpListener listener;
  listener.SetLimits({.connections = 1});
  const Status status = listener.Start(ListenAddress::Parse("[::1]:0").value());
  if (!status.ok()) GTEST_SKIP() << "no IPv6 here: " << status.message();
  EXPECT_TRUE(listener.url().starts_with("http://[::1]:")) << listener.url();
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
