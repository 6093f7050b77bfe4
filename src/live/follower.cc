// SPDX-License-Identifier: Apache-2.0
//
// Follower: one look at a time, and the time between two looks.
#include "live/follower.h"

#include <algorithm>

namespace segue {
namespace {

// A follower that meets errors waits up to this many intervals between two tries.
constexpr int kBackoffMax = 32;

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
  const auto versions = receiver_.Versions();
  if (!versions.ok()) {
    receiver_.NoteTrouble(versions.status());
    return false;
  }
  if (versions->empty()) return true;
  PrepareRequest request;
  request.session = "follow-" + std::to_string(versions->back());
  request.target_version = versions->back();
  if (!FinishEarlier(request.session).ok()) return false;
  if (versions->back() <= receiver_.held_version()) return true;
  session_ = request.session;
  return receiver_.Update(request, {}).ok();
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
