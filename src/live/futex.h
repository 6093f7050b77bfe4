// SPDX-License-Identifier: Apache-2.0
//
// Futex: waiting on a word of memory that processes share. (std::atomic::wait is for threads of one
// process.) Waits end early at will: callers look at the word again.
#pragma once

#include <chrono>
#include <cstdint>

namespace segue {

using SteadyTime = std::chrono::steady_clock::time_point;

// Now plus `duration`; negative ones are now, huge ones some years, so that no sum wraps.
SteadyTime DeadlineAfter(std::chrono::milliseconds duration);

// Sleeps while `*word` is `expected`, until woken or `deadline`.
void FutexWait(std::uint32_t* word, std::uint32_t expected, SteadyTime deadline);
// Wakes all who wait on `word`, in every process.
void FutexWakeAll(std::uint32_t* word);

}  // namespace segue
