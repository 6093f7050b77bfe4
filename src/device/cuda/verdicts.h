// SPDX-License-Identifier: Apache-2.0
//
// Verdicts: what the sums of a kernel say of a chunk, and the first fault of several.
#pragma once

#include <optional>
#include <utility>

#include "device/cuda/group_slots.h"
#include "device/cuda/kernel_rows.h"
#include "device/device.h"

namespace segue::cuda {

inline Digest DifferenceOf(const RowSums& sums) {
  return {{sums.difference[0], sums.difference[1]}};
}
inline Digest BeforeOf(const RowSums& sums) { return {{sums.before[0], sums.before[1]}}; }

// The fault of the lowest number; of one chunk the first that was found.
class FirstFault {
 public:
  void Add(std::size_t index, ChunkVerdict verdict, Status detail = {}) {
    if (!fault_ || index < fault_->index) fault_ = ChunkFault{index, verdict, std::move(detail)};
  }
  const std::optional<ChunkFault>& get() const { return fault_; }

 private:
  std::optional<ChunkFault> fault_;
};

inline void AddTo(FirstFault& first, std::optional<Undecodable> undecodable) {
  if (!undecodable) return;
  const bool is_payload = undecodable->reason.code() == StatusCode::kCorruption;
  first.Add(undecodable->index,
            is_payload ? ChunkVerdict::kPayloadDiffers : ChunkVerdict::kDeviceFailed,
            std::move(undecodable->reason));
}

// Whether the sums of a sparse row's preflight leave the base unproven.
inline bool IsUnproven(const ChunkWork& work, const RowSums& sums) {
  if (work.touched == 0) return true;
  return work.view == nullptr && sums.touched != work.touched;
}

// What the preflight of a part, or the row of a whole chunk, says must come out.
inline Digest ExpectedDifference(const ChunkWork& work) {
  return work.view != nullptr ? work.part->difference : work.after - work.before;
}

}  // namespace segue::cuda
