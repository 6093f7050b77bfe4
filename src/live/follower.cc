// SPDX-License-Identifier: Apache-2.0
//
// Follower: one look at a time, and the time between two looks.
#include "live/follower.h"

#include <algorithm>

#include "base/out_of_memory.h"

namespace segue {
namespace {

// A follower that meets errors waits up to this many intervals between two tries.
constexpr int kBackoffMax = 32;
// And up to this many times as long as the last try took.
constexpr int kRestMax = 8;

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
    const auto began = environment.Now();
    const bool fared_well = TakeNewest(stop);
    backoff = fared_well ? 1 : std::min(backoff * 2, kBackoffMax);
    Environment::Clock::duration rest = interval * backoff;
    if (!fared_well) {
      rest = std::max(rest, (environment.Now() - began) * std::min(backoff, kRestMax));
    }
    environment.Sleep(rest, stop);
  }
}

bool Follower::TakeNewest(const std::stop_token& stop) {
  const Status looked = CatchOutOfMemory([&] { return Look(stop); });
  // What failed of its own update the receiver knows.
  const bool is_own = !session_.empty() && receiver_.StateOf(session_) != ReceiverState::kIdle;
  if (looked.ok() || !is_own) receiver_.NoteLook(looked);
  return looked.ok();
}

Status Follower::Look(const std::stop_token& stop) {
  SEGUE_RETURN_IF_ERROR(receiver_.RebuildAgain());
  auto newest = receiver_.Newest();
  if (!newest.ok()) return newest.status();
  FollowRequest request{SessionOf(*newest), std::move(newest).value()};
  if (request.session.empty()) return {};
  SEGUE_RETURN_IF_ERROR(FinishEarlier(request.session));
  const std::vector<std::uint64_t> held = receiver_.held_versions();
  bool is_news = false;
  for (std::size_t i = 0; i < held.size(); ++i) {
    std::optional<std::uint64_t>& target = request.targets[i];
    if (target && *target <= held[i]) target.reset();
    is_news = is_news || target;
  }
  if (!is_news) return {};
  session_ = request.session;
  return receiver_.Take(request, stop);
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
