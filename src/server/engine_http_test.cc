// SPDX-License-Identifier: Apache-2.0
//
// Engine control over HTTP against stubs that answer as SGLang and vLLM do, refusals included: a
// flush that is refused while requests run (400), endpoints that an engine does not have (404), a
// failure in a 200 answer, an engine that is gone.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <httplib.h>

#include <atomic>
#include <mutex>
#include <thread>

#include "segue/engine_hooks.h"
#include "store/testing.h"

namespace segue {
namespace {

using std::chrono::milliseconds;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// An engine that writes requests down.
class StubEngine {
 public:
  StubEngine() {
    http_.Post(".*", [this](const httplib::Request& request, httplib::Response& response) {
      const std::lock_guard lock(mutex_);
      std::string line = request.path;
      for (const auto& [name, value] : request.params) line += " " + name + "=" + value;
      requests_.push_back(line + (request.body.empty() ? "" : " " + request.body));
      token_ = request.get_header_value("Authorization");
      response.status = 200;
      if (request.path == unknown) response.status = 404;
      if (request.path == refused && refusals > 0) {
        --refusals;
        response.status = 400;
      }
      response.set_content(body, "application/json");
    });
    port_ = http_.bind_to_any_port("127.0.0.1");
    thread_ = std::jthread([this] { http_.listen_after_bind(); });
    while (!http_.is_running()) std::this_thread::sleep_for(milliseconds(1));
  }
  ~StubEngine() { http_.stop(); }

  std::string url() const { return "http://127.0.0.1:" + std::to_string(port_); }
  EngineHooks Hooks(const std::string& kind, std::vector<std::string> caches = {"kv"}) const {
    EngineHttpOptions options;
    options.kind = kind;
    options.url = url();
    options.token = "secret";
    options.caches = std::move(caches);
    options.timeout = milliseconds(2000);
    options.tries = 3;
    return MakeHttpHooks(options).value();
  }
  std::vector<std::string> TakeRequests() {
    const std::lock_guard lock(mutex_);
    return std::exchange(requests_, {});
  }
  std::string token() {
    const std::lock_guard lock(mutex_);
    return token_;
  }

  std::string unknown;  // Path that answers 404.
  std::string refused;  // Path that answers 400, `refusals` times.
  int refusals = 0;
  std::string body = R"({"success":true})";

 private:
  httplib::Server http_;
  int port_ = 0;
  std::mutex mutex_;
  std::vector<std::string> requests_;
  std::string token_;
  std::jthread thread_;
};

TEST(EngineHttp, SglangIsAskedInItsWords) {
  StubEngine engine;
  const EngineHooks hooks = engine.Hooks("sglang");
  EXPECT_TRUE(hooks.pause({false, true}).ok());
  EXPECT_TRUE(hooks.pause({false, false}).ok());
  EXPECT_TRUE(hooks.pause({true, true}).ok());
  EXPECT_THAT(hooks.flush().value(), ElementsAre("kv"));
  EXPECT_TRUE(hooks.set_version("run/7").ok());
  EXPECT_TRUE(hooks.resume().ok());
  EXPECT_THAT(
      engine.TakeRequests(),
      ElementsAre(R"(/pause_generation {"mode":"retract"})",
                  R"(/pause_generation {"mode":"in_place"})",
                  R"(/pause_generation {"mode":"abort"})", "/flush_cache {}",
                  R"(/update_weight_version {"abort_all_requests":false,"new_version":"run/7"})",
                  "/continue_generation {}"));
  EXPECT_EQ(engine.token(), "Bearer secret");
}

TEST(EngineHttp, VllmIsAskedInItsWords) {
  StubEngine engine;
  const EngineHooks hooks = engine.Hooks("vllm", {"kv", "mm", "encoder"});
  EXPECT_TRUE(hooks.pause({false, true}).ok());
  EXPECT_TRUE(hooks.pause({true, true}).ok());
  EXPECT_THAT(hooks.flush().value(), ElementsAre("kv", "mm", "encoder"));
  EXPECT_EQ(hooks.set_version, nullptr);
  EXPECT_TRUE(hooks.resume().ok());
  EXPECT_THAT(
      engine.TakeRequests(),
      ElementsAre("/pause clear_cache=false mode=keep", "/pause clear_cache=false mode=abort",
                  "/reset_prefix_cache reset_external=true reset_running_requests=true",
                  "/reset_mm_cache", "/reset_encoder_cache", "/resume"));
}

// Case E2: refused while requests are queued, granted a little later.
TEST(EngineHttp, ARefusalIsTriedAgainABoundedNumberOfTimes) {
  StubEngine engine;
  const EngineHooks hooks = engine.Hooks("sglang");
  engine.refused = "/flush_cache";
  engine.refusals = 2;
  EXPECT_TRUE(hooks.flush().ok());
  EXPECT_EQ(engine.TakeRequests().size(), 3u);
  engine.refusals = 100;
  const Status failed = hooks.flush().status();
  EXPECT_EQ(failed.code(), StatusCode::kUnavailable);
  EXPECT_THAT(failed.message(), HasSubstr("POST /flush_cache answers 400"));
  EXPECT_EQ(engine.TakeRequests().size(), 3u);
}

// Case E3: a reset that the engine does not know is an error.
TEST(EngineHttp, AnUnknownResetIsAnError) {
  StubEngine engine;
  engine.unknown = "/reset_encoder_cache";
  const Status failed = engine.Hooks("vllm", {"kv", "encoder"}).flush().status();
  EXPECT_EQ(failed.code(), StatusCode::kUnsupported);
  EXPECT_THAT(failed.message(), HasSubstr("/reset_encoder_cache answers 404"));
  EXPECT_EQ(engine.TakeRequests().size(), 2u) << "not tried again";
}

TEST(EngineHttp, AFailureInTheAnswerIsAFailure) {
  StubEngine engine;
  engine.body = R"({"success":false,"message":"busy"})";
  EXPECT_EQ(engine.Hooks("sglang").resume().code(), StatusCode::kUnavailable);
  engine.body = R"({"success":false,"success":true})";
  EXPECT_THAT(engine.Hooks("sglang").resume().message(), HasSubstr("has the key 'success' twice"));
  engine.body = std::string(1000, '[');
  EXPECT_EQ(engine.Hooks("sglang").resume().code(), StatusCode::kUnavailable);
  engine.body = "not JSON, which says nothing";
  EXPECT_TRUE(engine.Hooks("sglang").resume().ok());
}

TEST(EngineHttp, AnEngineThatIsGone) {
  EngineHooks hooks;
  {
    const StubEngine engine;
    hooks = engine.Hooks("sglang");
  }
  const Status status = hooks.pause({});
  EXPECT_EQ(status.code(), StatusCode::kNotFound);
  EXPECT_NE(status.message().find("nobody listens there"), std::string::npos) << status.message();
}

constexpr char kSlowHead[] = "HTTP/1.1 200 OK\r\nX: ";
constexpr char kSlowBody[] = "HTTP/1.1 200 OK\r\nContent-Length: 1000000000\r\n\r\n";

EngineHooks HooksOf(const EndlessServer& engine, milliseconds timeout, unsigned tries) {
  EngineHttpOptions options;
  options.kind = "sglang";
  options.url = engine.url();
  options.timeout = timeout;
  options.tries = tries;
  return MakeHttpHooks(options).value();
}

milliseconds Elapsed(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration_cast<milliseconds>(std::chrono::steady_clock::now() - begin);
}

// The gate is closed while an engine answers: each request has its time as a whole, however the
// bytes come.
TEST(EngineHttp, AnEngineThatDripsHasTheTimeOfARequest) {
  for (const char* const first : {kSlowHead, kSlowBody}) {
    const EndlessServer engine(first, "x", milliseconds(50));
    const auto begin = std::chrono::steady_clock::now();
    EXPECT_EQ(HooksOf(engine, milliseconds(500), 2).resume().code(), StatusCode::kUnavailable);
    EXPECT_LT(Elapsed(begin), milliseconds(2500)) << first;
    EXPECT_EQ(engine.count(), 2);
  }
}

TEST(EngineHttp, AnEngineThatFloodsIsCutOff) {
  for (const char* const first : {kSlowHead, kSlowBody}) {
    const EndlessServer engine(first, std::string(4096, 'x'), milliseconds(0));
    const auto begin = std::chrono::steady_clock::now();
    EXPECT_EQ(HooksOf(engine, milliseconds(30'000), 1).resume().code(), StatusCode::kUnavailable);
    EXPECT_LT(Elapsed(begin), milliseconds(5000)) << first;
  }
}

// A step that has begun, and those that come after it, do not keep a process that is to end.
TEST(EngineHttp, AStopEndsAStepThatWaits) {
  const EndlessServer engine(kSlowBody, "x", milliseconds(50));
  const EngineHooks hooks = HooksOf(engine, milliseconds(30'000), 5);
  std::chrono::steady_clock::time_point stopped;
  std::jthread stopper([&] {
    std::this_thread::sleep_for(milliseconds(300));
    stopped = std::chrono::steady_clock::now();
    hooks.stop();
  });
  EXPECT_EQ(hooks.pause({}).code(), StatusCode::kUnavailable);
  stopper.join();
  EXPECT_LT(Elapsed(stopped), milliseconds(3500));
  const auto later = std::chrono::steady_clock::now();
  EXPECT_FALSE(hooks.flush().ok());
  EXPECT_FALSE(hooks.resume().ok());
  EXPECT_LT(Elapsed(later), milliseconds(1500));
}

TEST(EngineHttp, AStopEndsTheWaitBetweenTries) {
  StubEngine engine;
  engine.refused = "/flush_cache";
  engine.refusals = 1'000'000;
  EngineHttpOptions options;
  options.kind = "sglang";
  options.url = engine.url();
  options.tries = 100;  // Waits that double: hours.
  const EngineHooks hooks = MakeHttpHooks(options).value();
  const auto begin = std::chrono::steady_clock::now();
  std::jthread stopper([&] {
    std::this_thread::sleep_for(milliseconds(300));
    hooks.stop();
  });
  EXPECT_FALSE(hooks.flush().ok());
  EXPECT_LT(Elapsed(begin), milliseconds(3500));
}

// What an engine does in time is done all the same: it is not left paused.
TEST(EngineHttp, AfterAStopTheEngineIsStillAsked) {
  StubEngine engine;
  const EngineHooks hooks = engine.Hooks("sglang");
  hooks.stop();
  engine.refused = "/flush_cache";
  engine.refusals = 2;
  EXPECT_TRUE(hooks.flush().ok());
  EXPECT_TRUE(hooks.resume().ok());
  EXPECT_EQ(engine.TakeRequests().size(), 4u);
}

TEST(EngineHttp, OptionsThatMakeNoSense) {
  const auto refused = [](EngineHttpOptions options) {
    const auto hooks = MakeHttpHooks(options);
    EXPECT_EQ(hooks.status().code(), StatusCode::kInvalidArgument);
    return hooks.status().message();
  };
  EngineHttpOptions options;
  options.kind = "sglang";
  options.url = "tcp:nowhere";
  EXPECT_THAT(refused(options), HasSubstr("expected http://HOST:PORT"));
  options.url = "http://127.0.0.1:1";
  options.kind = "tgi";
  EXPECT_THAT(refused(options), HasSubstr("unknown kind of engine 'tgi'"));
  options.kind = "vllm";
  options.caches = {"kv", "disk"};
  EXPECT_THAT(refused(options), HasSubstr("unknown cache 'disk'"));
}

}  // namespace
}  // namespace segue
