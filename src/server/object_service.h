// SPDX-License-Identifier: Apache-2.0
//
// ObjectService: the objects of a dir store as HTTP resources (docs/protocol.md, section 9). What
// must hold: nothing is visible that did not come whole, with the size and the hash that were
// announced; memory is bounded whatever a client sends or does not; a slow client is cut off.
#pragma once

#include <httplib.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <string>

#include "segue/status.h"
#include "segue/store_server.h"
#include "store/dir_store.h"

namespace segue {

// Thread-safe once attached. Outlives the HTTP server that it is attached to.
class ObjectService {
 public:
  struct Options {
    std::string write_token;  // Empty: nobody may write.
    std::string read_token;   // Empty: everybody may read.
    // Called before an object is read, e.g. to fetch it first; a failure is the answer. `via`: the
    // request's field Segue-Via.
    std::function<Status(const std::string& name, const std::string& via)> before_read;
    bool has_listing = true;
  };

  ObjectService(DirStore& store, Options options) : store_(store), options_(std::move(options)) {}
  ObjectService(const ObjectService&) = delete;
  ObjectService& operator=(const ObjectService&) = delete;

  void Attach(httplib::Server& http);
  StoreServerStatistics statistics() const;

 private:
  bool Admit(const httplib::Request& request, httplib::Response& response);
  void Answer(const httplib::Request& request, httplib::Response& response);
  Status Get(const httplib::Request& request, httplib::Response& response);
  Status GetObject(const std::string& name, const httplib::Request& request,
                   httplib::Response& response);
  Status GetListing(const std::string& folder, httplib::Response& response);
  void GetMetrics(httplib::Response& response) const;
  Status CheckPut(const httplib::Request& request, httplib::Response& response);
  Status Put(const httplib::Request& request, httplib::Response& response,
             const httplib::ContentReader& content);
  void CleanUp();

  DirStore& store_;
  const Options options_;
  std::atomic<std::int64_t> cleaned_s_{0};
  std::atomic<std::uint64_t> requests_{0};
  std::atomic<std::uint64_t> refused_{0};
  std::atomic<std::uint64_t> sent_bytes_{0};
  std::atomic<std::uint64_t> sent_payload_bytes_{0};
  std::atomic<std::uint64_t> received_bytes_{0};
};

// "bytes=FIRST-LAST", "bytes=FIRST-" or "bytes=-COUNT" of an object of `size` bytes.
struct ByteRange {
  std::uint64_t offset = 0;
  std::uint64_t size = 0;
};
enum class RangeKind {
  kWhole,      // No range, or one that this server does not know: the whole object is the answer.
  kPart,       // `range` is set.
  kBeyondEnd,  // 416.
};
RangeKind ParseRange(const std::string& text, std::uint64_t size, ByteRange& range);

}  // namespace segue
