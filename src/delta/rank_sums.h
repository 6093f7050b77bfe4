// SPDX-License-Identifier: Apache-2.0
//
// RankSums: sums over the parts of a model that one rank holds. They are linear, so those of all
// ranks add up to what one process that holds the whole model would have found; a part that several
// ranks hold is counted once and compared.
#pragma once

#include <array>
#include <cstdint>

#include "base/digest.h"
#include "base/random.h"

namespace segue {

// What is summed of a part: two digests and a number.
struct PartValues {
  Digest first;
  Digest second;
  std::uint64_t number = 0;

  bool operator==(const PartValues&) const = default;
};

struct RankSums {
  // Sums of everything that is counted, and of the differences between copies: zero when all copies
  // are alike. Each copy has a weight of its own, so that no two differences cancel out.
  PartValues counted;
  PartValues copies;

  // `copy` of `copies`; number 0 is the one that counts.
  void Add(std::uint32_t copy, std::uint32_t copy_count, const PartValues& part) {
    if (copy != 0) return AddScaled(copies, part, 0 - Weight(copy));
    AddScaled(counted, part, 1);
    std::uint64_t weights = 0;
    for (std::uint32_t i = 1; i < copy_count; ++i) weights += Weight(i);
    AddScaled(copies, part, weights);
  }

  RankSums& operator+=(const RankSums& other) {
    AddScaled(counted, other.counted, 1);
    AddScaled(copies, other.copies, 1);
    return *this;
  }

 private:
  static std::uint64_t Weight(std::uint32_t copy) { return Mix64(copy) | 1; }
  static void AddScaled(PartValues& sum, const PartValues& part, std::uint64_t scale) {
    for (unsigned lane = 0; lane < 2; ++lane) {
      sum.first.lane[lane] += part.first.lane[lane] * scale;
      sum.second.lane[lane] += part.second.lane[lane] * scale;
    }
    sum.number += part.number * scale;
  }
};

}  // namespace segue
