// SPDX-License-Identifier: Apache-2.0
//
// Futex: the bare system calls, in the variant for memory of several processes.
#include "live/futex.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <ctime>

namespace segue {
namespace {

constexpr std::chrono::hours kDurationMax{24 * 365};

}  // namespace

SteadyTime DeadlineAfter(std::chrono::milliseconds duration) {
  const auto bounded =
      std::clamp<std::chrono::milliseconds>(duration, std::chrono::milliseconds(0), kDurationMax);
  return std::chrono::steady_clock::now() + bounded;
}

void FutexWait(std::uint32_t* word, std::uint32_t expected, SteadyTime deadline) {
  // steady_clock is CLOCK_MONOTONIC, which this call counts in, absolutely.
  const auto since = deadline.time_since_epoch();
  const auto seconds = std::chrono::floor<std::chrono::seconds>(since);
  timespec until{};
  until.tv_sec = static_cast<std::time_t>(seconds.count());
  until.tv_nsec = std::chrono::duration_cast<std::chrono::nanoseconds>(since - seconds).count();
  ::syscall(SYS_futex, word, FUTEX_WAIT_BITSET, expected, &until, nullptr, FUTEX_BITSET_MATCH_ANY);
}

void FutexWakeAll(std::uint32_t* word) {
  ::syscall(SYS_futex, word, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

}  // namespace segue
