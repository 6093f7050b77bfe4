// SPDX-License-Identifier: Apache-2.0
//
// Engine hooks: how a receiver asks an inference engine to hold its requests while weights change,
// to drop caches that were made with the old ones, and to go on. For engines that do not enter a
// gate by themselves; docs/protocol.md, "Engine control", has the order and what a failure means.
#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "segue/status.h"

namespace segue {

struct PauseRequest {
  bool abort_requests = false;  // Running requests end; otherwise they go on later.
  bool flush_cache = true;      // Flush comes before they do, so they may not keep their cache.
};

// Each waits until the engine has done it, or fails. `pause` and `resume` are needed; without
// `flush` a flush is refused (unsupported), without `set_version` the engine is not told.
struct EngineHooks {
  // NotFound: there is no engine yet, which matters to nobody at the start.
  std::function<Status(const PauseRequest&)> pause = {};
  // The caches that were reset, e.g. "kv".
  std::function<Result<std::vector<std::string>>()> flush = {};
  std::function<Status(const std::string& label)> set_version = {};
  std::function<Status()> resume = {};
  // May be unset. The process is to end: whoever waits for the engine stops waiting within about
  // two seconds, and later calls wait no longer than that. Called from any thread.
  std::function<void()> stop = {};

  bool present() const { return static_cast<bool>(pause); }
};

struct EngineHttpOptions {
  std::string kind = {};   // "sglang" or "vllm".
  std::string url = {};    // "http://HOST:PORT".
  std::string token = {};  // Sent as `Authorization: Bearer`, if any.
  // vLLM: which of "kv", "mm", "encoder" to reset.
  std::vector<std::string> caches = {"kv", "mm", "encoder"};
  std::chrono::milliseconds timeout{30'000};  // Of one request.
  unsigned tries = 5;                         // For each step, with growing waits between.
};

// The engine's own control endpoints. InvalidArgument for another kind, cache or URL.
Result<EngineHooks> MakeHttpHooks(const EngineHttpOptions& options);

}  // namespace segue
