// SPDX-License-Identifier: Apache-2.0
//
// Begun apply: marks the time in which weights may be half changed, for whoever has to say so when
// the program cannot go on (segue/mapped_faults.h).
#pragma once

#include <atomic>

namespace segue {

class BegunApply {
 public:
  BegunApply() { ++count_; }
  ~BegunApply() { --count_; }
  BegunApply(const BegunApply&) = delete;
  BegunApply& operator=(const BegunApply&) = delete;

  // Some apply of this process is begun and not over. Safe in a signal handler.
  static bool Any() { return count_ != 0; }

 private:
  static_assert(std::atomic<int>::is_always_lock_free);
  static inline std::atomic<int> count_{0};
};

}  // namespace segue
