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

  EngineHooks Hooks(const std::string& kind, std::vector<std::string> caches = {"kv"}) const {
    EngineHttpOptions options;
    options.kind = kind;
    options.url = "http://127.0.0.1:" + std::to_string(port_);
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

TEST(EngineHttp, OptionsThatMakeNoSense) {
  const auto refused = [](EngineHttpOptions options) {
    const auto hooks = MakeHttpHooks(options);
    EXPECT_EQ(hooks.status().code(), StatusCode::kInvalidArgument);
    return hooks.status().message();
  };
  EngineHttpOptions options;
  options.kind = "sglang";
  options.url = "tcp:nowhere";
  EXPECT_THAT(refused(options), HasSubstr("no engine's address"));
  options.url = "http://127.0.0.1:1";
  options.kind = "tgi";
  EXPECT_THAT(refused(options), HasSubstr("unknown kind of engine 'tgi'"));
  options.kind = "vllm";
  options.caches = {"kv", "disk"};
  EXPECT_THAT(refused(options), HasSubstr("unknown cache 'disk'"));
}

}  // namespace
}  // namespace segue
