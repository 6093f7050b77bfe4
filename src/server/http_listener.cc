// SPDX-License-Identifier: Apache-2.0
//
// HttpListener: cpp-httplib's server, bound, run and stopped in the one way that does not race.
#include "server/http_listener.h"

#include <arpa/inet.h>
#include <openssl/crypto.h>
#include <sys/socket.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstdint>
#include <exception>
#include <new>
#include <string>
#include <system_error>

#include "base/limits.h"

namespace segue {
namespace {

std::string Shown(const std::string& host, int port) {
  const bool is_six = host.find(':') != std::string::npos;
  return (is_six ? "[" + host + "]" : host) + ":" + std::to_string(port);
}

}  // namespace

Result<ListenAddress> ListenAddress::Parse(const std::string& text) {
  const std::size_t colon = text.rfind(':');
  ListenAddress address;
  if (colon != std::string::npos && colon > 0) {
    address.host = text.substr(0, colon);
    if (address.host.starts_with('[') && address.host.ends_with(']')) {
      address.host = address.host.substr(1, address.host.size() - 2);
    }
    const char* const begin = text.data() + colon + 1;
    const char* const end = text.data() + text.size();
    const auto [stop, error] = std::from_chars(begin, end, address.port);
    const bool has_host =
        !address.host.empty() && address.host.find_first_of("[]") == std::string::npos;
    if (has_host && error == std::errc() && stop == end && address.port >= 0 &&
        address.port <= 65535) {
      return address;
    }
  }
  return InvalidArgument("cannot listen on '" + text + "': expected HOST:PORT, a port up to 65535");
}

bool ListenAddress::IsLoopback() const {
  in_addr four{};
  if (::inet_pton(AF_INET, host.c_str(), &four) == 1) return (::ntohl(four.s_addr) >> 24) == 127;
  in6_addr six{};
  if (::inet_pton(AF_INET6, host.c_str(), &six) == 1) return IN6_IS_ADDR_LOOPBACK(&six);
  return host == "localhost";
}

bool TokenMatches(const std::string& token, const std::string& header) {
  const std::string wanted = "Bearer " + token;
  return header.size() == wanted.size() &&
         CRYPTO_memcmp(header.data(), wanted.data(), wanted.size()) == 0;
}

namespace {

// What a handler let pass: out of memory, or of threads, which need it too, says 503.
void SayWhatWasThrown(httplib::Response& response, const std::exception_ptr& thrown) {
  response.status = 500;
  const char* code = "internal";
  try {
    std::rethrow_exception(thrown);
  } catch (const std::bad_alloc&) {
    response.status = 503;
    code = "resource_exhausted";
  } catch (const std::system_error&) {
    response.status = 503;
    code = "resource_exhausted";
  } catch (...) {
  }
  response.set_content(std::string("{\"success\":false,\"code\":\"") + code +
                           "\",\"message\":\"the server could not do this: no memory or no "
                           "threads are left\",\"participants\":[]}\n",
                       "application/json");
}

}  // namespace

void HttpListener::SetLimits(const ConnectionLimits& limits) {
  http_.SetLimits(limits);
  http_.set_keep_alive_max_count(limits::kHttpKeepAliveMax);
  const auto idle = std::chrono::duration_cast<std::chrono::seconds>(limits.idle);
  http_.set_keep_alive_timeout(std::max<std::int64_t>(idle.count(), 1));
  http_.set_exception_handler(
      [](const httplib::Request&, httplib::Response& response, const std::exception_ptr& thrown) {
        SayWhatWasThrown(response, thrown);
      });
  // Head and body are two writes; without this the second waits for the first's receipt.
  http_.set_tcp_nodelay(true);
  // The library's own options let two servers share one port.
  http_.set_socket_options([](int socket) {
    const int yes = 1;
    (void)::setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
  });
}

Status HttpListener::Start(const ListenAddress& address) {
  address_ = address;
  if (address.port == 0) {
    address_.port = http_.bind_to_any_port(address.host.c_str());
  } else if (!http_.bind_to_port(address.host.c_str(), address.port)) {
    address_.port = -1;
  }
  if (address_.port < 0) {
    return Unavailable("cannot listen on '" + Shown(address.host, address.port) +
                       "': the port is taken, or no interface here has this address");
  }
  http_.LetClientsQueue();
  thread_ = std::jthread([this] { http_.listen_after_bind(); });
  return {};
}

void HttpListener::Stop() {
  if (!thread_.joinable()) return;
  // Before it runs it cannot be stopped.
  while (!http_.is_running()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  http_.stop();
  http_.EndAllWaits();
  thread_.join();
}

std::string HttpListener::url() const { return "http://" + Shown(address_.host, address_.port); }

}  // namespace segue
