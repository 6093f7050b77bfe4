// SPDX-License-Identifier: Apache-2.0
//
// Update: all of it in one call, for a receiver or a group of them. As their own Update(), but what
// was not applied is given up, so that the next call starts anew, and Ctrl-C ends a prepare.
#pragma once

#include <atomic>
#include <string>
#include <string_view>

#include "bindings/receiver_handle.h"

namespace segue::python {

inline constexpr std::string_view kOwnSession = "update-";

inline std::string NewSession() {
  static std::atomic<std::uint64_t> count{0};
  return std::string(kOwnSession) + std::to_string(++count);
}

// State and session are those of all lineages.
inline ReceiverStatus FirstStatus(const Receiver& receiver) { return receiver.status(); }
inline ReceiverStatus FirstStatus(const ReceiverGroup& group) { return group.status().front(); }

// What an update of ours has left applied, as the engine did not do its part, is finished first.
template <typename Kind>
Status FinishEarlier(Kind& receiver, const ApplyChoices& choices) {
  const ReceiverStatus status = FirstStatus(receiver);
  if (status.state != ReceiverState::kApplied || !status.session.starts_with(kOwnSession)) {
    return {};
  }
  SEGUE_RETURN_IF_ERROR(receiver.Apply(status.session, choices));
  return receiver.Resume(status.session);
}

template <typename Kind, typename Request>
Status UpdateOnce(HandleOf<Kind>& handle, Kind& receiver, const Request& request,
                  const ApplyChoices& choices, bool signals) {
  SEGUE_RETURN_IF_ERROR(FinishEarlier(receiver, choices));
  SEGUE_RETURN_IF_ERROR(receiver.Prepare(request));
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
