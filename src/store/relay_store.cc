// SPDX-License-Identifier: Apache-2.0
//
// RelayStore: one fetch an object, whoever asks; relays first, the origin last.
#include "store/relay_store.h"

#include <sys/random.h>

#include <algorithm>
#include <array>
#include <utility>

#include "base/check.h"
#include "base/hash.h"
#include "segue/give_up.h"
#include "store/http_store.h"

namespace segue {
namespace {

constexpr std::uint64_t kPieceSize = 8ull << 20;
constexpr std::size_t kIdSize = 16;
// After a failure a relay is not asked for so long; one that lied, or was too slow, for longer.
constexpr std::chrono::seconds kRestAfterFailure{10};
constexpr std::chrono::seconds kRestAfterHarm{600};
// Between two looks at whether to go on, while another fetches the object.
constexpr std::chrono::milliseconds kGivenUpLook{100};

bool IsHex(std::string_view text) {
  return text.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

std::string RandomId() {
  std::array<std::byte, kIdSize / 2> bytes{};
  SEGUE_CHECK(::getrandom(bytes.data(), bytes.size(), 0) == ssize_t{bytes.size()});
  return ToHex(bytes);
}

}  // namespace

// How long a relay may take over one object. Its retries and its drips all count: only the time and
// the bytes that have come are looked at. For one thread, which makes the requests too.
class RelayStore::Pace {
 public:
  explicit Pace(const RelayPace& limits) : limits_(limits) {}

  // The size is known, and `bytes` of the object have come: the next piece is asked for.
  void Began(std::uint64_t bytes) {
    if (!sized_) since_ = Clock::now();
    sized_ = true;
    bytes_ = bytes;
  }
  bool TooSlow() const {
    const std::chrono::duration<double> taken = Clock::now() - since_;
    if (!sized_) return taken > limits_.answer;
    const auto due = static_cast<double>(bytes_ + kPieceSize);
    return taken > limits_.grace + std::chrono::duration<double>(due / limits_.rate);
  }

 private:
  const RelayPace limits_;
  Clock::time_point since_ = Clock::now();
  bool sized_ = false;
  std::uint64_t bytes_ = 0;
};

std::optional<std::string> HashOfName(std::string_view name) {
  std::vector<std::string_view> parts;
  for (std::size_t begin = 0; begin <= name.size() && parts.size() <= 5;) {
    const std::size_t end = std::min(name.find('/', begin), name.size());
    parts.push_back(name.substr(begin, end - begin));
    begin = end + 1;
  }
  if (parts.size() == 3 && parts[1] == "plans" && parts[2].size() == 64 && IsHex(parts[2])) {
    return std::string(parts[2]);
  }
  const bool is_payload =
      (parts.size() == 4 && parts[1] == "payloads") || (parts.size() == 5 && parts[1] == "anchors");
  if (!is_payload) return std::nullopt;
  const std::string_view last = parts.back();
  const std::string_view hash = last.substr(std::min(last.rfind('-'), last.size()));
  if (hash.size() != 17 || !IsHex(hash.substr(1))) return std::nullopt;
  return std::string(hash.substr(1));
}

Result<std::unique_ptr<RelayStore>> RelayStore::Make(std::unique_ptr<Store> origin,
                                                     const Options& options) {
  for (const std::string& source : options.sources) {
    const Status parsed = ParseHttpUrl(source).status();
    if (!parsed.ok()) return parsed.WithContext("a relay to read from");
  }
  SEGUE_ASSIGN_OR_RETURN(ScratchDirectory directory,
                         ScratchDirectory::Make(options.directory, "segue-relay"));
  const std::string root = directory.path();
  SEGUE_ASSIGN_OR_RETURN(auto kept, DirStore::Open({.url = root, .root = root, .create = true}));
  return std::unique_ptr<RelayStore>(
      new RelayStore(std::move(origin), options, std::move(directory), std::move(kept)));
}

RelayStore::RelayStore(std::unique_ptr<Store> origin, const Options& options,
                       ScratchDirectory directory, std::unique_ptr<DirStore> kept)
    : origin_(std::move(origin)),
      options_(options),
      id_(RandomId()),
      directory_(std::move(directory)),
      kept_(std::move(kept)) {
  for (const std::string& url : options.sources) sources_.push_back({url, {}});
}

Result<ByteVector> RelayStore::Get(const std::string& name, std::uint64_t size_max) {
  if (!HashOfName(name)) return origin_->Get(name, size_max);
  const Status fetched = Fetch(name, "");
  if (fetched.code() == StatusCode::kResourceExhausted) return origin_->Get(name, size_max);
  SEGUE_RETURN_IF_ERROR(fetched);
  return kept_->Get(name, size_max);
}

Result<ByteVector> RelayStore::GetRange(const std::string& name, std::uint64_t offset,
                                        std::uint64_t size) {
  if (!HashOfName(name)) return origin_->GetRange(name, offset, size);
  const Status fetched = Fetch(name, "");
  // Too large to be kept: read as if there were no relays.
  if (fetched.code() == StatusCode::kResourceExhausted) {
    return origin_->GetRange(name, offset, size);
  }
  SEGUE_RETURN_IF_ERROR(fetched);
  return kept_->GetRange(name, offset, size);
}

Status RelayStore::Fetch(const std::string& name, const std::string& via) {
  SEGUE_RETURN_IF_ERROR(CheckObjectName(name));
  if (!HashOfName(name)) return NotFound("'" + name + "' is the origin's alone");
  if (via.find(id_) != std::string::npos) return NotFound("the request comes round in a circle");
  if (via.size() >= limits::kRelayHopsMax * (kIdSize + 1)) {
    return NotFound("the request has come through too many relays");
  }
  std::unique_lock lock(mutex_);
  if (IsKept(name)) return {};
  for (auto found = flights_.find(name); found != flights_.end(); found = flights_.find(name)) {
    const std::shared_ptr<Flight> flight = found->second;
    SEGUE_RETURN_IF_ERROR(AwaitLanding(lock, *flight, name, via));
    // What another has given up is begun anew by who still wants it.
    if (!flight->given_up) return flight->outcome;
  }
  const auto flight = std::make_shared<Flight>();
  flights_[name] = flight;
  lock.unlock();
  Status outcome = Lead(name, via);
  lock.lock();
  flight->landed = true;
  flight->given_up = !outcome.ok() && GiveUpScope::IsGivenUp();
  flight->outcome = outcome;
  flights_.erase(name);
  landed_.notify_all();
  return outcome;
}

// Our own receiver waits for as long as it wants the object, others as long as they may.
Status RelayStore::AwaitLanding(std::unique_lock<std::mutex>& lock, const Flight& flight,
                                const std::string& name, const std::string& via) {
  const auto until = via.empty() ? Clock::time_point::max() : Clock::now() + options_.wait;
  const auto landed = [&] { return flight.landed; };
  while (!landed_.wait_until(lock, std::min(until, Clock::now() + kGivenUpLook), landed)) {
    if (Clock::now() >= until) return Unavailable("'" + name + "' is on its way");
    if (GiveUpScope::IsGivenUp()) return Unavailable("the wait for '" + name + "' was given up");
  }
  return {};
}

Status RelayStore::Lead(const std::string& name, const std::string& via) {
  for (std::size_t source = 0; source < options_.sources.size(); ++source) {
    if (Rests(source)) continue;
    Status fetched = FetchFromRelay(source, name, via);
    if (fetched.ok() || fetched.code() == StatusCode::kResourceExhausted) return fetched;
  }
  std::uint64_t bytes = 0;
  Status fetched = Keep(*origin_, name, bytes, nullptr);
  const std::lock_guard lock(mutex_);
  statistics_.origin_bytes += bytes;
  return fetched;
}

Status RelayStore::FetchFromRelay(std::size_t source, const std::string& name,
                                  const std::string& via) {
  HttpStore::Options options;
  options.url = options_.sources[source];
  options.token = options_.token;
  options.fields = {"Segue-Via: " + (via.empty() ? id_ : via + "," + id_)};
  options.client = options_.client;
  options.has_listing = false;
  Pace pace(options_.pace);
  options.client.given_up = [&pace, stop = options_.client.given_up] {
    return pace.TooSlow() || GiveUpScope::IsGivenUp() || (stop && stop());
  };
  SEGUE_ASSIGN_OR_RETURN(const std::unique_ptr<HttpStore> relay, HttpStore::Open(options));
  std::uint64_t bytes = 0;
  Status fetched = Keep(*relay, name, bytes, &pace);
  const bool slow = !fetched.ok() && pace.TooSlow();
  if (fetched.code() == StatusCode::kCorruption || slow) Rest(source, kRestAfterHarm);
  // One that has not the object answers, and may have the next.
  const bool absent = fetched.code() == StatusCode::kNotFound;
  const bool too_large = fetched.code() == StatusCode::kResourceExhausted;
  const bool failed = !fetched.ok() && !absent && !too_large && !GiveUpScope::IsGivenUp();
  if (failed) Rest(source, kRestAfterFailure);
  const std::lock_guard lock(mutex_);
  if (fetched.ok()) statistics_.relay_bytes += bytes;
  if (fetched.code() == StatusCode::kCorruption) ++statistics_.lies;
  return fetched;
}

Status RelayStore::Keep(Store& store, const std::string& name, std::uint64_t& bytes, Pace* pace) {
  SEGUE_ASSIGN_OR_RETURN(const std::uint64_t size, store.Size(name));
  if (size > options_.size_max) return ResourceExhausted("'" + name + "' is too large to be kept");
  SEGUE_ASSIGN_OR_RETURN(const auto writer, kept_->StartWrite());
  if (pace != nullptr) pace->Began(0);
  Sha256Hasher hasher;
  while (bytes < size) {
    const std::uint64_t part = std::min(kPieceSize, size - bytes);
    SEGUE_ASSIGN_OR_RETURN(const ByteVector piece, store.GetRange(name, bytes, part));
    hasher.Add(piece);
    bytes += part;
    if (pace != nullptr) pace->Began(bytes);
    SEGUE_RETURN_IF_ERROR(writer->Append(piece));
  }
  const std::string hash = hasher.Finish().ToHex();
  const std::string expected = HashOfName(name).value_or("");
  if (!hash.starts_with(expected)) {
    return Corruption("object '" + name + "' of store '" + store.url() + "' has SHA-256 " + hash);
  }
  SEGUE_RETURN_IF_ERROR(writer->Commit(name).status());
  Remember(name, size);
  return {};
}

bool RelayStore::Rests(std::size_t source) {
  const std::lock_guard lock(mutex_);
  return Clock::now() < sources_[source].rests_until;
}

void RelayStore::Rest(std::size_t source, std::chrono::seconds time) {
  const std::lock_guard lock(mutex_);
  Clock::time_point& until = sources_[source].rests_until;
  until = std::max(until, Clock::now() + time);
}

// Under the mutex. What is asked for again is kept for longer.
bool RelayStore::IsKept(const std::string& name) {
  const auto found = places_.find(name);
  if (found == places_.end()) return false;
  order_.splice(order_.end(), order_, found->second);
  return true;
}

// The new one stays; what is open for reading is read to its end all the same.
void RelayStore::Remember(const std::string& name, std::uint64_t size) {
  const std::lock_guard lock(mutex_);
  order_.emplace_back(name, size);
  places_[name] = std::prev(order_.end());
  statistics_.kept_bytes += size;
  while (order_.size() > 1 &&
         (order_.size() > options_.count_max || statistics_.kept_bytes > options_.size_max)) {
    const auto& [oldest, oldest_size] = order_.front();
    // One that cannot be removed goes with the folder, at the end.
    (void)kept_->Delete(oldest);
    statistics_.kept_bytes -= oldest_size;
    places_.erase(oldest);
    order_.pop_front();
  }
  statistics_.kept_count = order_.size();
}

RelayStatistics RelayStore::statistics() const {
  const std::lock_guard lock(mutex_);
  return statistics_;
}

}  // namespace segue
