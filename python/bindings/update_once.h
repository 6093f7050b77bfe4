// SPDX-License-Identifier: Apache-2.0
//
// Update: all of it in one call, for a receiver or a group of them. As their own Update(), but what
// was not applied is given up, so that the next call starts anew, and Ctrl-C ends a prepare.
#pragma once

#include <atomic>
#include <cstdint>
#include <random>
#include <string>
#include <string_view>

#include "bindings/receiver_handle.h"

namespace segue::python {

// A name that nobody else gives to a session, whatever callers call theirs.
inline std::string NewSession() {
  static std::atomic<std::uint64_t> count{0};
  static const std::string process = [] {
    std::random_device random;
    return std::to_string(random()) + "-" + std::to_string(random());
  }();
  return "update-" + process + "-" + std::to_string(++count);
}

// State and session are those of all lineages.
inline ReceiverStatus FirstStatus(const Receiver& receiver) { return receiver.status(); }
inline ReceiverStatus FirstStatus(const ReceiverGroup& group) { return group.status().front(); }

// What an update of ours has left applied, as the engine did not do its part, is finished first.
template <typename Kind>
Status FinishEarlier(const HandleOf<Kind>& handle, Kind& receiver, const ApplyChoices& choices) {
  const ReceiverStatus status = FirstStatus(receiver);
  const bool is_own = !status.session.empty() && status.session == handle.own_session();
  if (status.state != ReceiverState::kApplied || !is_own) return {};
  SEGUE_RETURN_IF_ERROR(receiver.Apply(status.session, choices));
  return receiver.Resume(status.session);
}

template <typename Kind, typename Request>
Status UpdateOnce(HandleOf<Kind>& handle, Kind& receiver, const Request& request,
                  const ApplyChoices& choices, bool signals) {
  SEGUE_RETURN_IF_ERROR(handle.CheckOutside());
  SEGUE_RETURN_IF_ERROR(FinishEarlier(handle, receiver, choices));
  SEGUE_RETURN_IF_ERROR(receiver.Prepare(request));
  handle.set_own_session(request.session);
  SEGUE_RETURN_IF_ERROR(signals ? handle.WaitPreparedOrSignal(receiver, request.session)
                                : receiver.WaitPrepared());
  Status applied = receiver.Apply(request.session, choices);
  if (!applied.ok()) {
    if (FirstStatus(receiver).state == ReceiverState::kPrepared) {
      SEGUE_RETURN_IF_ERROR(receiver.Abort(request.session));
    }
    return applied;
  }
  return receiver.Resume(request.session);
}

}  // namespace segue::python
