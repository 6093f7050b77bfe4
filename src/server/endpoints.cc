// SPDX-License-Identifier: Apache-2.0
//
// Endpoints: check the request against the table, call the receiver, describe it.
#include "server/endpoints.h"

#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>

#include "segue/disk_delta.h"
#include "server/endpoint_table.h"
#include "server/metrics.h"

namespace segue {
namespace {

using Json = nlohmann::ordered_json;

bool HasType(const Json& value, FieldType type) {
  switch (type) {
    case FieldType::kString: return value.is_string();
    case FieldType::kInteger: return value.is_number_unsigned();
    case FieldType::kBoolean: return value.is_boolean();
    case FieldType::kAny: return true;
  }
  return false;
}

const char* TypeName(FieldType type) {
  switch (type) {
    case FieldType::kString: return "a string";
    case FieldType::kInteger: return "a whole number";
    case FieldType::kBoolean: return "true or false";
    case FieldType::kAny: return "anything";
  }
  return "";
}

// The version in ".../0000000007.json".
Result<std::uint64_t> VersionOfPath(const std::string& path) {
  std::string name = path.substr(path.rfind('/') + 1);
  if (name.ends_with(".json")) name.resize(name.size() - 5);
  std::uint64_t version = 0;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), version);
  if (error == std::errc() && end == name.data() + name.size()) return version;
  return InvalidArgument("manifest_path '" + path +
                         "' does not end in a version's number and '.json'");
}

// Clock ticks after boot at which this process began; 0 where the system does not say. Field 22 of
// the line, counted after the second one, a name in parentheses that may hold anything.
std::uint64_t StartTicks() {
  std::ifstream file("/proc/self/stat");
  std::string line;
  std::getline(file, line);
  std::istringstream fields(line.substr(line.rfind(')') + 1));
  std::string field;
  std::uint64_t ticks = 0;
  for (int i = 3; i <= 22 && fields >> field; ++i) {
    if (i == 22) (void)std::from_chars(field.data(), field.data() + field.size(), ticks);
  }
  return ticks;
}

// "at version 7, before at 5".
std::string Describe(const PullReport& report) {
  std::string text = "at version " + std::to_string(report.version);
  if (report.from == report.version) return text + " already";
  text += report.from ? ", before at " + std::to_string(*report.from) : ", before at none";
  if (report.reset) text += "; copied from a full checkpoint";
  text += "; " + std::to_string(report.changed_tensors) + " tensors changed by deltas";
  for (const std::string& warning : report.warnings) text += "; " + warning;
  return text;
}

std::string Text(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace

// A body whose fields are the endpoint's and have their types; null counts as absent. One that is
// not known is refused: a misspelt `target_version` would mean the newest.
struct Endpoints::Request {
  Json fields;

  static Result<Request> Parse(const Endpoint& endpoint, const std::string& body) {
    Request request;
    request.fields = body.empty() ? Json::object() : Json::parse(body, nullptr, false);
    if (!request.fields.is_object()) return InvalidArgument("the body is not a JSON object");
    for (const EndpointField& field : endpoint.fields) {
      const auto found = request.fields.find(std::string(field.name));
      if (found == request.fields.end() || found->is_null()) continue;
      if (HasType(*found, field.type)) continue;
      return InvalidArgument("field '" + std::string(field.name) + "' must be " +
                             TypeName(field.type));
    }
    for (const auto& [name, value] : request.fields.items()) {
      const bool known =
          std::any_of(endpoint.fields.begin(), endpoint.fields.end(),
                      [&](const EndpointField& field) { return field.name == name; });
      if (!known) return InvalidArgument("there is no field '" + name + "'; " + Fields(endpoint));
    }
    return request;
  }

  static std::string Fields(const Endpoint& endpoint) {
    std::string text = std::string(endpoint.path) + " has ";
    if (endpoint.fields.empty()) return text + "none";
    for (const EndpointField& field : endpoint.fields) {
      text += std::string(&field == endpoint.fields.data() ? "" : ", ") + std::string(field.name);
    }
    return text;
  }

  template <typename T>
  std::optional<T> Get(const char* name) const {
    const auto found = fields.find(name);
    if (found == fields.end() || found->is_null()) return std::nullopt;
    return found->get<T>();
  }
  std::string String(const char* name) const { return Get<std::string>(name).value_or(""); }
  bool Flag(const char* name) const { return Get<bool>(name).value_or(false); }

  Result<std::optional<std::uint64_t>> Target() const {
    std::optional<std::uint64_t> target = Get<std::uint64_t>("target_version");
    const std::string path = String("manifest_path");
    if (path.empty()) return target;
    SEGUE_ASSIGN_OR_RETURN(const std::uint64_t version, VersionOfPath(path));
    if (target && *target != version) {
      return InvalidArgument("target_version is " + std::to_string(*target) +
                             ", manifest_path says " + std::to_string(version));
    }
    return std::optional(version);
  }

  ApplyChoices Choices() const {
    return {Get<bool>("flush_cache").value_or(true), Flag("abort_all_requests")};
  }
};

Endpoints::Endpoints(EngineIdentity identity)
    : identity_(std::move(identity)), process_(ThisProcess()) {}

Endpoints::Process Endpoints::ThisProcess() {
  Process process;
  char hostname[256] = {};
  if (::gethostname(hostname, sizeof(hostname) - 1) == 0) process.hostname = hostname;
  process.pid = ::getpid();
  process.start_ticks = StartTicks();
  return process;
}

void Endpoints::SetFailure(const Status& failure) {
  const std::lock_guard lock(mutex_);
  failure_ = failure;
}

void Endpoints::AllowPulls(std::vector<std::string> roots, std::string base, unsigned threads) {
  pull_roots_ = std::move(roots);
  pull_base_ = std::move(base);
  pull_threads_ = threads;
}

HttpAnswer Endpoints::Handle(const std::string& method, const std::string& path,
                             const std::string& body) {
  const Endpoint* const endpoint = FindEndpoint(method, path);
  if (endpoint == nullptr) {
    return Answer(404, NotFound("there is no " + method + " " + path + "; see /openapi.json"),
                  nullptr);
  }
  if (endpoint->answer == AnswerKind::kDocument) {
    return {200, "application/json", OpenApiDocument()};
  }
  if (path == kPullPath) return Pull(*endpoint, body);
  Receiver* const receiver = receiver_;
  if (receiver == nullptr) {
    const std::lock_guard lock(mutex_);
    return Answer(503, failure_.ok() ? Unavailable("the weights are being taken over") : failure_,
                  nullptr);
  }
  if (method == "GET") return Get(path, *receiver);
  const Result<Request> request = Request::Parse(*endpoint, body);
  if (!request.ok()) return Answer(400, request.status(), receiver);
  const Status status = Post(path, request.value(), *receiver);
  return Answer(status.ok() ? 200 : 409, status, receiver);
}

HttpAnswer Endpoints::Answer(int code, const Status& status, const Receiver* receiver) const {
  return {code, "application/json", Receipts(status, receiver)};
}

HttpAnswer Endpoints::Pull(const Endpoint& endpoint, const std::string& body) const {
  const auto answer = [](int code, const Status& status, const std::string& message) {
    return HttpAnswer{code, "application/json",
                      Text({{"success", status.ok()},
                            {"code", StatusCodeName(status.code())},
                            {"message", status.ok() ? message : status.message()}})};
  };
  const Result<Request> request = Request::Parse(endpoint, body);
  if (!request.ok()) return answer(400, request.status(), "");
  PullOptions pull;
  pull.local_checkpoint = request->String("local_checkpoint_dir");
  pull.source = request->String("source_dir");
  pull.base = pull_base_;
  pull.roots = pull_roots_;
  pull.threads = pull_threads_;
  const auto target = request->Get<std::uint64_t>("target_version");
  pull.target_version = target.value_or(0);
  const bool whole = !pull.local_checkpoint.empty() && !pull.source.empty() && target;
  Status refused;
  if (!whole) {
    refused = InvalidArgument("local_checkpoint_dir, source_dir and target_version are required");
  } else if (pull_roots_.empty()) {
    refused = InvalidArgument("pulls are not allowed: the server was started without --pull-root");
  }
  if (!refused.ok()) return answer(409, refused, "");
  const Result<PullReport> report = PullWeights(pull);
  if (!report.ok()) return answer(409, report.status(), "");
  return answer(200, Status(), Describe(report.value()));
}

HttpAnswer Endpoints::Get(const std::string& path, Receiver& receiver) {
  const ReceiverStatus status = receiver.status();
  if (path == "/metrics") {
    return {200, "text/plain; version=0.0.4", MetricsText(identity_, status)};
  }
  if (path == "/healthz") {
    return {status.ready ? 200 : 503, "application/json",
            Text({{"ready", status.ready},
                  {"lineage", status.lineage},
                  {"version", status.version},
                  {"digest", status.digest},
                  {"message", status.message}})};
  }
  const auto versions = receiver.Versions();
  if (!versions.ok()) return Answer(409, versions.status(), &receiver);
  return {200, "application/json",
          Text({{"lineage", status.lineage},
                {"version", status.version},
                {"newest", versions->empty() ? status.version : versions->back()},
                {"versions", versions.value()}})};
}

Status Endpoints::Post(const std::string& path, const Request& request, Receiver& receiver) {
  const std::string session = request.String("session_id");
  if (path == "/get_gpu_delta_info") {
    const std::string engine = request.String("engine_id");
    if (engine.empty() || engine == identity_.engine_id) return {};
    return InvalidArgument("this is engine '" + identity_.engine_id + "', not '" + engine + "'");
  }
  if (path == "/get_gpu_delta_status") {
    const std::string current = receiver.status().session;
    if (session.empty() || session == current) return {};
    return NotFound("session '" + session + "' is not the current one, '" + current + "'");
  }
  if (path == "/apply_gpu_delta") return receiver.Apply(session, request.Choices());
  if (path == "/resume_gpu_delta") return receiver.Resume(session, request.Flag("keep_pause"));
  if (path == "/abort_gpu_delta") return receiver.Abort(session);
  if (path == "/clear_gpu_delta_state") return receiver.Clear();
  SEGUE_ASSIGN_OR_RETURN(const auto target, request.Target());
  if (path == "/rebuild") return receiver.Rebuild(target);
  PrepareRequest prepare;
  prepare.session = session;
  prepare.target_version = target;
  if (path == "/update_weights_from_gpu_delta") {
    prepare.session = "update-" + (target ? std::to_string(*target) : std::string("newest"));
    return receiver.Update(prepare, request.Choices()).status();
  }
  if (session.empty()) return InvalidArgument("prepare needs a session_id");
  const std::string stream = request.String("stream_id");
  const std::string lineage = receiver.status().lineage;
  if (!stream.empty() && stream != lineage) {
    return VersionMismatch("lineage '" + lineage + "' is held, not '" + stream + "'");
  }
  prepare.base_version = request.Get<std::uint64_t>("base_version");
  prepare.plan_digest = request.String("plan_digest");
  prepare.manifest_sha256 = request.String("manifest_sha256");
  return receiver.Prepare(prepare);
}

std::string Endpoints::Receipts(const Status& status, const Receiver* receiver) const {
  Json answer = {{"success", status.ok()},
                 {"code", StatusCodeName(status.code())},
                 {"message", status.ok() ? "" : status.message()},
                 {"participants", Json::array()}};
  if (receiver == nullptr) return Text(answer);
  const ReceiverStatus held = receiver->status();
  const UpdateReport& last = held.last;
  answer["participants"].push_back(
      {{"engine_id", identity_.engine_id},
       {"rank_id", identity_.rank_id},
       {"hostname", process_.hostname},
       {"pid", process_.pid},
       {"start_ticks", process_.start_ticks},
       {"tp_rank", identity_.tp_rank},
       {"dp_rank", identity_.dp_rank},
       {"pp_rank", identity_.pp_rank},
       {"state", ReceiverStateName(held.state)},
       {"message", held.message},
       {"session_id", held.session},
       {"manifest_sha256", held.manifest_sha256},
       {"stream_id", held.lineage},
       {"version", held.version},
       {"digest", held.digest},
       {"base_version", held.base_version},
       {"target_version", held.target_version},
       {"plan_digest", held.plan_digest},
       {"result", StatusCodeName(status.ok() ? held.failure : status.code())},
       {"flushed_caches", last.flushed_caches},
       {"scheduler_timing",
        {{"clock", "monotonic"},
         {"pause_started_ns", last.pause_started_ns},
         {"reader_fence_completed_ns", last.fence_completed_ns},
         {"resumed_ns", last.resumed_ns},
         {"blocked_s", last.pause_s}}}});
  return Text(answer);
}

}  // namespace segue
