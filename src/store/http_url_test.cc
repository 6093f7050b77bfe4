// SPDX-License-Identifier: Apache-2.0
//
// URLs of stores on a network. What must hold: no secret in a URL gets into a message.
#include "store/http_url.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace segue {
namespace {

TEST(HttpUrlTest, Parts) {
  const HttpUrl url = ParseHttpUrl("https://store.example:8443/run7/a/").value();
  EXPECT_EQ(url.scheme, "https");
  EXPECT_EQ(url.authority, "store.example:8443");
  EXPECT_EQ(url.path, "/run7/a");
  EXPECT_EQ(url.Text(), "https://store.example:8443/run7/a");
  EXPECT_EQ(ParseHttpUrl("http://h").value().path, "");
  EXPECT_EQ(ParseHttpUrl("http://h//").value().path, "");
  EXPECT_EQ(ParseHttpUrl("http://[::1]:80/x").value().authority, "[::1]:80");
}

TEST(HttpUrlTest, WhatIsNone) {
  for (const char* const url :
       {"", "http:", "http://", "http:///x", "ftp://h/x", "http://h:0", "http://h:65536",
        "http://h:x", "http://h:/", "http://a b/", "http://h/..", "http://h/a//b", "http://h/%41",
        "http://h\n/x", "http://[::1", "http://h/x\r\nHost: y", "HTTP://h"}) {
    EXPECT_EQ(ParseHttpUrl(url).status().code(), StatusCode::kInvalidArgument) << url;
  }
}

TEST(HttpUrlTest, SecretsAreNotRepeated) {
  for (const char* const url :
       {"https://user:hunter2@h/x", "https://h/x?token=hunter2", "https://h/x#hunter2"}) {
    const Status status = ParseHttpUrl(url).status();
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    EXPECT_THAT(status.message(), ::testing::Not(::testing::HasSubstr("hunter2")));
  }
}

}  // namespace
}  // namespace segue
