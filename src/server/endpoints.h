// SPDX-License-Identifier: Apache-2.0
//
// Endpoints: requests in, answers out, without sockets. docs/protocol.md, section 8, is normative.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "segue/receiver_group.h"
#include "segue/server.h"
#include "server/endpoint_table.h"

namespace segue {

class EndpointRequest;
class RelayNode;

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
  void SetReceiver(ReceiverGroup& receiver) { receiver_ = &receiver; }
  // Before SetReceiver(): its relay, which outlives the endpoints; null: it has none.
  void SetRelay(const RelayNode* relay) { relay_ = relay; }
  // Why there are none.
  void SetFailure(const Status& failure);
  // Pulls of disk deltas are allowed below `roots`; `bases`: the checkpoints of the engine's
  // lineages, none of which is changed, the first of them that of pulls; `threads`: 0 for every
  // core. Before the first request.
  void AllowPulls(std::vector<std::string> roots, std::vector<std::string> bases, unsigned threads);

  // `method`: "GET" or "POST".
  HttpAnswer Handle(const std::string& method, const std::string& path, const std::string& body);

 private:
  // Which incarnation of which process answers.
  struct Process {
    std::string hostname;
    std::int64_t pid = 0;
    std::uint64_t start_ticks = 0;
  };

  HttpAnswer HandleKnown(const Endpoint& endpoint, const std::string& body);
  // One more request that waits, unless kHttpLongRequestsMax of this endpoint do; Leave() after it.
  bool Enter(const Endpoint& endpoint);
  void Leave(const Endpoint& endpoint);
  HttpAnswer Get(const std::string& path, ReceiverGroup& receiver);
  HttpAnswer GetVersions(ReceiverGroup& receiver);
  HttpAnswer Pull(const Endpoint& endpoint, const std::string& body) const;
  Status Post(const std::string& path, const EndpointRequest& request, ReceiverGroup& receiver);
  static Status Rebuild(const EndpointRequest& request, ReceiverGroup& receiver);
  std::string Receipts(const Status& status, const ReceiverGroup* receiver) const;
  // Of one lineage.
  std::string Receipt(const Status& status, const ReceiverStatus& held) const;
  HttpAnswer Answer(int code, const Status& status, const ReceiverGroup* receiver) const;
  static Process ThisProcess();

  const EngineIdentity identity_;
  const Process process_;
  const std::string document_;  // Made at the start: later there might be no memory for it.
  std::atomic<ReceiverGroup*> receiver_{nullptr};
  const RelayNode* relay_ = nullptr;
  std::vector<std::string> pull_roots_;
  std::vector<std::string> pull_bases_;
  unsigned pull_threads_ = 0;
  std::mutex mutex_;
  Status failure_;
  std::map<const Endpoint*, unsigned> waiting_;
};

}  // namespace segue
