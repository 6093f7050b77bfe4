// SPDX-License-Identifier: Apache-2.0
//
// HttpListener: cpp-httplib's server, bound, run and stopped in the one way that does not race.
#include "server/http_listener.h"

#include <openssl/crypto.h>

#include <charconv>
#include <chrono>

#include "base/limits.h"

namespace segue {

Result<ListenAddress> ListenAddress::Parse(const std::string& text) {
  const std::size_t colon = text.rfind(':');
  ListenAddress address;
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

bool ListenAddress::IsLoopback() const {
  return host == "localhost" || host == "::1" || host.starts_with("127.");
}

bool TokenMatches(const std::string& token, const std::string& header) {
  const std::string wanted = "Bearer " + token;
  return header.size() == wanted.size() &&
         CRYPTO_memcmp(header.data(), wanted.data(), wanted.size()) == 0;
}

void HttpListener::SetLimits(unsigned connections, int keep_alive_seconds) {
  http_.set_read_timeout(limits::kHttpReadSecondsMax);
  http_.set_write_timeout(limits::kHttpReadSecondsMax);
  http_.set_keep_alive_max_count(limits::kHttpKeepAliveMax);
  http_.set_keep_alive_timeout(keep_alive_seconds);
  // Head and body are two writes; without this the second waits for the first's receipt.
  http_.set_tcp_nodelay(true);
  http_.new_task_queue = [connections] { return new httplib::ThreadPool(connections); };
}

Status HttpListener::Start(const ListenAddress& address) {
  address_ = address;
  if (address.port == 0) {
    address_.port = http_.bind_to_any_port(address.host.c_str());
  } else if (!http_.bind_to_port(address.host.c_str(), address.port)) {
    address_.port = -1;
  }
  if (address_.port < 0) {
    return Unavailable("cannot listen on '" + address.host + ":" + std::to_string(address.port) +
                       "'");
  }
  thread_ = std::jthread([this] { http_.listen_after_bind(); });
  return {};
}

void HttpListener::Stop() {
  if (!thread_.joinable()) return;
  // Before it runs it cannot be stopped.
  while (!http_.is_running()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  http_.stop();
  thread_.join();
}

std::string HttpListener::url() const {
  return "http://" + address_.host + ":" + std::to_string(address_.port);
}

}  // namespace segue
