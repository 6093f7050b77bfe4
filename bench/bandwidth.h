// SPDX-License-Identifier: Apache-2.0
//
// Bandwidth: what the machine can do at best with the same memory and threads: plain reads, copies
// and compares. Everything else is reported beside these.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <vector>

#include "base/bytes.h"

namespace segue::bench {

// Seconds that `job` takes.
template <typename Job>
double Seconds(Job&& job) {
  const auto start = std::chrono::steady_clock::now();
  job();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// 0 without samples.
inline double Median(std::vector<double> samples) {
  if (samples.empty()) return 0;
  std::sort(samples.begin(), samples.end());
  const std::size_t middle = samples.size() / 2;
  return samples.size() % 2 != 0 ? samples[middle] : (samples[middle - 1] + samples[middle]) / 2;
}

// Sum of all 64-bit words; sizes are multiples of 64 bytes here and below.
std::uint64_t ReadAll(ByteSpan bytes, unsigned threads);
void CopyAll(ByteSpan source, MutableByteSpan target, unsigned threads);
// Count of 4 KiB pieces that differ: reads both sides to the end and does nothing else.
std::uint64_t CompareAll(ByteSpan a, ByteSpan b, unsigned threads);

}  // namespace segue::bench
