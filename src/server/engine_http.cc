// SPDX-License-Identifier: Apache-2.0
//
// Engine hooks over HTTP: the control endpoints of SGLang and of vLLM (with
// VLLM_SERVER_DEV_MODE=1). What an engine refuses for a while (a flush while requests run: 400) is
// tried again, a bounded number of times; what it does not know (404, 405) is not.
#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>

#include "base/json_text.h"
#include "base/limits.h"
#include "base/parse_json.h"
#include "segue/engine_hooks.h"
#include "segue/fleet.h"
#include "segue/token.h"
#include "server/engine_exchange.h"

namespace segue {
namespace {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

constexpr milliseconds kWaitFirst(50);
// Once this process is to end: what a step may take, and what one may after one that took it all.
constexpr milliseconds kLastWordMax(limits::kEngineStopMsMax);
constexpr milliseconds kLastWordAgain(200);

// POSTs to one engine. Copies of the hooks share it.
class EngineClient {
 public:
  explicit EngineClient(const EngineHttpOptions& options)
      : options_(options), exchange_(options.url, options.token) {}

  // From now on steps have little time, those that have begun included.
  void Stop() {
    {
      const std::lock_guard lock(mutex_);
      if (!stopped_at_) stopped_at_ = Clock::now();
    }
    changed_.notify_all();
  }

  Status Post(const std::string& path, const std::string& body) {
    const Clock::time_point began = Clock::now();
    milliseconds wait = kWaitFirst;
    for (unsigned left = options_.tries;; --left) {
      Status status = PostOnce(path, body, began);
      const bool again =
          status.code() == StatusCode::kUnavailable || status.code() == StatusCode::kNotFound;
      if (!again || left <= 1 || !Wait(wait, began)) return status;
      wait *= 2;
    }
  }

 private:
  // When a step that began then must be over, if the process is to end. The lock is held.
  std::optional<Clock::time_point> End(Clock::time_point began) const {
    if (!stopped_at_) return std::nullopt;
    return std::max(began, *stopped_at_) + (late_ ? kLastWordAgain : kLastWordMax);
  }

  // What is left of a step's time; nothing: it is over.
  milliseconds Left(Clock::time_point began) {
    const std::lock_guard lock(mutex_);
    const std::optional<Clock::time_point> end = End(began);
    if (!end) return options_.timeout;
    const auto left = std::chrono::ceil<milliseconds>(*end - Clock::now());
    if (left.count() <= 0) late_ = true;
    return std::clamp(left, milliseconds(0), options_.timeout);
  }

  // Before the next try; false: there is no time for one.
  bool Wait(milliseconds time, Clock::time_point began) {
    const Clock::time_point end = Clock::now() + time;
    {
      std::unique_lock lock(mutex_);
      changed_.wait_until(lock, end, [this] { return stopped_at_.has_value(); });
      const auto last = End(began);
      // A step that began before the stop still has its next try at its time.
      if (last) changed_.wait_until(lock, std::min(end, *last), [] { return false; });
    }
    return Left(began).count() > 0;
  }

  Status PostOnce(const std::string& path, const std::string& body, Clock::time_point began) {
    const std::string what = "engine " + options_.url + ": POST " + path;
    const milliseconds left = Left(began);
    if (left.count() <= 0) return Unavailable(what + ": this process is to end");
    const Result<EngineAnswer> answer = exchange_.Ask(
        {.method = "POST", .path = path, .body = body, .time_max = left, .stopped = [&] {
           return Left(began).count() <= 0;
         }});
    if (!answer.ok()) {
      (void)Left(began);  // Notes a step that ran out.
      return answer.status().WithContext(what);
    }
    const int code = answer->status;
    if (code >= 200 && code < 300) return CheckSuccess(what, answer->body);
    const std::string text =
        what + " answers " + std::to_string(code) + ": " + QuotedReply(answer->body);
    if (code == 404 || code == 405) return Unsupported(text);
    if (code == 401 || code == 403) return InvalidArgument(text);
    return Unavailable(text);
  }

  // Some answer 200 and say in the body that it did not work.
  static Status CheckSuccess(const std::string& what, const std::string& body) {
    const auto json = ParseJson<nlohmann::json>(body, limits::kJsonAnswerValuesMax);
    if (json.status().code() == StatusCode::kUnsupported) {
      return Unavailable(what + ": the answer " + json.status().message());
    }
    if (!json.ok() || !json->is_object()) return {};
    const auto success = json->find("success");
    if (success == json->end() || !success->is_boolean() || success->get<bool>()) return {};
    return Unavailable(what + " says that it failed: " + QuotedReply(body));
  }

  const EngineHttpOptions options_;
  EngineExchange exchange_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::optional<Clock::time_point> stopped_at_;
  bool late_ = false;
};

using Client = std::shared_ptr<EngineClient>;

EngineHooks SglangHooks(const Client& client) {
  EngineHooks hooks;
  hooks.pause = [client](const PauseRequest& request) {
    // In place, running requests keep their cache, and a flush would be refused.
    const char* const mode = request.abort_requests ? "abort"
                             : request.flush_cache  ? "retract"
                                                    : "in_place";
    return client->Post("/pause_generation", std::string(R"({"mode":")") + mode + R"("})");
  };
  hooks.flush = [client]() -> Result<std::vector<std::string>> {
    SEGUE_RETURN_IF_ERROR(client->Post("/flush_cache", "{}"));
    return std::vector<std::string>{"kv"};
  };
  hooks.set_version = [client](const std::string& label) {
    JsonObjectText body;
    body.Add("abort_all_requests", false).Add("new_version", label);
    return client->Post("/update_weight_version", body.Text());
  };
  hooks.resume = [client] { return client->Post("/continue_generation", "{}"); };
  hooks.stop = [client] { client->Stop(); };
  return hooks;
}

std::string VllmResetPath(const std::string& cache) {
  // Requests that are kept hold blocks of the old weights' cache: they must give them up too.
  if (cache == "kv") return "/reset_prefix_cache?reset_running_requests=true&reset_external=true";
  return cache == "mm" ? "/reset_mm_cache" : "/reset_encoder_cache";
}

EngineHooks VllmHooks(const Client& client, const std::vector<std::string>& caches) {
  EngineHooks hooks;
  hooks.pause = [client](const PauseRequest& request) {
    // The caches are flushed one by one after the apply, so that each failure is seen.
    const char* const mode = request.abort_requests ? "abort" : "keep";
    return client->Post(std::string("/pause?mode=") + mode + "&clear_cache=false", "");
  };
  hooks.flush = [client, caches]() -> Result<std::vector<std::string>> {
    for (const std::string& cache : caches) {
      SEGUE_RETURN_IF_ERROR(client->Post(VllmResetPath(cache), ""));
    }
    return caches;
  };
  hooks.resume = [client] { return client->Post("/resume", ""); };
  hooks.stop = [client] { client->Stop(); };
  return hooks;
}

}  // namespace

Result<EngineHooks> MakeHttpHooks(const EngineHttpOptions& options) {
  for (const std::string& cache : options.caches) {
    if (cache != "kv" && cache != "mm" && cache != "encoder") {
      return InvalidArgument("unknown cache '" + cache + "': kv, mm and encoder are known");
    }
  }
  if (!options.token.empty()) SEGUE_RETURN_IF_ERROR(CheckToken(options.token));
  SEGUE_RETURN_IF_ERROR(CheckEngineUrl(options.url));
  const auto client = std::make_shared<EngineClient>(options);
  if (options.kind == "sglang") return SglangHooks(client);
  if (options.kind == "vllm") return VllmHooks(client, options.caches);
  return InvalidArgument("unknown kind of engine '" + options.kind + "': sglang or vllm");
}

}  // namespace segue
