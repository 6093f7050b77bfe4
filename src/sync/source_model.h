// SPDX-License-Identifier: Apache-2.0
//
// Source model: what a publisher is opened with, as a plan, bytes and a set of what is owned.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "checkpoint/checkpoint.h"
#include "checkpoint/plan.h"
#include "delta/model_view.h"
#include "delta/tensor_set.h"
#include "segue/publisher.h"
#include "segue/status.h"

namespace segue {

struct SourceModel {
  Plan plan;
  ModelView view;   // Null where the tensor is another owner's.
  TensorSet owned;  // Tensors with bytes that this owner has.
};

// InvalidArgument naming the tensor whose size is not that of its shape or whose name is there
// twice; Unsupported for an unknown dtype.
Result<SourceModel> SourceFromTensors(std::span<const SourceTensor> tensors,
                                      std::uint64_t chunk_size);
// Without a view: `owned` names what this owner has. NotFound for a name that is not in `tensors`.
Result<SourceModel> SourceFromSpecs(std::span<const SourceTensor> tensors,
                                    std::span<const std::string> owned, std::uint64_t chunk_size);
// `owned`: names; nothing for all. `checkpoint` outlives the view.
Result<SourceModel> SourceFromCheckpoint(const Checkpoint& checkpoint,
                                         const std::optional<std::vector<std::string>>& owned,
                                         std::uint64_t chunk_size);

// Number of the tensor in the plan. NotFound.
Result<std::size_t> FindTensor(const Plan& plan, std::string_view name);

}  // namespace segue
