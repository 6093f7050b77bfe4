// SPDX-License-Identifier: Apache-2.0
//
// What all our HTTP servers share: the address, who may be reached without a token, the comparison
// of tokens, and the thread that listens.
#pragma once

#include <httplib.h>

#include <string>
#include <thread>

#include "segue/status.h"
#include "server/connections.h"

namespace segue {

struct ListenAddress {
  std::string host;
  int port = 0;

  // "HOST:PORT" or "[HOST]:PORT". InvalidArgument otherwise.
  static Result<ListenAddress> Parse(const std::string& text);
  // Nobody on another machine can reach it.
  bool IsLoopback() const;
};

// Whether `header` is "Bearer " and the token; takes the same time wherever they differ.
bool TokenMatches(const std::string& token, const std::string& header);

// Sets up `http` before Start(); routes are the caller's.
class HttpListener {
 public:
  HttpListener() = default;
  ~HttpListener() { Stop(); }
  HttpListener(const HttpListener&) = delete;
  HttpListener& operator=(const HttpListener&) = delete;

  httplib::Server& http() { return http_; }
  void SetLimits(const ConnectionLimits& limits);
  // Unavailable when the address cannot be had.
  Status Start(const ListenAddress& address);
  // Once what is being answered is; waits for nobody who is silent.
  void Stop();
  // "http://HOST:PORT".
  std::string url() const;

 private:
  ConnectionServer http_;
  ListenAddress address_;
  std::jthread thread_;
};

}  // namespace segue
