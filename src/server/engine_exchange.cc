// SPDX-License-Identifier: Apache-2.0
//
// EngineExchange, over HttpClient and its limits.
#include "server/engine_exchange.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/limits.h"

namespace segue {

EngineExchange::EngineExchange(std::string url, const std::string& token)
    : url_(url.ends_with('/') ? url.substr(0, url.size() - 1) : std::move(url)),
      client_({.connect_seconds = limits::kEngineConnectSecondsMax,
               .stall_seconds = 0,  // The deadline of the whole is all there is.
               .direct = true}) {
  fields_.emplace_back("Accept-Encoding: identity");
  fields_.emplace_back("Expect:");
  if (!token.empty()) fields_.push_back("Authorization: Bearer " + token);
}

Result<EngineAnswer> EngineExchange::Ask(const EngineQuestion& question) {
  EngineAnswer answer;
  HttpRequest request;
  request.method = question.method;
  request.url = url_ + question.path;
  request.fields = fields_;
  request.time_max = question.time_max;
  request.stopped = question.stopped;
  if (question.method == "POST") {
    request.fields.emplace_back("Content-Type: application/json");
    request.has_body = true;
    request.body_size = question.body.size();
    request.body = [&](std::uint64_t offset, MutableByteSpan target) {
      std::memcpy(target.data(), question.body.data() + offset, target.size());
      return Status();
    };
  }
  request.on_body = [&](ByteSpan bytes) -> Status {
    if (answer.body.size() + bytes.size() > limits::kEngineAnswerSizeMax) {
      return ResourceExhausted("the answer is over the limit of " +
                               std::to_string(limits::kEngineAnswerSizeMax) + " bytes");
    }
    answer.body.append(AsText(bytes));
    return {};
  };
  const HttpReply reply = client_.Perform(request);
  if (!reply.reached) return NotFound("nobody listens there (" + reply.transport.message() + ")");
  if (!reply.refusal.ok()) return Unavailable(reply.refusal.message());
  if (!reply.transport.ok()) return Unavailable(reply.transport.message());
  answer.status = reply.head.code;
  if (answer.body.empty()) answer.body = reply.error_text;
  return answer;
}

}  // namespace segue
