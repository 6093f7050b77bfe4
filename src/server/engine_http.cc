// SPDX-License-Identifier: Apache-2.0
//
// Engine hooks over HTTP: the control endpoints of SGLang and of vLLM (with
// VLLM_SERVER_DEV_MODE=1). What an engine refuses for a while (a flush while requests run: 400) is
// tried again, a bounded number of times; what it does not know (404, 405) is not.
#include <httplib.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <thread>
#include <utility>

#include "segue/engine_hooks.h"
#include "server/http_words.h"

namespace segue {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kWaitFirst(50);

// POSTs to one engine. Copies of the hooks share it.
class EngineClient {
 public:
  explicit EngineClient(EngineHttpOptions options)
      : options_(std::move(options)), http_(options_.url) {
    http_.set_connection_timeout(options_.timeout);
    http_.set_read_timeout(options_.timeout);
    http_.set_write_timeout(options_.timeout);
    http_.set_keep_alive(true);
    if (!options_.token.empty()) http_.set_bearer_token_auth(options_.token);
  }

  bool is_valid() const { return http_.is_valid(); }

  Status Post(const std::string& path, const std::string& body) {
    milliseconds wait = kWaitFirst;
    for (unsigned left = options_.tries;; --left) {
      Status status = PostOnce(path, body);
      const bool again =
          status.code() == StatusCode::kUnavailable || status.code() == StatusCode::kNotFound;
      if (!again || left <= 1) return status;
      std::this_thread::sleep_for(wait);
      wait *= 2;
    }
  }

 private:
  Status PostOnce(const std::string& path, const std::string& body) {
    const httplib::Result result = http_.Post(path, body, "application/json");
    const std::string what = "engine " + options_.url + ": POST " + path;
    if (!result && result.error() == httplib::Error::Connection) {
      return NotFound(what + ": nobody listens there");
    }
    if (!result) return Unavailable(what + ": " + ErrorInWords(result.error()));
    const int code = result->status;
    if (code >= 200 && code < 300) return CheckSuccess(what, result->body);
    const std::string answer =
        what + " answers " + std::to_string(code) + ": " + result->body.substr(0, 200);
    if (code == 404 || code == 405) return Unsupported(answer);
    if (code == 401 || code == 403) return InvalidArgument(answer);
    return Unavailable(answer);
  }

  // Some answer 200 and say in the body that it did not work.
  static Status CheckSuccess(const std::string& what, const std::string& body) {
    const auto json = nlohmann::json::parse(body, nullptr, /*allow_exceptions=*/false);
    if (!json.is_object()) return {};
    const auto success = json.find("success");
    if (success == json.end() || !success->is_boolean() || success->get<bool>()) return {};
    return Unavailable(what + " says that it failed: " + body.substr(0, 200));
  }

  const EngineHttpOptions options_;
  httplib::Client http_;
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
    const nlohmann::json body = {{"new_version", label}, {"abort_all_requests", false}};
    return client->Post("/update_weight_version", body.dump());
  };
  hooks.resume = [client] { return client->Post("/continue_generation", "{}"); };
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
  return hooks;
}

}  // namespace

Result<EngineHooks> MakeHttpHooks(const EngineHttpOptions& options) {
  for (const std::string& cache : options.caches) {
    if (cache != "kv" && cache != "mm" && cache != "encoder") {
      return InvalidArgument("unknown cache '" + cache + "': kv, mm and encoder are known");
    }
  }
  const auto client = std::make_shared<EngineClient>(options);
  if (!options.url.starts_with("http://") || !client->is_valid()) {
    return InvalidArgument("'" + options.url +
                           "' is no engine's address: expected http://HOST:PORT");
  }
  if (options.kind == "sglang") return SglangHooks(client);
  if (options.kind == "vllm") return VllmHooks(client, options.caches);
  return InvalidArgument("unknown kind of engine '" + options.kind + "': sglang or vllm");
}

}  // namespace segue
