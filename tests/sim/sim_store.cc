// SPDX-License-Identifier: Apache-2.0
//
// SimStore: every call suspends, is traced with its outcome, and meets the faults of the seed.
#include "sim/sim_store.h"

#include <algorithm>
#include <set>
#include <utility>

#include "delta/manifest.h"
#include "sim/site.h"

namespace segue::sim {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

constexpr microseconds kCallTimeMax(400);
constexpr milliseconds kSlowCallMax(200);
constexpr milliseconds kLagMax(300);
constexpr milliseconds kLateMax(400);

Status NotThere(const std::string& name) { return NotFound("no object '" + name + "'"); }

}  // namespace

PutOutcome StoreState::Put(const std::string& name, const ByteVector& bytes,
                           const Observer& observer) {
  const bool there = objects_.contains(name);
  const bool overwrite = world_.Sabotaged(Sabotage::kOverwrite);
  if (there && !overwrite) return PutOutcome::kAlreadyThere;
  Object& object = objects_[name];
  object.bytes = std::make_shared<const ByteVector>(bytes);
  object.listed = object.readable = world_.now();
  // A mark is there to be seen with the listing that it changes.
  const bool mark = object_name::ParseGone(name.substr(name.rfind('/') + 1)).has_value();
  if (!mark && world_.Fault(world_.rates().list_lag)) object.listed += world_.UpTo(kLagMax);
  // The record of the lineage may be unlisted for a while, not out of reach: its absence means that
  // there is no lineage, and one look by name is all that a receiver can do to make sure.
  if (name != object_name::Lineage(kLineageName) && world_.Fault(world_.rates().read_lag)) {
    object.readable += world_.UpTo(kLagMax);
  }
  ghosts_.erase(name);
  observer(name, bytes);
  if (world_.Sabotaged(Sabotage::kForgetful) && name.find("/versions/") != std::string::npos &&
      objects_.size() > 12) {
    objects_.erase(name);
  }
  return PutOutcome::kCreated;
}

void StoreState::Delete(const std::string& name) {
  if (objects_.erase(name) == 0) return;
  if (world_.Fault(world_.rates().list_lag)) ghosts_[name] = world_.now() + world_.UpTo(kLagMax);
}

std::shared_ptr<const ByteVector> StoreState::Find(const std::string& name) const {
  const auto found = objects_.find(name);
  if (found == objects_.end() || found->second.readable > world_.now()) return nullptr;
  return found->second.bytes;
}

std::vector<std::string> StoreState::List(const std::string& prefix, bool folders) const {
  const std::string head = prefix.empty() ? prefix : prefix + "/";
  std::set<std::string> names;
  const auto offer = [&](const std::string& name) {
    if (name.compare(0, head.size(), head) != 0) return;
    const std::size_t slash = name.find('/', head.size());
    if ((slash != std::string::npos) == folders) {
      names.insert(name.substr(head.size(), slash - head.size()));
    }
  };
  for (const auto& [name, object] : objects_) {
    if (object.listed <= world_.now()) offer(name);
  }
  for (const auto& [name, until] : ghosts_) {
    if (until > world_.now()) offer(name);
  }
  return {names.begin(), names.end()};
}

void StoreState::Settle() {
  for (auto& [name, object] : objects_) object.listed = object.readable = world_.now();
  ghosts_.clear();
}

class SimStore::Writer final : public StoreWriter {
 public:
  explicit Writer(SimStore& store) : store_(store) {}
  Status Append(ByteSpan bytes) override {
    if (store_.world_.Fault(store_.world_.rates().disk_full / 8)) {
      return ResourceExhausted("no space left in the store");
    }
    AppendBytes(bytes_, bytes);
    return {};
  }
  Result<PutOutcome> Commit(const std::string& name) override { return store_.Put(name, bytes_); }

 private:
  SimStore& store_;
  ByteVector bytes_;
};

// The way there; where it ends, nothing has happened.
Status SimStore::Arrive(const std::string& what) {
  world_.Point(what.c_str());
  Duration time = world_.UpTo(kCallTimeMax);
  if (world_.Fault(world_.rates().slow)) time += world_.UpTo(kSlowCallMax);
  world_.Sleep(time);
  const bool healed = world_.faults_on() || !world_.Sabotaged(Sabotage::kNeverHeals);
  if (healed && !world_.Fault(world_.rates().refused)) return {};
  world_.Note(what + ": refused");
  return Unavailable("the store does not answer");
}

// The way back: the caller may die before it hears, or hear something else.
template <typename T>
Result<T> SimStore::Told(const std::string& what, Result<T> result) {
  world_.Point(what.c_str());
  if (world_.Fault(world_.rates().reply_lost)) {
    world_.Note(what + ": reply lost");
    return Unavailable("the store's answer was lost");
  }
  return result;
}

Status SimStore::Change(const std::string& what, const std::function<void()>& effect) {
  SEGUE_RETURN_IF_ERROR(Arrive(what));
  if (world_.MustDie()) {
    if (world_.Chance(0.5)) world_.At(world_.now() + world_.UpTo(kLateMax), effect);
    world_.Die(what.c_str());
  }
  if (world_.Fault(world_.rates().late)) {
    world_.Note(what + ": late");
    world_.At(world_.now() + world_.UpTo(kLateMax), effect);
    world_.Sleep(world_.UpTo(kLateMax / 2));
    return Unavailable("the store did not answer in time");
  }
  effect();
  return {};
}

Result<std::unique_ptr<StoreWriter>> SimStore::StartWrite() {
  return std::unique_ptr<StoreWriter>(std::make_unique<Writer>(*this));
}

Result<PutOutcome> SimStore::Put(const std::string& name, const ByteVector& bytes) {
  const std::string what = "put " + name;
  SEGUE_RETURN_IF_ERROR(CheckObjectName(name));
  if (world_.Fault(world_.rates().disk_full)) {
    world_.Note(what + ": disk full");
    return ResourceExhausted("no space left in the store");
  }
  // Shared, because the effect may outlive the caller.
  const auto outcome = std::make_shared<PutOutcome>(PutOutcome::kAlreadyThere);
  const auto copy = std::make_shared<const ByteVector>(bytes);
  SEGUE_RETURN_IF_ERROR(Change(
      what, [&world = world_, &state = state_, name, copy, outcome, what, observer = observers_()] {
        *outcome = state.Put(name, *copy, observer);
        world.Note(what + (*outcome == PutOutcome::kCreated ? ": created" : ": already there"));
      }));
  return Told(what, Result<PutOutcome>(*outcome));
}

Status SimStore::Delete(const std::string& name) {
  const std::string what = "delete " + name;
  SEGUE_RETURN_IF_ERROR(Change(what, [&world = world_, &state = state_, name, what] {
    state.Delete(name);
    world.Note(what);
  }));
  return Told(what, Result<bool>(true)).status();
}

Result<std::shared_ptr<const ByteVector>> SimStore::Read(const std::string& what,
                                                         const std::string& name) {
  SEGUE_RETURN_IF_ERROR(Arrive(what));
  auto bytes = state_.Find(name);
  world_.Note(what + (bytes ? ": " + std::to_string(bytes->size()) + " bytes" : ": not found"));
  if (!bytes) return Told(what, Result<std::shared_ptr<const ByteVector>>(NotThere(name)));
  return Told(what, Result<std::shared_ptr<const ByteVector>>(std::move(bytes)));
}

void SimStore::Damage(ByteVector& bytes) {
  if (bytes.empty()) return;
  if (world_.Fault(world_.rates().bit_flip)) {
    const std::uint64_t bit = world_.Below(bytes.size() * 8);
    bytes[bit / 8] ^= static_cast<std::byte>(1u << bit % 8);
    world_.Note("  bit " + std::to_string(bit) + " flipped");
  }
  if (world_.Fault(world_.rates().truncated)) {
    bytes.resize(world_.Below(bytes.size()));
    world_.Note("  truncated to " + std::to_string(bytes.size()));
  }
}

Result<ByteVector> SimStore::Get(const std::string& name, std::uint64_t size_max) {
  SEGUE_ASSIGN_OR_RETURN(const auto object, Read("get " + name, name));
  if (object->size() > size_max) return ResourceExhausted("object '" + name + "' is too large");
  ByteVector bytes = *object;
  Damage(bytes);
  return bytes;
}

Result<ByteVector> SimStore::GetRange(const std::string& name, std::uint64_t offset,
                                      std::uint64_t size) {
  SEGUE_ASSIGN_OR_RETURN(const auto object, Read("get-range " + name, name));
  if (offset + size > object->size()) return Corruption("object '" + name + "' ends before");
  const auto begin = object->begin() + static_cast<std::ptrdiff_t>(offset);
  ByteVector bytes(begin, begin + static_cast<std::ptrdiff_t>(size));
  Damage(bytes);
  return bytes;
}

Result<std::uint64_t> SimStore::Size(const std::string& name) {
  SEGUE_ASSIGN_OR_RETURN(const auto object, Read("size " + name, name));
  return object->size();
}

Result<std::vector<std::string>> SimStore::ListAny(const std::string& prefix, bool folders) {
  const std::string what = "list " + prefix;
  SEGUE_RETURN_IF_ERROR(Arrive(what));
  std::vector<std::string> names = state_.List(prefix, folders);
  world_.Note(what + ": " + std::to_string(names.size()));
  return Told(what, Result<std::vector<std::string>>(std::move(names)));
}

Result<std::vector<std::string>> SimStore::List(const std::string& prefix) {
  return ListAny(prefix, /*folders=*/false);
}

Result<std::vector<std::string>> SimStore::ListFolders(const std::string& prefix) {
  return ListAny(prefix, /*folders=*/true);
}

Status SimStore::RemoveStaleTemporaries(std::chrono::seconds) { return {}; }

}  // namespace segue::sim
