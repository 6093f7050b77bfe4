// SPDX-License-Identifier: Apache-2.0
//
// Generate: checkpoints and chains of updates that look like real ones, from a seed. The mechanism
// is the field's (FP32 master, Adam-like step, cast or quantise); stored bits are flipped directly
// only in the presets that say so. The recipe and its sources are in docs/workload.md.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "segue/status.h"

namespace segue {

// What a preset fixes: the stored format and how dense one step's change is.
struct PresetInfo {
  std::string_view name;     // "bf16-1", "nvfp4-0.085", "humans-proxy", ...
  std::string_view format;   // "bf16", "fp16", "fp8", "nvfp4", "mxfp4", "int4"
  double density = 0;        // Fraction of elements (4-bit codes for 4-bit formats) that change.
  std::string_view summary;  // One sentence.
};
std::span<const PresetInfo> Presets();

struct GenerateOptions {
  std::string directory = {};  // Receives v0000000000/, v0000000001/, ... one checkpoint each.
  std::string preset = "bf16-1";
  std::uint64_t model_bytes = 64ull << 20;  // Of one checkpoint, about.
  unsigned steps = 1;                       // Versions after the base.
  unsigned shard_count = 2;
  std::uint64_t seed = 1;
  unsigned threads = 0;  // 0: every core.
};

// Gaps between changed elements are counted in powers of two; the last bucket takes the rest.
inline constexpr std::size_t kGapBuckets = 24;

// Statistics of one generated step, beside which docs/workload.md puts the field's figures.
// Elements are those of the tensors in the preset's format (4-bit codes count one by one).
struct GeneratedStep {
  std::uint64_t elements = 0;
  std::uint64_t changed = 0;
  double one_ulp_share = 0;     // Of the changes, those to the next code in the order of values.
  double multi_bit_share = 0;   // Of the changes, those whose XOR has more than one bit.
  double upper_half_share = 0;  // Of the changes, those that touch the upper half (high byte).
  double repeat_share = 0;      // Of the changes, positions that also changed in the step before.
  double seen_share = 0;        // Of the changes, positions that changed in any earlier step.
  double from_base_share = 0;   // Of the elements, those that differ from version 0.
  std::array<double, 16> xor_bit_share{};       // Of the changes, those whose XOR has bit i.
  std::array<double, kGapBuckets> gap_share{};  // Gaps of 2^i to 2^(i+1) - 1 elements.
  double magnitude_ratio = 0;  // Mean abs(weight) of the changed elements over that of all.
  std::uint64_t scales = 0;    // Block scales, where the format has them.
  double scales_changed_share = 0;
  std::uint64_t rest_elements =
      0;  // 16-bit tensors beside quantised ones (norms, embeddings, ...).
  std::uint64_t rest_changed = 0;
};
struct GenerateReport {
  std::vector<std::string> directories;  // Base first.
  std::vector<GeneratedStep> steps;
  std::uint64_t model_bytes = 0;
  double seconds = 0;
};

Result<GenerateReport> Generate(const GenerateOptions& options);

// The same in memory for benchmarks: fills `base` and `target` (equal sizes) with one tensor's
// bytes of the preset's format before and after one step. Returns the count of changed elements.
Result<std::uint64_t> GeneratePair(std::string_view preset, std::uint64_t seed, unsigned threads,
                                   std::span<std::byte> base, std::span<std::byte> target);

}  // namespace segue
