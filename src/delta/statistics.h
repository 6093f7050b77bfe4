// SPDX-License-Identifier: Apache-2.0
//
// Statistics: what changed between two versions, counted in one parallel pass: per tensor, per bit,
// by gaps; and the entropy bound that payloads are held against. Counts are whole numbers and do
// not depend on the number of threads.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <span>
#include <string_view>
#include <vector>

#include "checkpoint/plan.h"
#include "delta/model_view.h"

namespace segue {

struct ChangeStatistics {
  std::vector<std::uint64_t> changed;  // Elements that differ, of each tensor of the plan.
  std::uint64_t changed_total = 0;
  std::array<std::uint64_t, 64> xor_bits{};  // How often bit k of a mask is set.
  // Distances between neighbouring changes of one tensor, by floor(log2(distance)).
  std::array<std::uint64_t, 40> gaps{};
  std::uint64_t one_ulp = 0;        // BF16 and F16 that moved to a neighbour in value.
  std::uint64_t lines_touched = 0;  // 64-byte lines, counted from each tensor's start.
  double entropy_bound_bytes = 0;
};

struct CountOptions {
  unsigned threads = 0;
  // Called from one thread at a time with the model bytes done so far; may be empty.
  std::function<void(std::uint64_t)> progress;
};

ChangeStatistics CountChanges(const Plan& plan, const ModelView& base, const ModelView& target,
                              const CountOptions& options);

// The least that positions and values of `changed` among `element_count` elements can take when
// both are drawn independently: N x H2(n / N) bits for the positions, and n x H for the values.
// `values` holds histograms of equal length one after the other, each counting every change once;
// their entropies add up.
double EntropyBoundBytes(std::uint64_t element_count, std::uint64_t changed,
                         std::span<const std::uint64_t> values, std::size_t histogram_size);

// Kind of a tensor by its name: attention, mlp, experts, router, embedding, head, norm, scale,
// other.
std::string_view TensorClass(std::string_view name);

}  // namespace segue
