// SPDX-License-Identifier: Apache-2.0
//
// Step: a gate as a context manager. Entering an open gate costs a few instructions and keeps the
// interpreter's lock; waiting at a closed one lets other threads run, and Ctrl-C ends it.
#pragma once

#include <chrono>

#include "bindings/interpreter.h"

namespace segue::python {

// How long a wait may take before signals are looked at.
inline constexpr std::chrono::milliseconds kSignalPeriod{100};

// `enter(deadline)` returns a Status, Unavailable at the deadline.
template <typename Enter>
void EnterOrRaise(std::chrono::milliseconds timeout, Enter enter) {
  if (enter(std::chrono::milliseconds(0)).ok()) [[likely]]
    return;
  const auto limit = std::chrono::steady_clock::now() + timeout;
  for (;;) {
    const auto left =
        std::chrono::ceil<std::chrono::milliseconds>(limit - std::chrono::steady_clock::now());
    const bool last = left <= kSignalPeriod;
    Status status;
    {
      const WithoutGil released;
      status = enter(last ? std::max(left, std::chrono::milliseconds(0)) : kSignalPeriod);
    }
    if (status.ok()) return;
    if (last || status.code() != StatusCode::kUnavailable) Raise(status);
    RaisePendingSignal();
  }
}

}  // namespace segue::python
