// SPDX-License-Identifier: Apache-2.0
//
// Presets: what the name of a workload stands for. The learning rates are calibrated so that the
// density of changed elements is the one in the name; docs/workload.md has the table with
// measurements. Name "trace" is reserved for real recorded steps.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "segue/generate.h"
#include "workload/format.h"
#include "workload/optimizer.h"

namespace segue::workload {

// How a step changes the stored bytes.
enum class Mechanism : std::uint8_t {
  kOptimizer,    // Through the FP32 master: nothing is flipped.
  kOneBit,       // One bit of the whole model.
  kProxy,        // The reference system's proxy: the lowest bit of randomly drawn elements.
  kAdversarial,  // Special values, and edits among them.
};

struct Preset {
  PresetInfo info;
  Format format = Format::kBf16;
  float learning_rate = 0;
  float damping = 300;      // See Dynamics.
  bool has_experts = true;  // The model's shape: mixture of experts or dense.
  Mechanism mechanism = Mechanism::kOptimizer;
  StepRule rule = StepRule::kAdam;
  QuantiseFrom quantise_from = QuantiseFrom::kBf16;
};

// Share of a frame's elements that the proxy flips. Its source gives 0.085 % of the weights and 0.2
// % of the size under Zstd level 1. Measured with libzstd 1.5.4, level 1, on the XOR bytes at this
// rate: 0.175 % of the size in frames of 1 to 2 MiB, 0.182 % of 8 MiB, 0.212 % of 32 MiB (one frame
// a tensor; docs/workload.md, "Proxy"), so both figures are met.
inline constexpr double kProxyRate = 0.00085;

// InvalidArgument naming the known presets when there is none of that name.
Result<Preset> FindPreset(std::string_view name);

}  // namespace segue::workload
