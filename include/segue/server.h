// SPDX-License-Identifier: Apache-2.0
//
// Server: a receiver behind HTTP, with the endpoints of docs/protocol.md, section 8.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "segue/receiver_group.h"
#include "segue/status.h"

namespace segue {

// Who answers: fields of every receipt.
struct EngineIdentity {
  std::string engine_id = {};  // By default the segment's name.
  unsigned rank_id = 0;
  unsigned tp_rank = 0;
  unsigned dp_rank = 0;
  unsigned pp_rank = 0;
};

// Reading through other receivers, and passing on what was read and proven (docs/protocol.md,
// section 12).
struct RelayServeOptions {
  std::vector<std::string> from = {};  // URLs of relays, asked in this order before the store.
  std::string listen = {};             // HOST:PORT of our own relay; empty: none.
  std::string token = {};              // Of relays, ours and others; required beyond the loopback.
  std::string directory = {};          // For what is kept; by default the receiver's staging.
  std::uint64_t size_max = 0;          // Bytes that are kept; 0: 16 GiB.
};

struct ServeOptions {
  ReceiverOptions receiver = {};
  // Further lineages of the same engine, in the order in which it enters their gates after that of
  // `receiver`, whose hooks are the engine's (docs/protocol.md, section 15).
  std::vector<ReceiverOptions> further = {};
  bool same_version = false;  // As in GroupOptions.
  RelayServeOptions relay = {};
  EngineIdentity identity = {};
  std::string listen = "127.0.0.1:0";  // HOST:PORT; port 0: any free one.
  std::string token = {};              // Bearer token; required for any host but the loopback.
  // Directories below which /pull_weights may read and write (docs/protocol.md, section 14); none:
  // it is refused.
  std::vector<std::string> pull_roots = {};
  // Take newer versions as they appear, looking at this interval.
  std::optional<std::chrono::milliseconds> follow = {};
};

class Server {
 public:
  // Listens at once; the receiver takes its weights over in the background meanwhile, and requests
  // are answered as unavailable until then. `Wait` has the outcome.
  static Result<std::unique_ptr<Server>> Start(const ServeOptions& options);
  ~Server();
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  // Until the receiver serves, or could not.
  Status WaitReady();
  // Whether WaitReady() would return at once; waits for that no longer than this.
  bool IsSettled(std::chrono::milliseconds wait);
  // Ends all requests and the receiver; the segment stays. Waits for a store in a directory as long
  // as its file system does.
  void Stop();
  // Whether a call of such a store has not returned for two seconds, while no engine is held for an
  // update: a mount hangs, and so may Stop(). To end the process then is no worse than to wait.
  // Called from any thread.
  bool IsStuck() const;
  // "http://127.0.0.1:PORT".
  std::string url() const;
  // Of our own relay; empty where there is none. Once WaitReady() has returned.
  std::string relay_url() const;
  // Of the first lineage; of all.
  ReceiverStatus status() const;
  std::vector<ReceiverStatus> statuses() const;
  // Of the first lineage, what was counted since the start.
  ReceiverCounts counts() const;

 private:
  class Impl;
  explicit Server(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace segue
