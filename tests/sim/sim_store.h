// SPDX-License-Identifier: Apache-2.0
//
// SimStore: one store in the world's memory, and the network in front of it. Puts are atomic and
// put-if-absent holds, as every transport promises; all else may go wrong: calls fail before or
// after they took effect, or take effect after the caller has given up or died; reads come late,
// short or with a bit changed; new objects stay unlisted or unreadable for a while.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "sim/world.h"
#include "store/store.h"

namespace segue::sim {

// What the store holds.
class StoreState {
 public:
  explicit StoreState(World& world) : world_(world) {}

  // Called when an object of that name comes into being.
  using Observer = std::function<void(const std::string& name, ByteSpan bytes)>;
  using Observers = std::function<Observer()>;

  PutOutcome Put(const std::string& name, const ByteVector& bytes, const Observer& observer);
  void Delete(const std::string& name);
  // Null where it is not, or cannot be seen yet.
  std::shared_ptr<const ByteVector> Find(const std::string& name) const;
  // Below `prefix`: objects, or folders.
  std::vector<std::string> List(const std::string& prefix, bool folders) const;
  // Nothing lags any more.
  void Settle();
  // Whether it is there, seen or not.
  bool Has(const std::string& name) const { return objects_.contains(name); }

 private:
  struct Object {
    std::shared_ptr<const ByteVector> bytes;
    Time listed;
    Time readable;
  };

  World& world_;
  std::map<std::string, Object> objects_;
  std::map<std::string, Time> ghosts_;  // Deleted, still listed until then.
};

// One process's door to it.
class SimStore final : public Store {
 public:
  // `observers`: gives, for each put through this door, who is to see what comes of it.
  SimStore(World& world, StoreState& state, std::string url, StoreState::Observers observers)
      : world_(world), state_(state), url_(std::move(url)), observers_(std::move(observers)) {}

  Result<std::unique_ptr<StoreWriter>> StartWrite() override;
  Result<ByteVector> Get(const std::string& name, std::uint64_t size_max) override;
  Result<ByteVector> GetRange(const std::string& name, std::uint64_t offset,
                              std::uint64_t size) override;
  Result<std::uint64_t> Size(const std::string& name) override;
  Result<std::vector<std::string>> List(const std::string& prefix) override;
  Result<std::vector<std::string>> ListFolders(const std::string& prefix) override;
  Status Delete(const std::string& name) override;
  Status RemoveStaleTemporaries(std::chrono::seconds age) override;
  const std::string& url() const override { return url_; }

 private:
  class Writer;

  Status Arrive(const std::string& what);
  Result<PutOutcome> Put(const std::string& name, const ByteVector& bytes);
  Status Change(const std::string& what, const std::function<void()>& effect);
  Result<std::shared_ptr<const ByteVector>> Read(const std::string& what, const std::string& name);
  Result<std::vector<std::string>> ListAny(const std::string& prefix, bool folders);
  void Damage(ByteVector& bytes);
  template <typename T>
  Result<T> Told(const std::string& what, Result<T> result);

  World& world_;
  StoreState& state_;
  const std::string url_;
  const StoreState::Observers observers_;
};

}  // namespace segue::sim
