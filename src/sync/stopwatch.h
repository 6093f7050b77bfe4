// SPDX-License-Identifier: Apache-2.0
//
// Stopwatch: seconds of each stage for reports. No decision in sync/ depends on it.
#pragma once

#include <chrono>

namespace segue {

class Stopwatch {
 public:
  // Seconds since construction or the last lap.
  double Lap() {
    const auto now = std::chrono::steady_clock::now();
    const std::chrono::duration<double> lap = now - start_;
    start_ = now;
    return lap.count();
  }

 private:
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

}  // namespace segue
