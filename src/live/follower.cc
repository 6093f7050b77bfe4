// SPDX-License-Identifier: Apache-2.0
//
// Follower: one look at a time, and the time between two looks.
#include "live/follower.h"

#include <algorithm>

namespace segue {
namespace {

// A follower that meets errors waits up to this many intervals between two tries.
constexpr int kBackoffMax = 32;

// "follow-7-3"; empty where nothing is on offer.
std::string SessionOf(const std::vector<std::optional<std::uint64_t>>& targets) {
  std::string numbers;
  bool any = false;
  for (const auto& target : targets) {
    numbers += "-" + (target ? std::to_string(*target) : std::string("none"));
    any = any || target;
  }
  return any ? "follow" + numbers : "";
}

}  // namespace

void Follower::Run(Environment& environment, std::chrono::milliseconds interval,
                   const std::stop_token& stop) {
  int backoff = 1;
  while (!stop.stop_requested()) {
    backoff = TakeNewest() ? 1 : std::min(backoff * 2, kBackoffMax);
    environment.Sleep(interval * backoff, stop);
  }
}

bool Follower::TakeNewest() {
  auto newest = receiver_.Newest();
  if (!newest.ok()) {
    receiver_.NoteTrouble(newest.status());
    return false;
  }
  FollowRequest request{SessionOf(*newest), std::move(newest).value()};
  if (request.session.empty()) return true;
  if (!FinishEarlier(request.session).ok()) return false;
  const std::vector<std::uint64_t> held = receiver_.held_versions();
  bool is_news = false;
  for (std::size_t i = 0; i < held.size(); ++i) {
    std::optional<std::uint64_t>& target = request.targets[i];
    if (target && *target <= held[i]) target.reset();
    is_news = is_news || target;
  }
  if (!is_news) return true;
  session_ = request.session;
  return receiver_.Take(request).ok();
}

// What an earlier look has left half way, because the gate did not close or did not open, is
// finished, or given up where something newer is to come: nobody else would.
Status Follower::FinishEarlier(const std::string& next) {
  if (session_.empty()) return {};
  switch (receiver_.StateOf(session_)) {
    case ReceiverState::kApplied:
      // What is owed to the engine, if anything.
      SEGUE_RETURN_IF_ERROR(receiver_.Apply(session_, {}));
      return receiver_.Resume(session_, /*keep_pause=*/false);
    case ReceiverState::kPrepared: return session_ == next ? Status() : receiver_.Abort(session_);
    default: return {};
  }
}

}  // namespace segue
