// SPDX-License-Identifier: Apache-2.0
//
// Put tensors: those of the version that is begun, each compared with the baseline when it is put
// and not needed afterwards. Each tensor of this owner is put once, or said to be unchanged.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "delta/delta_builder.h"
#include "delta/encoder.h"
#include "delta/profile.h"
#include "delta/tensor_set.h"
#include "segue/publisher.h"
#include "segue/status.h"
#include "sync/published_model.h"

namespace segue {

class PutTensors {
 public:
  // `model` outlives it. `threads`: 0 for every core.
  PutTensors(const PublishedModel& model, Profile profile, unsigned threads)
      : model_(model), builder_(model.plan, profile, threads) {}

  // Forgets all that was put.
  void Clear();

  // What is to be compared. InvalidArgument or Unsupported, with nothing changed, for a tensor that
  // is unknown, not owned, put already, or not what the model says it is (case C4).
  Result<TensorChange> ChangeOf(std::string_view name, const std::byte* data,
                                std::uint64_t size) const;
  Result<TensorChange> ChangeOf(const SourceTensor& tensor) const;
  // Those that have data, in the order of the payload, so that what is complete of it can be
  // compressed at once.
  Result<std::vector<TensorChange>> ChangesOf(std::span<const SourceTensor> tensors) const;
  // Each comes from ChangeOf(). After a failure only Clear() is left.
  Status Compare(const std::vector<TensorChange>& changes);

  Status AddUnchanged(std::string_view name);
  // What was not put is unchanged, or missing: InvalidArgument.
  Status AddMissing(bool is_unchanged);

  // All that was compared; then there is nothing left to put to.
  Result<StagedDelta> Take(EncodedGroups* early) { return builder_.Take(early); }
  // Digests of what was put and of what is unchanged.
  const ChunkEncoder::Sums& sums() const { return sums_; }

 private:
  Result<std::size_t> Find(std::string_view name) const;
  Result<TensorChange> ChangeAt(std::size_t tensor, const std::byte* data,
                                std::uint64_t size) const;
  void TakeUnchanged(std::size_t tensor);

  const PublishedModel& model_;
  DeltaBuilder builder_;
  TensorSet put_;
  ChunkEncoder::Sums sums_;
};

}  // namespace segue
