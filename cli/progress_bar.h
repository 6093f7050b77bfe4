// SPDX-License-Identifier: Apache-2.0
//
// Progress bar: one line on stderr while something takes longer than a second, and only where
// stderr is a terminal. A thread of its own draws it, so that it moves while the work is silent
// (waiting for other owners, for a disk). The line is gone when the bar is destroyed, before any
// result.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>

#include "segue/progress.h"

namespace segue::cli {

class ProgressBar {
 public:
  explicit ProgressBar(std::string_view verb);
  ~ProgressBar();
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;

  // To be called with every advance; empty where nothing would be shown. Must not outlive the bar.
  Progress callback();

 private:
  void Run(const std::stop_token& stop);
  void Draw() const;  // With mutex_ held.

  const bool shown_;
  const std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  std::mutex mutex_;
  std::condition_variable_any changed_;
  std::string stage_;
  std::uint64_t done_ = 0;
  std::uint64_t total_ = 0;
  std::jthread thread_;  // Last: it uses all of the above.
};

// Calls `work(progress)` under a bar and returns what it returns.
template <typename Work>
auto WithProgress(std::string_view verb, Work work) {
  ProgressBar bar(verb);
  return work(bar.callback());
}

}  // namespace segue::cli
