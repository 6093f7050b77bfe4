// SPDX-License-Identifier: Apache-2.0
//
// Store waits: how long the calls of a store that run now have run. A directory may lie on a mount
// that hangs, and no call of a file system can be ended from outside: whoever waits for one for
// good should be told from who is only slow.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "store/forwarding_store.h"

namespace segue {

class StoreWaits {
 public:
  using Clock = std::chrono::steady_clock;

  // One call, while it lives.
  class Call {
   public:
    explicit Call(StoreWaits& waits) : waits_(waits) {
      const std::lock_guard lock(waits_.mutex_);
      place_ = waits_.begun_.insert(Clock::now());
    }
    ~Call() {
      const std::lock_guard lock(waits_.mutex_);
      waits_.begun_.erase(place_);
    }
    Call(const Call&) = delete;
    Call& operator=(const Call&) = delete;

   private:
    StoreWaits& waits_;
    std::multiset<Clock::time_point>::iterator place_;
  };

  // Of the call that has run for longest; nothing where none runs.
  Clock::duration Longest() const {
    const std::lock_guard lock(mutex_);
    return begun_.empty() ? Clock::duration::zero() : Clock::now() - *begun_.begin();
  }

 private:
  mutable std::mutex mutex_;
  std::multiset<Clock::time_point> begun_;
};

// A store whose reads are counted there.
class WaitedStore final : public ForwardingStore {
 public:
  WaitedStore(std::shared_ptr<Store> inner, std::shared_ptr<StoreWaits> waits)
      : ForwardingStore(std::move(inner)), waits_(std::move(waits)) {}

  Result<ByteVector> Get(const std::string& name, std::uint64_t size_max) override {
    const StoreWaits::Call call(*waits_);
    return ForwardingStore::Get(name, size_max);
  }
  Result<ByteVector> GetRange(const std::string& name, std::uint64_t offset,
                              std::uint64_t size) override {
    const StoreWaits::Call call(*waits_);
    return ForwardingStore::GetRange(name, offset, size);
  }
  Result<std::uint64_t> Size(const std::string& name) override {
    const StoreWaits::Call call(*waits_);
    return ForwardingStore::Size(name);
  }
  Result<std::vector<std::string>> List(const std::string& prefix) override {
    const StoreWaits::Call call(*waits_);
    return ForwardingStore::List(prefix);
  }
  Result<std::vector<std::string>> ListFolders(const std::string& prefix) override {
    const StoreWaits::Call call(*waits_);
    return ForwardingStore::ListFolders(prefix);
  }

 private:
  const std::shared_ptr<StoreWaits> waits_;
};

}  // namespace segue
