// SPDX-License-Identifier: Apache-2.0
//
// StoreServer: a store in a directory, served over HTTP to publishers and receivers elsewhere
// (docs/protocol.md, section 9). Without a token nobody can write.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "segue/status.h"

namespace segue {

struct StoreServerOptions {
  std::string directory = {};
  std::string listen = "127.0.0.1:0";  // HOST:PORT; port 0: any free one.
  // Bearer token: needed for every write, and for reads from anywhere but the loopback.
  std::string token = {};
  bool public_read = false;  // Reads need no token wherever this listens.
};

struct StoreServerStatistics {
  std::uint64_t requests = 0;
  std::uint64_t refused = 0;             // Answered 400 and above.
  std::uint64_t sent_bytes = 0;          // Of objects.
  std::uint64_t sent_payload_bytes = 0;  // Of payloads among them.
  std::uint64_t received_bytes = 0;
};

class StoreServer {
 public:
  // Listens when this returns. The directory is made where there is a token.
  static Result<std::unique_ptr<StoreServer>> Start(const StoreServerOptions& options);
  ~StoreServer();
  StoreServer(const StoreServer&) = delete;
  StoreServer& operator=(const StoreServer&) = delete;

  void Stop();
  // "http://127.0.0.1:PORT": what clients open.
  std::string url() const;
  StoreServerStatistics statistics() const;

 private:
  class Impl;
  explicit StoreServer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace segue
