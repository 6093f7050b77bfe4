// SPDX-License-Identifier: Apache-2.0
//
// An engine that answers, and others that do everything wrong that a peer can: no view and no probe
// waits for them beyond the limits.
#include "server/engine_client.h"

#include <gmock/gmock.h>
#include <httplib.h>

#include <chrono>
#include <thread>

#include "base/limits.h"
#include "store/testing.h"

namespace segue {
namespace {

using testing::HasSubstr;

constexpr char kHead[] = "HTTP/1.1 200 OK\r\nContent-Length: 1000000000\r\n\r\n";

// A server of the test's own making.
class FakeEngine {
 public:
  FakeEngine() : port_(http_.bind_to_any_port("127.0.0.1")) {}
  ~FakeEngine() {
    http_.stop();
    thread_.join();
  }
  void Start() {
    thread_ = std::jthread([this] { http_.listen_after_bind(); });
    while (!http_.is_running()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  void Answer(const std::string& path, int status, const std::string& body) {
    const auto answer = [=](const httplib::Request&, httplib::Response& response) {
      response.status = status;
      response.set_content(body, "application/json");
    };
    http_.Get(path, answer);
    http_.Post(path, answer);
  }
  std::string url() const { return "http://127.0.0.1:" + std::to_string(port_); }
  httplib::Server& http() { return http_; }

 private:
  httplib::Server http_;
  int port_;
  std::jthread thread_;
};

constexpr char kHealthy[] =
    R"({"ready":true,"lineage":"run","version":7,"digest":"d7","message":""})";
constexpr char kReceipt[] =
    R"({"success":true,"participants":[{"engine_id":"e0","hostname":"h","state":"RESUMED",
        "stream_id":"run","target_version":8,"message":"",
        "scheduler_timing":{"blocked_s":0.25}}]})";

TEST(EngineClientTest, Answers) {
  FakeEngine engine;
  engine.Answer("/healthz", 200, kHealthy);
  engine.Answer("/get_gpu_delta_status", 200, kReceipt);
  engine.Start();
  const EngineView view = AskEngine(engine.url(), "");
  EXPECT_TRUE(view.reachable && view.ready) << view.message;
  EXPECT_EQ(view.engine_id, "e0");
  EXPECT_EQ(view.state, "RESUMED");
  ASSERT_EQ(view.lineages.size(), 1u);
  EXPECT_EQ(view.lineages[0].lineage, "run");
  EXPECT_EQ(view.lineages[0].version, 7u);
  EXPECT_EQ(view.lineages[0].digest, "d7");
  EXPECT_EQ(view.lineages[0].target_version, 8u);
  EXPECT_DOUBLE_EQ(view.lineages[0].pause_s, 0.25);
  const auto holds = HttpEngineProbe("")(engine.url());
  ASSERT_TRUE(holds.ok());
  EXPECT_TRUE(holds->ready);
  EXPECT_EQ(holds->lineages, (std::map<std::string, HeldVersion>{{"run", {7, "d7"}}}));
}

TEST(EngineClientTest, SeveralLineages) {
  FakeEngine engine;
  engine.Answer("/healthz", 200,
                R"({"ready":true,"lineage":"policy","version":8,"digest":"d8","lineages":[
                    {"lineage":"policy","version":8,"digest":"d8"},
                    {"lineage":"draft","version":3,"digest":"d3"}, 5]})");
  engine.Answer("/get_gpu_delta_status", 200,
                R"({"participants":[{"engine_id":"e0","stream_id":"policy","target_version":8},
                    {"engine_id":"e0","stream_id":"draft","target_version":4,
                     "scheduler_timing":{"blocked_s":0.5}}, {"stream_id":"else"}, 7]})");
  engine.Start();
  const auto holds = HttpEngineProbe("")(engine.url());
  ASSERT_TRUE(holds.ok());
  EXPECT_EQ(holds->lineages,
            (std::map<std::string, HeldVersion>{{"draft", {3, "d3"}}, {"policy", {8, "d8"}}}));
  const EngineView view = AskEngine(engine.url(), "");
  ASSERT_EQ(view.lineages.size(), 2u);
  EXPECT_EQ(view.lineages[0].lineage, "policy");
  EXPECT_EQ(view.lineages[0].target_version, 8u);
  EXPECT_EQ(view.lineages[1].lineage, "draft");
  EXPECT_EQ(view.lineages[1].version, 3u);
  EXPECT_EQ(view.lineages[1].target_version, 4u);
  EXPECT_DOUBLE_EQ(view.lineages[1].pause_s, 0.5);
}

TEST(EngineClientTest, NotReady) {
  FakeEngine engine;
  engine.Answer("/healthz", 503,
                R"({"ready":false,"lineage":"run","version":3,"message":"poisoned"})");
  engine.Answer("/get_gpu_delta_status", 503, R"({"success":false,"participants":[]})");
  engine.Start();
  const EngineView view = AskEngine(engine.url(), "");
  EXPECT_TRUE(view.reachable);
  EXPECT_FALSE(view.ready);
  EXPECT_EQ(view.message, "poisoned");
  EXPECT_EQ(view.state, "STARTING");
  EXPECT_FALSE(HttpEngineProbe("")(engine.url())->ready);
}

TEST(EngineClientTest, WrongTypesAreAsIfAbsent) {
  FakeEngine engine;
  engine.Answer("/healthz", 200, R"({"ready":"yes","lineage":5,"version":-3,"digest":null})");
  engine.Answer("/get_gpu_delta_status", 200, R"({"participants":[7]})");
  engine.Start();
  const EngineView view = AskEngine(engine.url(), "");
  EXPECT_TRUE(view.reachable);
  EXPECT_FALSE(view.ready);
  ASSERT_EQ(view.lineages.size(), 1u);
  EXPECT_EQ(view.lineages[0].version, 0u);
}

TEST(EngineClientTest, Token) {
  FakeEngine engine;
  engine.http().Get("/healthz", [](const httplib::Request& request, httplib::Response& response) {
    const bool right = request.get_header_value("Authorization") == "Bearer secret";
    response.status = right ? 200 : 401;
    response.set_content(right ? kHealthy : "{}", "application/json");
  });
  engine.Answer("/get_gpu_delta_status", 200, kReceipt);
  engine.Start();
  EXPECT_TRUE(AskEngine(engine.url(), "secret").reachable);
  const EngineView refused = AskEngine(engine.url(), "guess");
  EXPECT_FALSE(refused.reachable);
  EXPECT_THAT(refused.message, HasSubstr("token"));
}

TEST(EngineClientTest, NobodyThere) {
  const std::string url = "http://127.0.0.1:1";
  const EngineView view = AskEngine(url, "");
  EXPECT_FALSE(view.reachable);
  EXPECT_THAT(view.message, HasSubstr("no answer"));
  EXPECT_EQ(HttpEngineProbe("")(url).status().code(), StatusCode::kUnavailable);
}

TEST(EngineClientTest, NoEngineOfOurs) {
  const std::string deep(1 << 20, '[');
  const std::string nested = R"({"ready":true,"x":)" + deep + std::string(1 << 20, ']') + "}";
  for (const std::string& answer :
       {std::string("<html>"), deep, nested, std::string(R"({"ready":true,"ready":false})")}) {
    FakeEngine engine;
    engine.Answer("/healthz", 200, answer);
    engine.Answer("/get_gpu_delta_status", 200, kReceipt);
    engine.Start();
    EXPECT_THAT(AskEngine(engine.url(), "").message, HasSubstr("does not answer as an engine"))
        << answer.substr(0, 80);
  }
}

TEST(EngineClientTest, EndlessAnswer) {
  FakeEngine engine;
  engine.http().Get("/healthz", [](const httplib::Request&, httplib::Response& response) {
    response.set_chunked_content_provider("application/json",
                                          [](std::size_t, httplib::DataSink& sink) {
                                            const std::string piece(1 << 20, ' ');
                                            return sink.write(piece.data(), piece.size());
                                          });
  });
  engine.Start();
  EXPECT_FALSE(AskEngine(engine.url(), "").reachable);
}

// One byte now and then: each alone is in time, all together are not. In the head and in the body.
TEST(EngineClientTest, SlowBytes) {
  for (const char* const first : {"HTTP/1.1 200 OK\r\nX: ", kHead}) {
    const EndlessServer engine(first, " ", std::chrono::milliseconds(200));
    const auto begin = std::chrono::steady_clock::now();
    EXPECT_FALSE(AskEngine(engine.url(), "").reachable);
    const auto took = std::chrono::steady_clock::now() - begin;
    EXPECT_LT(took, std::chrono::seconds(limits::kEngineReadSecondsMax + 2)) << first;
  }
}

// A head, or a body, without end is not kept: what the peer can send is a little over the limit.
TEST(EngineClientTest, Floods) {
  for (const char* const first : {"HTTP/1.1 200 OK\r\n", "HTTP/1.1 200 OK\r\nX: ", kHead}) {
    const bool is_body = first == kHead;
    const std::string line = "X-Filler: " + std::string(1000, 'x') + (is_body ? "" : "\r\n");
    const EndlessServer engine(first, line, std::chrono::milliseconds(0));
    const auto begin = std::chrono::steady_clock::now();
    EXPECT_FALSE(AskEngine(engine.url(), "").reachable);
    EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(4)) << first;
    // What the sockets hold comes on top.
    EXPECT_LT(engine.sent(), limits::kEngineAnswerSizeMax + (16u << 20)) << first;
  }
}

TEST(EngineClientTest, Urls) {
  for (const char* url : {"http://a", "http://a:1", "http://[::1]:7000"}) {
    EXPECT_TRUE(CheckEngineUrl(url).ok()) << url;
  }
  for (const char* url : {"", "a:1", "https://a", "http://", "http://:1", "http://a/b",
                          "http://a b", "http://u@a", "http://a\r\nX: y"}) {
    EXPECT_EQ(CheckEngineUrl(url).code(), StatusCode::kInvalidArgument) << url;
  }
}

}  // namespace
}  // namespace segue
