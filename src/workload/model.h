// SPDX-License-Identifier: Apache-2.0
//
// Model: the tensors of a transformer of a wanted size, named and shaped as Hugging Face
// checkpoints of the Qwen and GLM families are (mixture of experts, or dense), and how each of them
// moves in training. Sizes scale down together; what stays is the mix: many small expert matrices,
// a few large ones, and thousands of elements in norms and routers.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "checkpoint/tensor.h"
#include "workload/format.h"
#include "workload/optimizer.h"
#include "workload/presets.h"

namespace segue::workload {

enum class Role : std::uint8_t { kEmbedding, kHead, kNorm, kRouter, kAttention, kMlp, kExpert };

struct ModelTensor {
  std::string name;
  std::size_t rows = 1;
  std::size_t columns = 1;
  Role role = Role::kMlp;
  Format format = Format::kBf16;
  double token_share = 1;  // Of an expert, in units of the average.

  bool is_vector() const { return role == Role::kNorm; }
};

struct ModelOptions {
  std::uint64_t bytes = 0;  // Of the stored model, about; very small ones come out larger.
  Format format = Format::kBf16;
  bool has_experts = true;
  std::uint64_t seed = 0;
};

// In the order in which checkpoints list them.
std::vector<ModelTensor> MakeModel(const ModelOptions& options);

// How tensor number `index` of a model moves under the preset.
Dynamics MakeDynamics(const ModelTensor& tensor, std::size_t index, const Preset& preset,
                      std::uint64_t seed);

// What is stored for one tensor: its codes, then its block scales and its tensor scale where the
// format has them.
std::vector<TensorSpec> StoredSpecs(const ModelTensor& tensor);

}  // namespace segue::workload
