// SPDX-License-Identifier: Apache-2.0
//
// Reading through servers that drop, ignore, mistake and change (case G4). What must hold: whatever
// the server does, the bytes are the object's or there is an error.
#include "store/http_read.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <charconv>

#include "store/http_client.h"
#include "store/testing.h"

namespace segue {
namespace {

using ::testing::HasSubstr;

constexpr std::size_t kSize = 10'000;

std::string Object() { return std::string(AsText(Pattern(11, kSize))); }

bool Has(const std::string& request, std::string_view field) {
  return request.find(field) != std::string::npos;
}

// The first offset that a request asks for.
std::size_t FirstOf(const std::string& request) {
  const std::string label = "Range: bytes=";
  const std::size_t at = request.find(label);
  std::size_t first = 0;
  if (at == std::string::npos) return first;
  const char* const begin = request.data() + at + label.size();
  (void)std::from_chars(begin, request.data() + request.size(), first);
  return first;
}

// 206 for the bytes [first, end) of the object.
std::string Part(std::size_t first, std::size_t end, const std::string& fields) {
  return ScriptedServer::Whole("206 Partial Content", Object().substr(first, end - first),
                               "Content-Range: bytes " + std::to_string(first) + "-" +
                                   std::to_string(end - 1) + "/" + std::to_string(kSize) + "\r\n" +
                                   fields);
}

// The answer without its last `size` bytes: the connection is dropped there.
std::string Cut(const std::string& answer, std::size_t size) {
  return answer.substr(0, answer.size() - size);
}

const std::string kTag = "ETag: \"one\"\r\n";
const std::string kDropped = Cut(ScriptedServer::Whole("200 OK", Object(), kTag), kSize / 2);

class HttpReadTest : public ::testing::Test {
 protected:
  // `answers` in order, the last one for good.
  void Serve(std::vector<std::string> answers) {
    Serve([answers = std::move(answers), next = std::size_t{0}](const std::string&) mutable {
      const std::size_t index = std::min(next++, answers.size() - 1);
      return answers[index];
    });
  }
  void Serve(ScriptedServer::Answer answer) {
    server_ = std::make_unique<ScriptedServer>(std::move(answer));
  }

  HttpObject Target() {
    return {client_,
            [this](const std::vector<std::string>& fields) {
              HttpRequest request;
              request.url = server_->url() + "/x";
              request.fields = fields;
              return request;
            },
            "object 'x'"};
  }
  Result<ByteVector> Get(std::uint64_t size_max = kSize) {
    return ReadHttpObject(Target(), size_max);
  }
  Result<ByteVector> GetRange(std::uint64_t offset, std::uint64_t size) {
    return ReadHttpRange(Target(), offset, size);
  }
  void ExpectWhole() {
    const auto got = Get();
    ASSERT_TRUE(got.ok()) << got.status().ToString();
    EXPECT_EQ(AsText(got.value()), Object());
  }
  std::vector<std::string> requests() const { return server_->requests(); }

  std::unique_ptr<ScriptedServer> server_;
  HttpClient client_{HttpClient::Options{.connect_seconds = 5,
                                         .stall_seconds = 2,
                                         .request_seconds = 20,
                                         .retry_wait = std::chrono::milliseconds(1)}};
};

TEST_F(HttpReadTest, AsksForWhatItIs) {
  Serve({ScriptedServer::Whole("200 OK", Object())});
  ExpectWhole();
  EXPECT_TRUE(Has(requests().front(), "Accept-Encoding: identity\r\n"));
  EXPECT_FALSE(Has(requests().front(), "Range:"));
}

// case G4: dropped after 50 %, then the rest on request.
TEST_F(HttpReadTest, CaseG4ResumesWhereItWasDropped) {
  Serve({kDropped, Part(kSize / 2, kSize, kTag)});
  ExpectWhole();
  ASSERT_EQ(requests().size(), 2u);
  EXPECT_TRUE(Has(requests()[1], "Range: bytes=5000-\r\n"));
  EXPECT_TRUE(Has(requests()[1], "If-Range: \"one\"\r\n"));
  EXPECT_TRUE(Has(requests()[1], "Accept-Encoding: identity\r\n"));
}

TEST_F(HttpReadTest, CaseG4ResumesAgainAndAgain) {
  Serve([](const std::string& request) {
    const std::size_t first = FirstOf(request);
    if (first == 0) return Cut(ScriptedServer::Whole("200 OK", Object(), kTag), kSize - 700);
    const std::size_t left = kSize - first;
    return Cut(Part(first, kSize, kTag), left - std::min<std::size_t>(left, 700));
  });
  ExpectWhole();
  EXPECT_EQ(requests().size(), DivideUp(kSize, 700));
}

// case G4: dropped after 50 %, then 200 with all of it: begun again, never appended.
TEST_F(HttpReadTest, CaseG4WholeAnswerToARange) {
  Serve({kDropped, ScriptedServer::Whole("200 OK", Object(), kTag)});
  ExpectWhole();
}

TEST_F(HttpReadTest, CaseG4WholeAnswerIsCutToTheRange) {
  Serve({ScriptedServer::Whole("200 OK", Object(), kTag)});
  const auto got = GetRange(3000, 500);
  ASSERT_TRUE(got.ok()) << got.status().ToString();
  EXPECT_EQ(AsText(got.value()), Object().substr(3000, 500));
  EXPECT_EQ(requests().size(), 1u);
}

// case G4: a 206 with another range than the one that was asked for.
TEST_F(HttpReadTest, CaseG4AnotherRange) {
  for (const std::string& wrong :
       {Part(0, kSize, kTag), Part(4999, kSize, kTag), Part(5001, kSize, kTag),
        ScriptedServer::Whole("206 Partial Content", Object().substr(5000), kTag),
        ScriptedServer::Whole("206 Partial Content", Object().substr(5000),
                              kTag + "Content-Range: bytes 5000-9999/*\r\n"),
        ScriptedServer::Whole("206 Partial Content", Object().substr(5000),
                              kTag + "Content-Range: bytes 5000-9998/10000\r\n")}) {
    Serve({kDropped, wrong});
    const auto got = Get();
    EXPECT_EQ(got.status().code(), StatusCode::kCorruption) << wrong.substr(0, 150);
  }
  Serve({Part(0, 500, kTag)});
  EXPECT_EQ(GetRange(100, 500).status().code(), StatusCode::kCorruption);
  Serve({Part(100, 700, kTag)});
  EXPECT_EQ(GetRange(100, 500).status().code(), StatusCode::kCorruption);
  // Nobody asked for a part.
  Serve({Part(0, kSize, kTag)});
  EXPECT_EQ(Get().status().code(), StatusCode::kCorruption);
}

TEST_F(HttpReadTest, CaseG4AnotherRangeOnce) {
  Serve({kDropped, Part(0, kSize, kTag), Part(5000, kSize, kTag)});
  ExpectWhole();
}

// A server may send less of a range than was asked for.
TEST_F(HttpReadTest, AShorterRangeIsGoneOnFrom) {
  Serve([](const std::string& request) {
    const std::size_t first = FirstOf(request);
    return Part(first, std::min<std::size_t>(first + 200, 2000), kTag);
  });
  const auto got = GetRange(1000, 1000);
  ASSERT_TRUE(got.ok()) << got.status().ToString();
  EXPECT_EQ(AsText(got.value()), Object().substr(1000, 1000));
}

// case G4: 416 when going on.
TEST_F(HttpReadTest, CaseG4RangeNotSatisfiable) {
  const std::string beyond =
      ScriptedServer::Whole("416 Range Not Satisfiable", "", "Content-Range: bytes */10000\r\n");
  Serve({kDropped, beyond});
  EXPECT_EQ(Get().status().code(), StatusCode::kCorruption);
  Serve({kDropped, beyond, ScriptedServer::Whole("200 OK", Object(), kTag)});
  ExpectWhole();
  Serve({beyond});
  const auto got = GetRange(20'000, 5);
  EXPECT_EQ(got.status().code(), StatusCode::kCorruption);
  EXPECT_THAT(got.status().message(), HasSubstr("bytes */10000"));
  EXPECT_EQ(requests().size(), 1u);
}

// case G4: compressed although identity was asked for.
TEST_F(HttpReadTest, CaseG4GzipEncoding) {
  Serve({ScriptedServer::Whole("200 OK", "not what it was", "Content-Encoding: gzip\r\n")});
  const auto got = Get();
  EXPECT_EQ(got.status().code(), StatusCode::kUnsupported);
  EXPECT_THAT(got.status().message(), HasSubstr("'gzip'"));
  Serve({kDropped, Part(5000, kSize, kTag + "Content-Encoding: br\r\n")});
  EXPECT_EQ(Get().status().code(), StatusCode::kUnsupported);
  Serve({ScriptedServer::Whole("200 OK", Object(), "Content-Encoding: identity\r\n")});
  ExpectWhole();
}

// case G4: another object when going on.
TEST_F(HttpReadTest, CaseG4AnotherTagBetweenTries) {
  const std::string other(kSize, 'o');
  const std::string other_tag = "ETag: \"two\"\r\n";
  // The server that looks at If-Range.
  Serve({kDropped, ScriptedServer::Whole("200 OK", other, other_tag)});
  EXPECT_EQ(AsText(Get().value()), other);
  // The one that does not, or gives no tag: the halves are never joined.
  for (const std::string& tag : {other_tag, std::string(), std::string("ETag: W/\"one\"\r\n")}) {
    Serve({kDropped, Part(5000, kSize, tag), ScriptedServer::Whole("200 OK", other, other_tag)});
    EXPECT_EQ(AsText(Get().value()), other);
    EXPECT_FALSE(Has(requests()[2], "Range:"));
  }
}

TEST_F(HttpReadTest, CaseG4WithoutAStrongTagItBeginsAgain) {
  for (const std::string& tag : {std::string(), std::string("ETag: W/\"one\"\r\n")}) {
    Serve({Cut(ScriptedServer::Whole("200 OK", Object(), tag), 100),
           ScriptedServer::Whole("200 OK", Object(), tag)});
    ExpectWhole();
    EXPECT_FALSE(Has(requests()[1], "Range:"));
  }
}

TEST_F(HttpReadTest, GivesUpOnAServerThatAlwaysDrops) {
  Serve({Cut(ScriptedServer::Whole("200 OK", Object()), 1)});
  const auto got = Get();
  EXPECT_EQ(got.status().code(), StatusCode::kUnavailable);
  EXPECT_THAT(got.status().message(), HasSubstr("tries"));
  // It brings bytes each time, yet never a further one.
  EXPECT_LE(requests().size(), static_cast<std::size_t>(limits::kStoreResumeCountMax));
}

TEST_F(HttpReadTest, LargerThanTheLimitIsRefusedAtOnce) {
  Serve({"HTTP/1.1 200 OK\r\nContent-Length: 1000000000000\r\n\r\nabc"});
  EXPECT_EQ(Get(100).status().code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(requests().size(), 1u);
  Serve({"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n6\r\nabcdef\r\n0\r\n\r\n"});
  EXPECT_EQ(Get(5).status().code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(AsText(Get(6).value()), "abcdef");
}

TEST_F(HttpReadTest, AnEndThatNobodyStatesIsNoEnd) {
  Serve({"HTTP/1.1 200 OK\r\n\r\nabc"});
  EXPECT_EQ(Get().status().code(), StatusCode::kCorruption);
  Serve({"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n6\r\nabcdef\r\n"});
  EXPECT_EQ(Get().status().code(), StatusCode::kUnavailable);
}

TEST_F(HttpReadTest, ShorterThanTheRange) {
  Serve({ScriptedServer::Whole("200 OK", Object(), kTag)});
  EXPECT_EQ(GetRange(9'000, 1'001).status().code(), StatusCode::kCorruption);
  Serve({Part(9'000, kSize, kTag)});
  EXPECT_EQ(GetRange(9'000, 1'001).status().code(), StatusCode::kCorruption);
  EXPECT_EQ(requests().size(), 1u);
}

TEST_F(HttpReadTest, TooFarIntoAServerWithoutRanges) {
  Serve({"HTTP/1.1 200 OK\r\nContent-Length: 1000000000000\r\n\r\nabc"});
  EXPECT_EQ(GetRange(limits::kStoreSkipSizeMax + 1, 10).status().code(), StatusCode::kUnsupported);
}

TEST_F(HttpReadTest, RetriesWhatMayPass) {
  Serve({ScriptedServer::Whole("503 Busy", "soon"), "", ScriptedServer::Whole("429 Slow", ""),
         ScriptedServer::Whole("200 OK", Object())});
  ExpectWhole();
  EXPECT_EQ(requests().size(), 4u);
  Serve({ScriptedServer::Whole("500 Oops", "the disk is on fire\n\x1b[2J")});
  const auto got = Get();
  EXPECT_EQ(got.status().code(), StatusCode::kUnavailable);
  EXPECT_THAT(got.status().message(), HasSubstr("500 (the disk is on fire  [2J)"));
  EXPECT_EQ(requests().size(), static_cast<std::size_t>(limits::kStoreTryCountMax));
}

TEST_F(HttpReadTest, WhatIsRefusedIsNotRetried) {
  const std::vector<std::pair<std::string, StatusCode>> codes = {
      {"400 x", StatusCode::kInvalidArgument}, {"401 x", StatusCode::kInvalidArgument},
      {"403 x", StatusCode::kInvalidArgument}, {"404 x", StatusCode::kNotFound},
      {"410 x", StatusCode::kNotFound},        {"413 x", StatusCode::kResourceExhausted},
      {"501 x", StatusCode::kUnsupported},     {"302 x", StatusCode::kUnsupported}};
  for (const auto& [code, expected] : codes) {
    Serve({ScriptedServer::Whole(code, "", "Location: http://elsewhere/\r\n")});
    EXPECT_EQ(Get().status().code(), expected) << code;
    EXPECT_EQ(requests().size(), 1u) << code;
  }
}

TEST_F(HttpReadTest, ASilentServerIsNotWaitedForForEver) {
  // A head and a little of the body, then nothing, with the connection open.
  std::atomic<int> count{0};
  Serve([&](const std::string&) {
    ++count;
    std::this_thread::sleep_for(std::chrono::milliseconds(3500));
    return std::string();
  });
  const auto begin = std::chrono::steady_clock::now();
  HttpClient impatient({.connect_seconds = 1,
                        .stall_seconds = 1,
                        .request_seconds = 1,
                        .retry_wait = std::chrono::milliseconds(1)});
  HttpRequest request;
  request.url = server_->url() + "/x";
  EXPECT_EQ(impatient.Perform(request).transport.code(), StatusCode::kUnavailable);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(3));
}

TEST_F(HttpReadTest, EndlessHeadsAndRefusalsAreCut) {
  Serve({"HTTP/1.1 200 OK\r\nX: " + std::string(90'000, 'x') + "\r\n\r\n"});
  EXPECT_FALSE(Get().ok());
  Serve({ScriptedServer::Whole("404 None", std::string(1'000'000, 'x'))});
  const auto got = Get();
  EXPECT_EQ(got.status().code(), StatusCode::kNotFound);
  EXPECT_LT(got.status().message().size(), 500u);
}

TEST_F(HttpReadTest, NobodyListens) {
  Serve({""});
  const HttpObject object = Target();
  server_.reset();
  HttpClient client({.connect_seconds = 1, .retry_wait = std::chrono::milliseconds(1)});
  HttpRequest request;
  request.url = "http://127.0.0.1:1/x";
  EXPECT_EQ(client.Perform(request).transport.code(), StatusCode::kUnavailable);
}

}  // namespace
}  // namespace segue
