// SPDX-License-Identifier: Apache-2.0
//
// Noise: random numbers as a pure function of (key, position), so that a weight of 2 GiB of weights
// can be drawn again anywhere without stored state, and by any number of threads. Normal and
// log-normal values come from tables of quantiles: a table is what makes a billion draws
// affordable.
//
// Same key and position, same value, in every build that rounds floats alike (no fused
// multiply-add); the tables rest on the C library's exp and log.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "base/random.h"

namespace segue::workload {

// 64 random bits for one position under one key.
inline std::uint64_t HashAt(std::uint64_t key, std::uint64_t position) {
  return Mix64(key + position);
}

// The key of a part (a tensor, a step) under the key of the whole.
inline std::uint64_t SubKey(std::uint64_t key, std::uint64_t part) {
  return Mix64(Mix64(key) ^ (part * 0xd1342543de82ef95ull + 1));
}

// Uniform in [0, 1) from the upper 53 bits.
inline double UniformFromBits(std::uint64_t bits) {
  return static_cast<double>(bits >> 11) * 0x1.0p-53;
}

// The quantile of the standard normal distribution, for 0 < probability < 1 (Acklam's rational
// approximation, relative error below 1.2e-9).
double NormalQuantile(double probability);

// Standard normal values from 32 random bits: piecewise linear between 4097 quantiles. Bounded:
// the last interval on each side ends at kBound, which makes the tail a little heavy, as real
// weights have it.
class NormalTable {
 public:
  static constexpr float kBound = 4.5f;

  static const NormalTable& Get();

  float FromBits(std::uint32_t bits) const {
    const std::uint32_t index = bits >> kFractionBits;
    const float fraction = static_cast<float>(bits & kFractionMask) * kFractionUnit;
    return edges_[index] + fraction * (edges_[index + 1] - edges_[index]);
  }

 private:
  static constexpr unsigned kFractionBits = 20;
  static constexpr std::uint32_t kFractionMask = (1u << kFractionBits) - 1;
  static constexpr float kFractionUnit = 0x1.0p-20f;
  NormalTable();
  std::array<float, (1u << (32 - kFractionBits)) + 1> edges_;
};

// exp(spread * normal) from the middles of 1024 equally likely intervals.
class LogNormalTable {
 public:
  static constexpr unsigned kBits = 10;

  explicit LogNormalTable(double spread);

  // Uses the lowest kBits bits.
  float FromBits(std::uint64_t bits) const { return values_[bits & ((1u << kBits) - 1)]; }

 private:
  std::array<float, 1u << kBits> values_;
};

}  // namespace segue::workload
