// SPDX-License-Identifier: Apache-2.0
//
// Endpoints: check the request against the table, call the receiver, describe it.
#include "server/endpoints.h"

#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <fstream>
#include <optional>
#include <sstream>
#include <utility>

#include "base/json_text.h"
#include "base/limits.h"
#include "segue/disk_delta.h"
#include "server/endpoint_request.h"
#include "server/endpoint_table.h"
#include "server/metrics.h"
#include "server/relay_node.h"

namespace segue {
namespace {

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

// What is held of one of several lineages, as a health check tells it.
std::string Held(const ReceiverStatus& one) {
  JsonObjectText held;
  held.Add("lineage", one.lineage);
  held.Add("name", one.name);
  held.Add("version", one.version);
  held.Add("digest", one.digest);
  held.Add("ready", one.ready);
  return held.Text();
}

// The answer to what has no receipt.
HttpAnswer Outcome(int code, const Status& status, const std::string& message) {
  JsonObjectText answer;
  answer.Add("success", status.ok());
  answer.Add("code", StatusCodeName(status.code()));
  answer.Add("message", status.ok() ? message : status.message());
  return {code, "application/json", answer.Text() + "\n"};
}

}  // namespace

Endpoints::Endpoints(EngineIdentity identity)
    : identity_(std::move(identity)), process_(ThisProcess()), document_(OpenApiDocument()) {}

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

void Endpoints::AllowPulls(std::vector<std::string> roots, std::vector<std::string> bases,
                           unsigned threads) {
  pull_roots_ = std::move(roots);
  pull_bases_ = std::move(bases);
  pull_threads_ = threads;
}

HttpAnswer Endpoints::Handle(const std::string& method, const std::string& path,
                             const std::string& body) {
  const Endpoint* const endpoint = FindEndpoint(method, path);
  if (endpoint == nullptr) {
    return Answer(404, NotFound("there is no " + method + " " + path + "; see /openapi.json"),
                  nullptr);
  }
  if (!endpoint->waits) return HandleKnown(*endpoint, body);
  if (!Enter(*endpoint)) {
    const Status refused = Unavailable(std::to_string(limits::kHttpLongRequestsMax) +
                                       " requests of " + path + " are being answered already");
    if (endpoint->answer == AnswerKind::kOutcome) return Outcome(409, refused, "");
    return Answer(409, refused, receiver_);
  }
  struct Entered {
    ~Entered() { endpoints.Leave(endpoint); }
    Endpoints& endpoints;
    const Endpoint& endpoint;
  };
  const Entered entered{*this, *endpoint};
  return HandleKnown(*endpoint, body);
}

bool Endpoints::Enter(const Endpoint& endpoint) {
  const std::lock_guard lock(mutex_);
  unsigned& count = waiting_[&endpoint];
  if (count >= limits::kHttpLongRequestsMax) return false;
  ++count;
  return true;
}

void Endpoints::Leave(const Endpoint& endpoint) {
  const std::lock_guard lock(mutex_);
  --waiting_[&endpoint];
}

HttpAnswer Endpoints::HandleKnown(const Endpoint& endpoint, const std::string& body) {
  const std::string path(endpoint.path);
  if (endpoint.answer == AnswerKind::kDocument) {
    return {200, "application/json", document_};
  }
  if (path == kPullPath) return Pull(endpoint, body);
  ReceiverGroup* const receiver = receiver_;
  if (receiver == nullptr) {
    const std::lock_guard lock(mutex_);
    return Answer(503, failure_.ok() ? Unavailable("the weights are being taken over") : failure_,
                  nullptr);
  }
  if (endpoint.method == "GET") return Get(path, *receiver);
  const Result<EndpointRequest> request = EndpointRequest::Parse(endpoint, body);
  if (!request.ok()) return Answer(400, request.status(), receiver);
  const Status status = Post(path, request.value(), *receiver);
  return Answer(status.ok() ? 200 : 409, status, receiver);
}

HttpAnswer Endpoints::Answer(int code, const Status& status, const ReceiverGroup* receiver) const {
  return {code, "application/json", Receipts(status, receiver)};
}

HttpAnswer Endpoints::Pull(const Endpoint& endpoint, const std::string& body) const {
  const Result<EndpointRequest> request = EndpointRequest::Parse(endpoint, body);
  if (!request.ok()) return Outcome(400, request.status(), "");
  PullOptions pull;
  pull.local_checkpoint = request->String("local_checkpoint_dir");
  pull.source = request->String("source_dir");
  if (!pull_bases_.empty()) pull.base = pull_bases_.front();
  pull.kept = pull_bases_;
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
  if (!refused.ok()) return Outcome(409, refused, "");
  const Result<PullReport> report = PullWeights(pull);
  if (!report.ok()) return Outcome(409, report.status(), "");
  return Outcome(200, Status(), Describe(report.value()));
}

HttpAnswer Endpoints::Get(const std::string& path, ReceiverGroup& receiver) {
  const std::vector<ReceiverStatus> held = receiver.status();
  if (path == "/metrics") {
    std::string text = MetricsText(identity_, held, receiver.counts());
    if (relay_ != nullptr) {
      text += RelayMetricsText(identity_, relay_->statistics(), relay_->served());
    }
    return {200, "text/plain; version=0.0.4", std::move(text)};
  }
  if (path == "/versions") return GetVersions(receiver);
  const auto behind = std::ranges::find(held, false, &ReceiverStatus::ready);
  const bool ready = behind == held.end();
  const ReceiverStatus& first = held.front();
  JsonObjectText answer;
  answer.Add("ready", ready);
  answer.Add("lineage", first.lineage);
  answer.Add("version", first.version);
  answer.Add("digest", first.digest);
  answer.Add("message", ready ? first.message : behind->message);
  std::vector<std::string> lineages;
  for (const ReceiverStatus& one : held) lineages.push_back(Held(one));
  if (held.size() > 1) answer.AddText("lineages", JsonListOfTexts(lineages));
  return {ready ? 200 : 503, "application/json", answer.Text() + "\n"};
}

HttpAnswer Endpoints::GetVersions(ReceiverGroup& receiver) {
  std::vector<std::string> all;
  JsonObjectText first;
  for (const ReceiverStatus& held : receiver.status()) {
    const auto versions = receiver.Versions(held.lineage);
    if (!versions.ok()) return Answer(409, versions.status(), &receiver);
    JsonObjectText one;
    one.Add("lineage", held.lineage);
    one.Add("version", held.version);
    one.Add("newest", versions->empty() ? held.version : versions->back());
    one.AddText("versions", JsonList(versions.value()));
    all.push_back(one.Text());
    if (all.size() == 1) first = std::move(one);
  }
  if (all.size() > 1) first.AddText("lineages", JsonListOfTexts(all));
  return {200, "application/json", first.Text() + "\n"};
}

Status Endpoints::Post(const std::string& path, const EndpointRequest& request,
                       ReceiverGroup& receiver) {
  const std::string session = request.String("session_id");
  if (path == "/get_gpu_delta_info") {
    const std::string engine = request.String("engine_id");
    if (engine.empty() || engine == identity_.engine_id) return {};
    return InvalidArgument("this is engine '" + identity_.engine_id + "', not '" + engine + "'");
  }
  const std::vector<ReceiverStatus> held = receiver.status();
  if (path == "/get_gpu_delta_status") {
    const std::string& current = held.front().session;
    if (session.empty() || session == current) return {};
    return NotFound("session '" + session + "' is not the current one, '" + current + "'");
  }
  if (path == "/apply_gpu_delta") return receiver.Apply(session, request.Choices());
  if (path == "/resume_gpu_delta") return receiver.Resume(session, request.Flag("keep_pause"));
  if (path == "/abort_gpu_delta") return receiver.Abort(session);
  if (path == "/clear_gpu_delta_state") return receiver.Clear();
  if (path == "/rebuild") return Rebuild(request, receiver);
  std::vector<std::string> lineages;
  for (const ReceiverStatus& one : held) lineages.push_back(one.lineage);
  SEGUE_ASSIGN_OR_RETURN(GroupRequest update, request.Update(lineages));
  update.session = session;
  if (path == "/update_weights_from_gpu_delta") {
    update.session = "update-" + request.TargetText();
    return receiver.Update(update, request.Choices());
  }
  if (session.empty()) return InvalidArgument("prepare needs a session_id");
  return receiver.Prepare(update);
}

Status Endpoints::Rebuild(const EndpointRequest& request, ReceiverGroup& receiver) {
  const auto targets = request.Get<std::map<std::string, std::uint64_t>>("target_versions");
  const auto target = request.Get<std::uint64_t>("target_version");
  if (targets && (target || targets->empty())) {
    return InvalidArgument("target_versions names all lineages, and goes without target_version");
  }
  return target ? receiver.Rebuild(*target)
                : receiver.Rebuild(targets.value_or(std::map<std::string, std::uint64_t>()));
}

std::string Endpoints::Receipts(const Status& status, const ReceiverGroup* receiver) const {
  std::vector<std::string> receipts;
  if (receiver != nullptr) {
    for (const ReceiverStatus& held : receiver->status()) {
      receipts.push_back(Receipt(status, held));
    }
  }
  JsonObjectText answer;
  answer.Add("success", status.ok());
  answer.Add("code", StatusCodeName(status.code()));
  answer.Add("message", status.message());
  answer.AddText("participants", JsonListOfTexts(receipts));
  return answer.Text() + "\n";
}

std::string Endpoints::Receipt(const Status& status, const ReceiverStatus& held) const {
  const UpdateReport& last = held.last;
  JsonObjectText timing;
  timing.Add("clock", "monotonic");
  timing.Add("pause_started_ns", last.pause_started_ns);
  timing.Add("reader_fence_completed_ns", last.fence_completed_ns);
  timing.Add("resumed_ns", last.resumed_ns);
  timing.Add("blocked_s", last.pause_s);
  JsonObjectText receipt;
  receipt.Add("engine_id", identity_.engine_id);
  receipt.Add("rank_id", identity_.rank_id);
  receipt.Add("hostname", process_.hostname);
  receipt.Add("pid", process_.pid);
  receipt.Add("start_ticks", process_.start_ticks);
  receipt.Add("tp_rank", identity_.tp_rank);
  receipt.Add("dp_rank", identity_.dp_rank);
  receipt.Add("pp_rank", identity_.pp_rank);
  receipt.Add("state", ReceiverStateName(held.state));
  receipt.Add("message", held.message);
  receipt.Add("session_id", held.session);
  receipt.Add("manifest_sha256", held.manifest_sha256);
  receipt.Add("stream_id", held.lineage);
  receipt.Add("version", held.version);
  receipt.Add("digest", held.digest);
  receipt.Add("base_version", held.base_version);
  receipt.Add("target_version", held.target_version);
  receipt.Add("plan_digest", held.plan_digest);
  receipt.Add("result", StatusCodeName(status.ok() ? held.failure : status.code()));
  receipt.AddText("flushed_caches", JsonList(last.flushed_caches));
  receipt.AddText("scheduler_timing", timing.Text());
  return receipt.Text();
}

}  // namespace segue
