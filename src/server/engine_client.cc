// SPDX-License-Identifier: Apache-2.0
//
// Engine client: what engines answer, field by field.
#include "server/engine_client.h"

#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>

#include "base/limits.h"
#include "base/parse_json.h"
#include "segue/token.h"
#include "server/engine_exchange.h"

namespace segue {
namespace {

using Json = nlohmann::json;

constexpr std::string_view kScheme = "http://";

struct Answer {
  int status = 0;
  JsonTree<Json> json;
};

class Conversation {
 public:
  Conversation(const std::string& url, const std::string& token) : exchange_(url, token) {}

  Result<Answer> Ask(const std::string& method, const std::string& path) {
    const std::string& url = exchange_.url();
    const Result<EngineAnswer> got =
        exchange_.Ask({.method = method,
                       .path = path,
                       .body = "{}",
                       .time_max = std::chrono::seconds(limits::kEngineReadSecondsMax),
                       .stopped = {}});
    if (!got.ok()) return Unavailable("no answer from " + url + ": " + got.status().message());
    if (got->status == 401) return InvalidArgument(url + " wants another token");
    auto json = ParseJson<Json>(got->body, limits::kJsonAnswerValuesMax);
    if (!json.ok() || !json->is_object()) {
      return Unavailable(url + " does not answer as an engine of Segue (HTTP " +
                         std::to_string(got->status) + ")");
    }
    return Answer{got->status, std::move(json).value()};
  }

 private:
  EngineExchange exchange_;
};

// The value where it is there and of the type; else as it would be without the field.
template <typename T>
T Field(const Json& json, const char* name) {
  const auto found = json.find(name);
  if (found == json.end()) return T();
  if constexpr (std::is_same_v<T, bool>) {
    return found->is_boolean() && found->template get<bool>();
  } else if constexpr (std::is_same_v<T, std::string>) {
    return found->is_string() ? found->template get<std::string>() : T();
  } else if constexpr (std::is_same_v<T, double>) {
    return found->is_number() ? found->template get<double>() : T();
  } else {
    return found->is_number_unsigned() ? found->template get<T>() : T();
  }
}

LineageAtEngine ReadHeld(const Json& json) {
  LineageAtEngine held;
  held.lineage = Field<std::string>(json, "lineage");
  held.version = Field<std::uint64_t>(json, "version");
  held.digest = Field<std::string>(json, "digest");
  return held;
}

Status ReadHealth(Conversation& conversation, EngineView& view) {
  SEGUE_ASSIGN_OR_RETURN(const Answer answer, conversation.Ask("GET", "/healthz"));
  view.ready = answer.status == 200 && Field<bool>(answer.json, "ready");
  view.message = Field<std::string>(answer.json, "message");
  const auto lineages = answer.json.find("lineages");
  if (lineages == answer.json.end() || !lineages->is_array()) {
    view.lineages.push_back(ReadHeld(answer.json));
    return {};
  }
  for (const Json& one : *lineages) {
    if (one.is_object()) view.lineages.push_back(ReadHeld(one));
  }
  return {};
}

// Of each participant, for its lineage.
void ReadUpdate(const Json& receipt, EngineView& view) {
  const auto lineage = Field<std::string>(receipt, "stream_id");
  const auto at = std::ranges::find(view.lineages, lineage, &LineageAtEngine::lineage);
  if (at == view.lineages.end()) return;
  at->target_version = Field<std::uint64_t>(receipt, "target_version");
  const auto timing = receipt.find("scheduler_timing");
  if (timing != receipt.end() && timing->is_object()) {
    at->pause_s = Field<double>(*timing, "blocked_s");
  }
}

// Without a participant (weights are being taken over) what is known stays.
Status ReadReceipt(Conversation& conversation, EngineView& view) {
  SEGUE_ASSIGN_OR_RETURN(const Answer answer, conversation.Ask("POST", "/get_gpu_delta_status"));
  const auto participants = answer.json.find("participants");
  if (participants == answer.json.end() || !participants->is_array() || participants->empty() ||
      !participants->front().is_object()) {
    view.state = "STARTING";
    return {};
  }
  const Json& receipt = participants->front();
  view.engine_id = Field<std::string>(receipt, "engine_id");
  view.hostname = Field<std::string>(receipt, "hostname");
  view.state = Field<std::string>(receipt, "state");
  if (view.message.empty()) view.message = Field<std::string>(receipt, "message");
  for (const Json& one : *participants) {
    if (one.is_object()) ReadUpdate(one, view);
  }
  return {};
}

}  // namespace

Status CheckEngineUrl(const std::string& url) {
  std::string_view rest = std::string_view(url).substr(std::min(kScheme.size(), url.size()));
  if (rest.ends_with('/')) rest.remove_suffix(1);
  const bool is_plain = url.starts_with(kScheme) && !rest.empty() && rest.front() != ':' &&
                        rest.find_first_of("/?#@ \t\r\n") == std::string_view::npos;
  if (is_plain) return {};
  return InvalidArgument("engine '" + url + "': expected http://HOST:PORT");
}

EngineView AskEngine(const std::string& url, const std::string& token) {
  EngineView view;
  view.url = url;
  Conversation conversation(url, token);
  Status status = ReadHealth(conversation, view);
  if (status.ok()) status = ReadReceipt(conversation, view);
  view.reachable = status.ok();
  if (status.ok()) return view;
  EngineView unreachable;
  unreachable.url = url;
  unreachable.message = status.message();
  return unreachable;
}

EngineProbe HttpEngineProbe(std::string token) {
  return [token = std::move(token)](const std::string& engine) -> Result<EngineHolds> {
    SEGUE_RETURN_IF_ERROR(CheckEngineUrl(engine));
    if (!token.empty()) SEGUE_RETURN_IF_ERROR(CheckToken(token));
    EngineView view;
    Conversation conversation(engine, token);
    SEGUE_RETURN_IF_ERROR(ReadHealth(conversation, view));
    EngineHolds holds{view.ready, {}};
    for (const LineageAtEngine& one : view.lineages) {
      holds.lineages[one.lineage] = {one.version, one.digest};
    }
    return holds;
  };
}

}  // namespace segue
