// SPDX-License-Identifier: Apache-2.0
//
// RelayStore: a store read through relays, which keeps what it has read and may pass it on, so that
// the origin's egress does not grow with the fleet. What must hold: an object is kept and passed on
// only if its bytes have the hash that its name carries, so that a relay that lies costs time,
// never a wrong byte; what has no hash in its name (manifests, layouts, listings) comes from the
// origin alone, so that nobody sees a version later than the origin shows it, or one that it never
// had.
//
// docs/protocol.md, section 12. Thread-safe.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/limits.h"
#include "base/scratch_directory.h"
#include "store/dir_store.h"
#include "store/http_client.h"
#include "store/store.h"

namespace segue {

struct RelayStatistics {
  std::uint64_t relay_bytes = 0;   // Read from relays and proven.
  std::uint64_t origin_bytes = 0;  // Of the same objects, from the origin.
  std::uint64_t lies = 0;          // Objects of relays whose hash was another.
  std::uint64_t kept_bytes = 0;
  std::uint64_t kept_count = 0;
};

// How long a relay may take: until it has told an object's size; then for the bytes, as long as
// `rate` asks for and `grace` more.
struct RelayPace {
  std::chrono::duration<double> answer{limits::kRelayAnswerSecondsMax};
  std::chrono::duration<double> grace{limits::kRelayGraceSecondsMax};
  double rate = limits::kRelayRateMin;  // Bytes a second.
};

class RelayStore : public Store {
 public:
  struct Options {
    std::vector<std::string> sources;  // URLs of relays, asked in this order before the origin.
    std::string token;                 // For them.
    // A folder of its own is made below, and goes away with the store; empty: the system's for
    // temporary files.
    std::string directory;
    std::uint64_t size_max = limits::kRelaySizeDefault;
    std::uint64_t count_max = limits::kRelayCountDefault;
    HttpClient::Options client;
    // How long a request of another relay waits for an object that is on its way.
    std::chrono::milliseconds wait{limits::kRelayWaitSecondsMax * 1000};
    RelayPace pace;
  };

  static Result<std::unique_ptr<RelayStore>> Make(std::unique_ptr<Store> origin,
                                                  const Options& options);

  // Sees to it that `name` is in kept(). `via`: the relays that the request has come through,
  // joined by ','; empty: none. NotFound for names without a hash, and for a request that comes
  // round in a circle or has come too far. Unavailable while it is on its way.
  Status Fetch(const std::string& name, const std::string& via);
  // What is kept: whole and proven objects.
  DirStore& kept() { return *kept_; }
  RelayStatistics statistics() const;

  Result<ByteVector> Get(const std::string& name, std::uint64_t size_max) override;
  Result<ByteVector> GetRange(const std::string& name, std::uint64_t offset,
                              std::uint64_t size) override;
  Result<std::uint64_t> Size(const std::string& name) override { return origin_->Size(name); }
  Result<std::vector<std::string>> List(const std::string& prefix) override {
    return origin_->List(prefix);
  }
  Result<std::vector<std::string>> ListFolders(const std::string& prefix) override {
    return origin_->ListFolders(prefix);
  }
  // Writing goes to the origin.
  Result<std::unique_ptr<StoreWriter>> StartWrite() override { return origin_->StartWrite(); }
  Status Delete(const std::string& name) override { return origin_->Delete(name); }
  Status RemoveStaleTemporaries(std::chrono::seconds age) override {
    return origin_->RemoveStaleTemporaries(age);
  }
  const std::string& url() const override { return origin_->url(); }

 private:
  using Clock = std::chrono::steady_clock;
  class Pace;
  struct Source {
    std::string url;
    Clock::time_point rests_until;  // It failed or lied lately.
  };
  // One fetch, which others of the same object wait for.
  struct Flight {
    bool landed = false;
    bool given_up = false;  // By its caller (segue/give_up.h), whatever the outcome.
    Status outcome;
  };

  RelayStore(std::unique_ptr<Store> origin, const Options& options, ScratchDirectory directory,
             std::unique_ptr<DirStore> kept);

  Status AwaitLanding(std::unique_lock<std::mutex>& lock, const Flight& flight,
                      const std::string& name, const std::string& via);
  Status Lead(const std::string& name, const std::string& via);
  Status FetchFromRelay(std::size_t source, const std::string& name, const std::string& via);
  // Copies an object into kept() if it has the hash of its name. `pace`: of a relay; null: it is
  // the origin, which may be as slow as any store.
  Status Keep(Store& store, const std::string& name, std::uint64_t& bytes, Pace* pace);
  bool Rests(std::size_t source);
  void Rest(std::size_t source, std::chrono::seconds time);
  bool IsKept(const std::string& name);
  void Remember(const std::string& name, std::uint64_t size);

  const std::unique_ptr<Store> origin_;
  const Options options_;
  const std::string id_;
  const ScratchDirectory directory_;
  const std::unique_ptr<DirStore> kept_;

  mutable std::mutex mutex_;
  std::condition_variable landed_;
  std::vector<Source> sources_;
  std::map<std::string, std::shared_ptr<Flight>> flights_;
  // Kept objects, the one that was asked for longest ago first.
  std::list<std::pair<std::string, std::uint64_t>> order_;
  std::map<std::string, std::list<std::pair<std::string, std::uint64_t>>::iterator> places_;
  RelayStatistics statistics_;
};

// The hash that an object's name carries, as far as it does: 64 digits for a plan, 16 for a
// payload; nothing for other objects.
std::optional<std::string> HashOfName(std::string_view name);

}  // namespace segue
