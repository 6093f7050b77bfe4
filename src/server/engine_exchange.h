// SPDX-License-Identifier: Apache-2.0
//
// EngineExchange: one question to an engine over HTTP, and its answer. What must hold: an exchange
// as a whole has a deadline, however the bytes come; nothing that an engine sends is kept without a
// limit (head 64 KiB, body kEngineAnswerSizeMax, of a refusal kHttpErrorSizeMax); and the request
// goes to the engine itself, past any proxy that the environment names.
#pragma once

#include <chrono>
#include <functional>
#include <string>

#include "segue/status.h"
#include "store/http_client.h"

namespace segue {

struct EngineAnswer {
  int status = 0;
  std::string body;
};

struct EngineQuestion {
  std::string method = "GET";
  std::string path = {};
  std::string body = {};  // JSON; of a POST alone.
  std::chrono::milliseconds time_max{0};
  // Asked now and then (at least every second): true ends the exchange.
  std::function<bool()> stopped = {};
};

// Thread-safe; keeps its connection for the next question.
class EngineExchange {
 public:
  // `url`: "http://HOST:PORT". `token`: sent as `Authorization: Bearer`, if any.
  EngineExchange(std::string url, const std::string& token);

  const std::string& url() const { return url_; }
  // NotFound: nobody listens there. Unavailable: no whole answer in time, or too large a one.
  Result<EngineAnswer> Ask(const EngineQuestion& question);

 private:
  const std::string url_;
  std::vector<std::string> fields_;
  HttpClient client_;
};

}  // namespace segue
