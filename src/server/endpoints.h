// SPDX-License-Identifier: Apache-2.0
//
// Endpoints: requests in, answers out, without sockets. docs/protocol.md, section 8, is normative.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

#include "segue/receiver.h"
#include "segue/server.h"
#include "server/endpoint_table.h"

namespace segue {

struct HttpAnswer {
  int status = 200;
  std::string content_type = "application/json";
  std::string body;
};

// Thread-safe.
class Endpoints {
 public:
  explicit Endpoints(EngineIdentity identity);

  // From now on there are weights. `receiver` outlives the endpoints.
  void SetReceiver(Receiver& receiver) { receiver_ = &receiver; }
  // Why there are none.
  void SetFailure(const Status& failure);
  // Pulls of disk deltas are allowed below `roots`; `base`: the engine's checkpoint; `threads`: 0
  // for every core. Before the first request.
  void AllowPulls(std::vector<std::string> roots, std::string base, unsigned threads);

  // `method`: "GET" or "POST".
  HttpAnswer Handle(const std::string& method, const std::string& path, const std::string& body);

 private:
  struct Request;
  // Which incarnation of which process answers.
  struct Process {
    std::string hostname;
    std::int64_t pid = 0;
    std::uint64_t start_ticks = 0;
  };

  HttpAnswer Get(const std::string& path, Receiver& receiver);
  HttpAnswer Pull(const Endpoint& endpoint, const std::string& body) const;
  Status Post(const std::string& path, const Request& request, Receiver& receiver);
  std::string Receipts(const Status& status, const Receiver* receiver) const;
  HttpAnswer Answer(int code, const Status& status, const Receiver* receiver) const;
  static Process ThisProcess();

  const EngineIdentity identity_;
  const Process process_;
  std::atomic<Receiver*> receiver_{nullptr};
  std::vector<std::string> pull_roots_;
  std::string pull_base_;
  unsigned pull_threads_ = 0;
  std::mutex mutex_;
  Status failure_;
};

}  // namespace segue
