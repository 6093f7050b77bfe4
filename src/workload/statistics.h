// SPDX-License-Identifier: Apache-2.0
//
// Statistics: counts of what changed between two versions, from the stored bytes. Kept as whole
// numbers, so that sums over bands do not depend on the order in which threads finish. Two elements
// differ if and only if their bits do: 0.0 against -0.0 is a change, a NaN equals itself.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/bytes.h"
#include "segue/generate.h"
#include "workload/format.h"

namespace segue::workload {

// Sums over one step. Public numbers follow from them by Finish.
struct StepCounts {
  std::uint64_t elements = 0;
  std::uint64_t changed = 0;
  std::uint64_t one_ulp = 0;     // Changes to the neighbouring code in the order of values.
  std::uint64_t multi_bit = 0;   // XOR of more than one bit.
  std::uint64_t upper_half = 0;  // XOR touches the upper half of the element's bits.
  std::uint64_t repeated = 0;    // Changed in the step before too.
  std::uint64_t seen = 0;        // Changed in any earlier step.
  std::uint64_t repeatable = 0;  // Changes of steps that have a step before.
  std::uint64_t from_base = 0;   // Elements that differ from version 0.
  std::array<std::uint64_t, 16> xor_bits{};
  std::array<std::uint64_t, kGapBuckets> gaps{};
  std::uint64_t magnitudes = 0;  // Sum of abs(w), in units of 2^-24, of elements that have one.
  std::uint64_t magnitudes_changed = 0;
  std::uint64_t magnitude_count = 0;
  std::uint64_t magnitude_count_changed = 0;
  std::uint64_t scales = 0;
  std::uint64_t scales_changed = 0;
  std::uint64_t rest = 0;  // Elements of tensors that are not in the preset's format.
  std::uint64_t rest_changed = 0;

  StepCounts& operator+=(const StepCounts& other);
};

GeneratedStep Finish(const StepCounts& counts);

// Count of elements of `bits` (4, 8, 16 or 32) that differ. Sizes are equal, and whole elements.
std::uint64_t CountDifferent(unsigned bits, ByteSpan before, ByteSpan after);

// Follows one stretch of a tensor (whole elements) from version to version. Gaps are taken inside
// the stretch. Not thread-safe.
class ChangeCounter {
 public:
  ChangeCounter(Format format, ByteSpan base);

  // `before` and `after` are one version apart and as long as the base. `values`: the weights
  // before, or empty; `counts` receives the sums.
  void Count(ByteSpan before, ByteSpan after, std::span<const float> values, StepCounts& counts);

 private:
  void CountOne(std::uint32_t position, std::uint32_t before, std::uint32_t after,
                StepCounts& counts);
  void CountRepeats(StepCounts& counts);

  Format format_;
  ByteVector base_;
  std::vector<std::uint32_t> positions_;  // Of this step's changes, ascending.
  std::vector<std::uint32_t> positions_before_;
  std::vector<bool> seen_;
  bool has_step_before_ = false;
};

}  // namespace segue::workload
