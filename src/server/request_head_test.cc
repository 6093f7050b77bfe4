// SPDX-License-Identifier: Apache-2.0
//
// RequestHead: what is let through can be read in one way alone.
#include "server/request_head.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace segue {
namespace {

std::optional<RequestHead> Of(const std::string& line, const std::string& fields = "") {
  return RequestHead::Parse(line + "\r\n" + fields + "\r\n");
}
std::optional<RequestHead> Post(const std::string& fields) {
  return Of("POST /a HTTP/1.1", fields);
}

TEST(RequestHeadTest, WhatClientsSend) {
  const std::string fields =
      "Host: x:1\r\nUser-Agent: curl/8 (x; y)\r\nAccept: */*\r\nEmpty:\r\n"
      "X-Latin: \xe9\r\nExpect: 100-continue\r\n";
  for (const char* const line :
       {"GET / HTTP/1.1", "GET /a/b.json?c=d%20e HTTP/1.0", "DELETE /a HTTP/1.1"}) {
    const auto head = Of(line, fields);
    ASSERT_TRUE(head) << line;
    EXPECT_EQ(head->text, std::string(line) + "\r\n" + fields + "\r\n");
    EXPECT_FALSE(head->is_last);
    EXPECT_EQ(head->range, "");
  }
  EXPECT_TRUE(Post("Content-Length: 0\r\n"));
  EXPECT_TRUE(Post("content-length:  5 \r\n"));
}

TEST(RequestHeadTest, RequestLines) {
  for (const char* const line : {"",
                                 "GET",
                                 "GET /",
                                 "GET / HTTP/1.1 ",
                                 " GET / HTTP/1.1",
                                 "GET  / HTTP/1.1",
                                 "GET /  HTTP/1.1",
                                 "GET /a b HTTP/1.1",
                                 "GET / HTTP/2.0",
                                 "GET / HTTP/1.11",
                                 "GET / http/1.1",
                                 "GET / HTTP/0.9",
                                 "GET http://h/a HTTP/1.1",
                                 "GET //h#a HTTP/1.1",
                                 "GET /a#b HTTP/1.1",
                                 "GET a HTTP/1.1",
                                 "OPTIONS * HTTP/1.1",
                                 "CONNECT h:1 HTTP/1.1",
                                 "G(T / HTTP/1.1",
                                 "GET\t/ HTTP/1.1",
                                 "GET /\x01 HTTP/1.1",
                                 "GET /\xe9 HTTP/1.1"}) {
    EXPECT_FALSE(Of(line)) << line;
  }
}

TEST(RequestHeadTest, Lines) {
  EXPECT_FALSE(RequestHead::Parse(""));
  EXPECT_FALSE(RequestHead::Parse("GET / HTTP/1.1\r\n"));
  EXPECT_FALSE(RequestHead::Parse("GET / HTTP/1.1\n\n"));
  EXPECT_FALSE(RequestHead::Parse("GET / HTTP/1.1\r\nHost: x\n\r\n"));
  EXPECT_FALSE(RequestHead::Parse("GET / HTTP/1.1\r\nHost: x\r\n\n"));
  EXPECT_FALSE(RequestHead::Parse("GET / HTTP/1.1\r\nHost: x\rY: z\r\n\r\n"));
  EXPECT_FALSE(RequestHead::Parse("\r\nGET / HTTP/1.1\r\n\r\n"));
  EXPECT_FALSE(RequestHead::Parse("GET / HTTP/1.1\r\n\r\nX: y\r\n\r\n"));
}

TEST(RequestHeadTest, Fields) {
  for (const std::string& field :
       {std::string("Host : x"), std::string(" Host: x"), std::string("Host"), std::string(": x"),
        std::string("Ho st: x"), std::string("A: b\r\n c"), std::string("A: b\r\n\tc"),
        std::string("A: b\x01"), std::string("A: b\0c", 6), std::string("A: b\x7f"),
        std::string("H\xc3\xb6st: x"), std::string("Host: a\r\nHost: b")}) {
    EXPECT_FALSE(Of("GET / HTTP/1.1", field + "\r\n")) << field;
  }
}

// Where the body ends is said once, in one way.
TEST(RequestHeadTest, Lengths) {
  for (const char* const value :
       {"+5", "-5", "0x5", "5a", "5 5", "5,5", "", "5;", "\"5\"", "5.0"}) {
    EXPECT_FALSE(Post("Content-Length: " + std::string(value) + "\r\n")) << value;
  }
  EXPECT_FALSE(Post("Content-Length: 5\r\nContent-Length: 5\r\n"));
  EXPECT_FALSE(Post("Content-Length: 5\r\nContent-Length: 6\r\n"));
  EXPECT_FALSE(Post("Content-Length: 5\r\nTransfer-Encoding: chunked\r\n"));
  EXPECT_FALSE(Post("Transfer-Encoding: chunked\r\nContent-Length: 0\r\n"));
  EXPECT_FALSE(Post("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n"));
  for (const char* const coding :
       {"gzip", "gzip, chunked", "chunked, identity", "xchunked", "", "chunked;q=1",
        "\x0b"
        "chunked"}) {
    EXPECT_FALSE(Post("Transfer-Encoding: " + std::string(coding) + "\r\n")) << coding;
  }
  EXPECT_FALSE(Of("POST / HTTP/1.0", "Transfer-Encoding: chunked\r\n"));
}

TEST(RequestHeadTest, AfterWhichTheConnectionEnds) {
  EXPECT_TRUE(Post("Transfer-Encoding: Chunked\r\n")->is_last);
  EXPECT_FALSE(Post("Content-Length: 5\r\n")->is_last);
  EXPECT_TRUE(Of("GET / HTTP/1.1", "Content-Length: 5\r\n")->is_last);
  EXPECT_FALSE(Of("GET / HTTP/1.1", "Content-Length: 0\r\n")->is_last);
  EXPECT_TRUE(Of("DELETE / HTTP/1.1", "Transfer-Encoding: chunked\r\n")->is_last);
}

TEST(RequestHeadTest, RangesAreSetAside) {
  const auto one = Of("GET / HTTP/1.1", "A: b\r\nRANGE:  bytes=0-1 \r\nC: d\r\n");
  EXPECT_EQ(one->range, "bytes=0-1");
  EXPECT_EQ(one->text, "GET / HTTP/1.1\r\nA: b\r\nC: d\r\n\r\n");
  EXPECT_EQ(Of("GET / HTTP/1.1", "Range: bytes=0-1\r\nRange: bytes=2-3\r\n")->range, "");
}

}  // namespace
}  // namespace segue
