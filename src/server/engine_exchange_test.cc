// SPDX-License-Identifier: Apache-2.0
//
// EngineExchange: what comes back of an answer, and that none is waited for beyond its time. Peers
// that flood are in engine_client_test.cc, those that drip in engine_http_test.cc too.
#include "server/engine_exchange.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <thread>

#include "store/testing.h"

namespace segue {
namespace {

using std::chrono::milliseconds;
using ::testing::AllOf;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::StartsWith;

EngineQuestion Question(const std::string& method, milliseconds time = milliseconds(5000)) {
  return {.method = method, .path = "/a?b=c", .body = R"({"d":1})", .time_max = time};
}

TEST(EngineExchangeTest, AsksAndAnswers) {
  const ScriptedServer engine(
      [](const std::string&) { return ScriptedServer::Whole("200 OK", "yes"); });
  EngineExchange exchange(engine.url(), "secret");
  for (const char* const method : {"GET", "POST"}) {
    const auto answer = exchange.Ask(Question(method));
    ASSERT_TRUE(answer.ok()) << answer.status().ToString();
    EXPECT_EQ(answer->status, 200);
    EXPECT_EQ(answer->body, "yes");
  }
  const auto requests = engine.requests();
  ASSERT_EQ(requests.size(), 2u);
  EXPECT_THAT(requests[0],
              AllOf(StartsWith("GET /a?b=c HTTP/1.1\r\n"),
                    HasSubstr("Authorization: Bearer secret\r\n"), EndsWith("\r\n\r\n")));
  EXPECT_THAT(
      requests[1],
      AllOf(StartsWith("POST /a?b=c HTTP/1.1\r\n"), HasSubstr("Content-Length: 7\r\n"),
            HasSubstr("Content-Type: application/json\r\n"), EndsWith("\r\n\r\n{\"d\":1}")));
}

TEST(EngineExchangeTest, ARefusalHasItsBody) {
  const ScriptedServer engine(
      [](const std::string&) { return ScriptedServer::Whole("503 Not Yet", R"({"ready":0})"); });
  const auto answer = EngineExchange(engine.url(), "").Ask(Question("GET"));
  ASSERT_TRUE(answer.ok()) << answer.status().ToString();
  EXPECT_EQ(answer->status, 503);
  EXPECT_EQ(answer->body, R"({"ready":0})");
}

TEST(EngineExchangeTest, NobodyListens) {
  EXPECT_EQ(EngineExchange("http://127.0.0.1:1", "").Ask(Question("GET")).status().code(),
            StatusCode::kNotFound);
  // One that hangs up is there.
  const ScriptedServer engine([](const std::string&) { return std::string(); });
  EXPECT_EQ(EngineExchange(engine.url(), "").Ask(Question("GET")).status().code(),
            StatusCode::kUnavailable);
}

TEST(EngineExchangeTest, TimeIsOver) {
  const EndlessServer engine("HTTP/1.1 200 OK\r\n", "A: b\r\n", milliseconds(20));
  EngineExchange exchange(engine.url(), "");
  const auto begin = std::chrono::steady_clock::now();
  const Status late = exchange.Ask(Question("GET", milliseconds(300))).status();
  EXPECT_EQ(late.code(), StatusCode::kUnavailable);
  std::atomic<bool> stopped{false};
  EngineQuestion question = Question("POST", milliseconds(60'000));
  question.stopped = [&] { return stopped.load(); };
  std::jthread stopper([&] {
    std::this_thread::sleep_for(milliseconds(200));
    stopped = true;
  });
  EXPECT_EQ(exchange.Ask(question).status().code(), StatusCode::kUnavailable);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, milliseconds(3000));
}

// The engine is asked itself: a proxy of the environment is for the world outside.
TEST(EngineExchangeTest, PastAnyProxy) {
  const ScriptedServer engine(
      [](const std::string&) { return ScriptedServer::Whole("200 OK", "yes"); });
  ASSERT_EQ(::setenv("http_proxy", "http://127.0.0.1:1", 1), 0);
  const auto answer = EngineExchange(engine.url(), "").Ask(Question("GET"));
  ASSERT_EQ(::unsetenv("http_proxy"), 0);
  ASSERT_TRUE(answer.ok()) << answer.status().ToString();
  EXPECT_EQ(answer->body, "yes");
}

}  // namespace
}  // namespace segue
