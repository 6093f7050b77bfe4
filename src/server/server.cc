// SPDX-License-Identifier: Apache-2.0
//
// Server: cpp-httplib in front of Endpoints. Limits and the token are checked here, before a body
// is looked at.
#include "segue/server.h"

#include <httplib.h>
#include <openssl/crypto.h>

#include <charconv>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <utility>

#include "base/limits.h"
#include "server/endpoint_table.h"
#include "server/endpoints.h"

namespace segue {
namespace {

struct Address {
  std::string host;
  int port = 0;
};

Result<Address> ParseAddress(const std::string& text) {
  const std::size_t colon = text.rfind(':');
  Address address;
  if (colon != std::string::npos && colon > 0) {
    address.host = text.substr(0, colon);
    const char* const begin = text.data() + colon + 1;
    const char* const end = text.data() + text.size();
    const auto [stop, error] = std::from_chars(begin, end, address.port);
    if (error == std::errc() && stop == end && address.port >= 0 && address.port <= 65535) {
      return address;
    }
  }
  return InvalidArgument("cannot listen on '" + text + "': expected HOST:PORT, a port up to 65535");
}

bool IsLoopback(const std::string& host) {
  return host == "localhost" || host == "::1" || host.starts_with("127.");
}

bool TokenMatches(const std::string& expected, const std::string& header) {
  const std::string wanted = "Bearer " + expected;
  return header.size() == wanted.size() &&
         CRYPTO_memcmp(header.data(), wanted.data(), wanted.size()) == 0;
}

}  // namespace

class Server::Impl {
 public:
  explicit Impl(const ServeOptions& options)
      : options_(WithDefaults(options)), endpoints_(options_.identity) {}

  ~Impl() { Stop(); }

  Status Listen() {
    SEGUE_ASSIGN_OR_RETURN(const Address address, ParseAddress(options_.listen));
    if (!IsLoopback(address.host) && options_.token.empty()) {
      return InvalidArgument("listening on '" + address.host +
                             "', which others can reach, needs a token");
    }
    Configure();
    port_ = address.port == 0 ? http_.bind_to_any_port(address.host.c_str())
            : http_.bind_to_port(address.host.c_str(), address.port) ? address.port
                                                                     : -1;
    if (port_ < 0) return Unavailable("cannot listen on '" + options_.listen + "'");
    http_thread_ = std::jthread([this] { http_.listen_after_bind(); });
    receiver_thread_ = std::jthread([this] { TakeOver(); });
    return {};
  }

  Status WaitReady() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return settled_; });
    return outcome_;
  }

  void Stop() {
    if (http_thread_.joinable()) {
      // Before it runs it cannot be stopped.
      while (!http_.is_running()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      http_.stop();
      http_thread_.join();
    }
    if (receiver_thread_.joinable()) receiver_thread_.join();
    receiver_.reset();
  }

  std::string url() const {
    const std::string& listen = options_.listen;
    return "http://" + listen.substr(0, listen.rfind(':') + 1) + std::to_string(port_);
  }
  ReceiverStatus status() const { return receiver_ ? receiver_->status() : ReceiverStatus(); }

 private:
  static ServeOptions WithDefaults(ServeOptions options) {
    if (options.identity.engine_id.empty()) options.identity.engine_id = options.receiver.name;
    return options;
  }

  void Configure() {
    http_.set_payload_max_length(limits::kHttpBodySizeMax);
    http_.set_read_timeout(limits::kHttpReadSecondsMax);
    http_.set_write_timeout(limits::kHttpReadSecondsMax);
    http_.set_keep_alive_max_count(limits::kHttpKeepAliveMax);
    http_.new_task_queue = [] { return new httplib::ThreadPool(limits::kHttpConnectionsMax); };
    const auto answer = [this](const httplib::Request& request, httplib::Response& response) {
      const HttpAnswer made = endpoints_.Handle(request.method, request.path, request.body);
      response.status = made.status;
      response.set_content(made.body, made.content_type.c_str());
    };
    http_.set_pre_routing_handler(
        [this, answer](const httplib::Request& request, httplib::Response& response) {
          using Outcome = httplib::Server::HandlerResponse;
          if (!options_.token.empty() &&
              !TokenMatches(options_.token, request.get_header_value("Authorization"))) {
            Refuse(401, "a bearer token is needed, or this one is wrong", response);
            return Outcome::Handled;
          }
          // The library would wait for a body that was never announced.
          const bool has_body =
              request.has_header("Content-Length") || request.has_header("Transfer-Encoding");
          if (request.method != "POST" || has_body) return Outcome::Unhandled;
          answer(request, response);
          return Outcome::Handled;
        });
    http_.Get(".*", answer);
    http_.Post(".*", answer);
    http_.set_error_handler([](const httplib::Request&, httplib::Response& response) {
      if (!response.body.empty()) return;
      Refuse(response.status,
             response.status == 413 ? "the body is larger than 1 MiB"
                                    : "the request was not understood",
             response);
    });
  }

  static void Refuse(int status, const char* message, httplib::Response& response) {
    response.status = status;
    response.set_content(
        std::string("{\"success\":false,\"code\":\"invalid_argument\",\"message\":\"") + message +
            "\",\"participants\":[]}\n",
        "application/json");
  }

  void TakeOver() {
    Result<std::unique_ptr<Receiver>> receiver = Receiver::Open(options_.receiver);
    const Status outcome = receiver.status();
    if (outcome.ok()) {
      receiver_ = std::move(receiver).value();
      if (options_.follow) receiver_->Follow(*options_.follow);
      endpoints_.SetReceiver(*receiver_);
    } else {
      endpoints_.SetFailure(outcome);
    }
    const std::lock_guard lock(mutex_);
    settled_ = true;
    outcome_ = outcome;
    changed_.notify_all();
  }

  const ServeOptions options_;
  Endpoints endpoints_;
  httplib::Server http_;
  int port_ = -1;
  std::unique_ptr<Receiver> receiver_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool settled_ = false;
  Status outcome_;
  std::jthread http_thread_;
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
void Server::Stop() { impl_->Stop(); }
std::string Server::url() const { return impl_->url(); }
ReceiverStatus Server::status() const { return impl_->status(); }

}  // namespace segue
