// SPDX-License-Identifier: Apache-2.0
//
// Server: cpp-httplib in front of Endpoints. Limits and the token are checked here, before a body
// is looked at.
#include "segue/server.h"

#include <atomic>
#include <charconv>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>

#include "base/check.h"
#include "base/limits.h"
#include "base/out_of_memory.h"
#include "interop/path_roots.h"
#include "live/forwarding_environment.h"
#include "live/live_environment.h"
#include "segue/token.h"
#include "server/endpoint_table.h"
#include "server/endpoints.h"
#include "server/http_listener.h"
#include "server/relay_node.h"
#include "server/store_waits.h"

namespace segue {
namespace {

// A call of a store that has run for so long may never return.
constexpr std::chrono::seconds kStuckAfter{2};

// The machine, but that no server of a store is waited for once this one is to stop, and that it is
// known how long a store's calls take.
class ServingEnvironment final : public ForwardingLiveEnvironment {
 public:
  ServingEnvironment() : ForwardingLiveEnvironment(SystemLiveEnvironment()) {}

  void GiveUpStores() { *given_up_ = true; }
  std::function<bool()> given_up() const {
    return [given_up = given_up_] { return given_up->load(); };
  }
  Result<std::unique_ptr<Store>> OpenStore(const std::string& url, bool create) override {
    const StoreWaits::Call call(*waits_);
    SEGUE_ASSIGN_OR_RETURN(std::shared_ptr<Store> store, segue::OpenStore(url, create, given_up()));
    return std::unique_ptr<Store>(std::make_unique<WaitedStore>(std::move(store), waits_));
  }
  bool IsStuck() const { return waits_->Longest() >= kStuckAfter; }

 private:
  const std::shared_ptr<StoreWaits> waits_ = std::make_shared<StoreWaits>();
  const std::shared_ptr<std::atomic<bool>> given_up_ = std::make_shared<std::atomic<bool>>(false);
};

}  // namespace

class Server::Impl {
 public:
  explicit Impl(const ServeOptions& options)
      : options_(WithDefaults(options)), endpoints_(options_.identity) {}

  ~Impl() { Stop(); }

  Status Listen() {
    SEGUE_ASSIGN_OR_RETURN(const ListenAddress address, ListenAddress::Parse(options_.listen));
    if (!options_.token.empty()) SEGUE_RETURN_IF_ERROR(CheckToken(options_.token));
    if (!options_.relay.token.empty()) SEGUE_RETURN_IF_ERROR(CheckToken(options_.relay.token));
    if (!address.IsLoopback() && options_.token.empty()) {
      return InvalidArgument("listening on '" + address.host +
                             "', which others can reach, needs a token");
    }
    SEGUE_RETURN_IF_ERROR(PathRoots::Make(options_.pull_roots).status());
    std::vector<std::string> bases = {options_.receiver.checkpoint};
    for (const ReceiverOptions& lineage : options_.further) bases.push_back(lineage.checkpoint);
    endpoints_.AllowPulls(options_.pull_roots, std::move(bases), options_.receiver.threads);
    Configure();
    SEGUE_RETURN_IF_ERROR(listener_.Start(address));
    receiver_thread_ = std::jthread([this] { TakeOver(); });
    return {};
  }

  Status WaitReady() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return settled_; });
    return outcome_;
  }

  bool IsSettled(std::chrono::milliseconds wait) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, wait, [this] { return settled_; });
  }

  void Stop() {
    // Requests that are being answered may wait for the engine or the store, as may the start.
    environment_.GiveUpStores();
    if (options_.receiver.hooks.stop) options_.receiver.hooks.stop();
    listener_.Stop();
    if (receiver_thread_.joinable()) receiver_thread_.join();
    if (relay_) relay_->Stop();
    if (receiver_) (void)receiver_->Release();
    std::unique_ptr<ReceiverGroup> gone;
    {
      const std::lock_guard lock(mutex_);
      gone = std::move(receiver_);
    }
  }

  // A rebuild may be what is stuck: whoever comes next begins it anew.
  bool IsStuck() {
    if (!environment_.IsStuck()) return false;
    const std::lock_guard lock(mutex_);
    if (!settled_ || !receiver_) return true;
    const ReceiverStatus status = receiver_->status().front();
    switch (status.state) {
      case ReceiverState::kApplying: return status.session == "rebuild";
      case ReceiverState::kApplied:
      case ReceiverState::kResuming: return false;
      default: return true;
    }
  }

  std::string url() const { return listener_.url(); }
  std::string relay_url() const { return relay_ ? relay_->url() : ""; }
  ReceiverCounts counts() const {
    return receiver_ ? receiver_->counts().front() : ReceiverCounts();
  }
  std::vector<ReceiverStatus> statuses() const {
    return receiver_ ? receiver_->status() : std::vector<ReceiverStatus>(1);
  }

 private:
  static ServeOptions WithDefaults(ServeOptions options) {
    if (options.identity.engine_id.empty()) options.identity.engine_id = options.receiver.name;
    return options;
  }

  void Configure() {
    listener_.SetLimits({.connections = limits::kHttpConnectionsMax,
                         .idle = std::chrono::seconds(limits::kHttpKeepAliveSecondsMax),
                         .request = std::chrono::seconds(limits::kHttpReadSecondsMax),
                         .body_too = true,
                         .silence = std::chrono::seconds(limits::kHttpReadSecondsMax)});
    httplib::Server& http = listener_.http();
    http.set_payload_max_length(limits::kHttpBodySizeMax);
    const auto answer = [this](const httplib::Request& request, const std::string& body,
                               httplib::Response& response) {
      const HttpAnswer made = endpoints_.Handle(request.method, request.path, body);
      response.status = made.status;
      response.set_content(made.body, made.content_type.c_str());
    };
    http.set_pre_routing_handler(
        [this, answer](const httplib::Request& request, httplib::Response& response) {
          using Outcome = httplib::Server::HandlerResponse;
          if (!options_.token.empty() &&
              !TokenMatches(options_.token, request.get_header_value("Authorization"))) {
            Refuse(401, "a bearer token is needed, or this one is wrong", response);
            ConnectionServer::EndAfterAnswer();
            return Outcome::Handled;
          }
          // The library would read all of it first.
          if (IsTooLarge(request.get_header_value("Content-Length"))) {
            Refuse(413, kTooLarge, response);
            ConnectionServer::EndAfterAnswer();
            return Outcome::Handled;
          }
          // The library would wait for a body that was never announced.
          const bool has_body =
              request.has_header("Content-Length") || request.has_header("Transfer-Encoding");
          if (request.method != "POST" || has_body) return Outcome::Unhandled;
          answer(request, "", response);
          return Outcome::Handled;
        });
    http.Get(".*", [answer](const httplib::Request& request, httplib::Response& response) {
      answer(request, "", response);
    });
    http.Post(".*", [answer](const httplib::Request& request, httplib::Response& response,
                             const httplib::ContentReader& content) {
      std::string body;
      if (ReadBody(request, response, content, body)) answer(request, body, response);
    });
    http.set_error_handler([](const httplib::Request&, httplib::Response& response) {
      if (!response.body.empty()) return;
      Refuse(response.status, response.status == 413 ? kTooLarge : "the request was not understood",
             response);
    });
  }

  static constexpr const char* kTooLarge = "the body is larger than 1 MiB";

  static bool IsTooLarge(const std::string& length) {
    std::uint64_t size = 0;
    const auto [end, error] = std::from_chars(length.data(), length.data() + length.size(), size);
    return error == std::errc::result_out_of_range || size > limits::kHttpBodySizeMax;
  }

  // JSON whatever the Content-Type says: the library has limits and rules of its own for forms,
  // which is what curl calls a body that it was given with -d.
  static bool ReadBody(const httplib::Request& request, httplib::Response& response,
                       const httplib::ContentReader& content, std::string& body) {
    if (request.is_multipart_form_data()) {
      Refuse(400, "the body is not a JSON object", response);
      return false;
    }
    bool fits = true;
    const bool whole = content([&](const char* data, std::size_t size) {
      fits = fits && body.size() + size <= limits::kHttpBodySizeMax;
      if (fits) body.append(data, size);
      return fits;
    });
    if (!fits) Refuse(413, kTooLarge, response);
    return whole && fits;
  }

  static void Refuse(int status, const char* message, httplib::Response& response) {
    response.status = status;
    response.set_content(
        std::string("{\"success\":false,\"code\":\"invalid_argument\",\"message\":\"") + message +
            "\",\"participants\":[]}\n",
        "application/json");
  }

  Result<std::unique_ptr<ReceiverGroup>> OpenReceiver() {
    const RelayServeOptions& relay = options_.relay;
    GroupOptions group;
    group.lineages = options_.further;
    group.lineages.insert(group.lineages.begin(), options_.receiver);
    group.hooks = std::exchange(group.lineages.front().hooks, {});
    group.same_version = options_.same_version;
    if (relay.from.empty() && relay.listen.empty()) {
      return ReceiverInternals::Open(group, environment_);
    }
    RelayNode::Options node;
    node.store = options_.receiver.store;
    node.listen = relay.listen;
    node.token = relay.token;
    node.relay.sources = relay.from;
    node.relay.directory = relay.directory.empty() ? options_.receiver.staging : relay.directory;
    if (relay.size_max != 0) node.relay.size_max = relay.size_max;
    node.relay.client.given_up = environment_.given_up();
    SEGUE_ASSIGN_OR_RETURN(relay_, RelayNode::Start(node, environment_));
    return ReceiverInternals::Open(group, relay_->environment());
  }

  Status Begin() {
    SEGUE_ASSIGN_OR_RETURN(receiver_, OpenReceiver());
    if (options_.follow) SEGUE_RETURN_IF_ERROR(receiver_->Follow(*options_.follow));
    endpoints_.SetRelay(relay_.get());
    endpoints_.SetReceiver(*receiver_);
    return {};
  }

  // Begin(), where no exception may pass.
  Status BeginOrSayWhyNot() {
    try {
      return CatchOutOfMemory([this] { return Begin(); });
    } catch (const std::system_error&) {  // A thread's stack is memory too.
      return no_thread_;
    }
  }

  void TakeOver() {
    const Status outcome = BeginOrSayWhyNot();
    if (!outcome.ok()) endpoints_.SetFailure(outcome);
    const std::lock_guard lock(mutex_);
    settled_ = true;
    outcome_ = outcome;
    changed_.notify_all();
  }

  const ServeOptions options_;
  ServingEnvironment environment_;
  Endpoints endpoints_;
  HttpListener listener_;
  std::unique_ptr<RelayNode> relay_;  // The receiver's environment: outlives it.
  std::unique_ptr<ReceiverGroup> receiver_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool settled_ = false;
  Status outcome_;
  const Status no_thread_ = ResourceExhausted("threads: the system gives no more of them");
  std::jthread receiver_thread_;
};

Result<std::unique_ptr<Server>> Server::Start(const ServeOptions& options) {
  auto impl = std::make_unique<Impl>(options);
  SEGUE_RETURN_IF_ERROR(impl->Listen());
  return std::unique_ptr<Server>(new Server(std::move(impl)));
}

Server::Server(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Server::~Server() = default;

Status Server::WaitReady() { return impl_->WaitReady(); }
bool Server::IsSettled(std::chrono::milliseconds wait) { return impl_->IsSettled(wait); }
void Server::Stop() { impl_->Stop(); }
bool Server::IsStuck() const { return impl_->IsStuck(); }
std::string Server::url() const { return impl_->url(); }
std::string Server::relay_url() const { return impl_->relay_url(); }
ReceiverCounts Server::counts() const { return impl_->counts(); }
ReceiverStatus Server::status() const { return impl_->statuses().front(); }
std::vector<ReceiverStatus> Server::statuses() const { return impl_->statuses(); }

}  // namespace segue
