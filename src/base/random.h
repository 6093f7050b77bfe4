// SPDX-License-Identifier: Apache-2.0
//
// Deterministic pseudo-random numbers: the SplitMix64 finaliser as a pure function (Steele, Lea and
// Flood, "Fast splittable pseudorandom number generators", 2014) and a small generator on top.
// Never used for secrets.
#pragma once

#include <cmath>
#include <cstdint>

namespace segue {

__extension__ using Uint128 = unsigned __int128;  // No ISO name; g++ and clang both have it.

inline constexpr std::uint64_t Mix64(std::uint64_t value) {
  value += 0x9e3779b97f4a7c15ull;
  value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9ull;
  value = (value ^ (value >> 27)) * 0x94d049bb133111ebull;
  return value ^ (value >> 31);
}

class Random {
 public:
  explicit constexpr Random(std::uint64_t seed) : state_(Mix64(seed)) {}

  std::uint64_t Next() {
    state_ += 0x9e3779b97f4a7c15ull;
    return Mix64(state_);
  }
  // Uniform in [0, bound); bound must not be 0.
  std::uint64_t Below(std::uint64_t bound) {
    return static_cast<std::uint64_t>((static_cast<Uint128>(Next()) * bound) >> 64);
  }
  // Uniform in [0, 1).
  double Uniform() { return static_cast<double>(Next() >> 11) * 0x1.0p-53; }
  // Standard normal (Box and Muller, one of the pair).
  double Normal() {
    const double radius = std::sqrt(-2.0 * std::log(1.0 - Uniform()));
    return radius * std::cos(6.283185307179586 * Uniform());
  }

 private:
  std::uint64_t state_;
};

}  // namespace segue
