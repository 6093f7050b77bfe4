// SPDX-License-Identifier: Apache-2.0
//
// RelayNode: what makes a receiver part of a tree of relays: it reads its store through others, and
// may serve what it has read and proven. A receiver takes it as its environment: every store that
// it opens under the origin's URL is the node's.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "live/live_environment.h"
#include "segue/server.h"
#include "segue/store_server.h"
#include "server/http_listener.h"
#include "server/object_service.h"
#include "store/relay_store.h"

namespace segue {

class RelayNode {
 public:
  struct Options {
    std::string store;   // The origin's URL.
    std::string listen;  // HOST:PORT to serve at; empty: nobody is served.
    // Needed by readers wherever `listen` is not the loopback; sent to relays.
    std::string token;
    unsigned connections = 0;  // Served at once; 0: as many as a store server does.
    RelayStore::Options relay;
  };

  static Result<std::unique_ptr<RelayNode>> Start(const Options& options,
                                                  LiveEnvironment& environment);
  ~RelayNode();
  RelayNode(const RelayNode&) = delete;
  RelayNode& operator=(const RelayNode&) = delete;

  // The node outlives every receiver that uses it.
  LiveEnvironment& environment() { return *environment_; }
  // Of the relay's server; empty when nobody is served.
  std::string url() const;
  RelayStatistics statistics() const { return store_->statistics(); }
  StoreServerStatistics served() const;
  void Stop();

 private:
  RelayNode(const Options& options, std::shared_ptr<RelayStore> store,
            LiveEnvironment& environment);
  Status Serve(const ListenAddress& address);

  const Options options_;
  const std::shared_ptr<RelayStore> store_;
  const std::unique_ptr<LiveEnvironment> environment_;
  std::unique_ptr<ObjectService> service_;
  std::unique_ptr<HttpListener> listener_;
};

}  // namespace segue
