// SPDX-License-Identifier: Apache-2.0
//
// Dense path: kernels that read whole chunks whose codec the processor undoes, a group of them at a
// time: it fills one slot while the device works on the other.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "base/worker_pool.h"
#include "device/cuda/group_slots.h"

namespace segue::cuda {

class DensePath {
 public:
  // `threads`: 0 for every core.
  explicit DensePath(unsigned threads);

  // Gives `take` each chunk's sums. Nothing is enqueued behind a chunk that does not decode.
  // Returns when everything has run.
  Result<std::optional<Undecodable>> Run(const KernelSet& kernels, GroupSlots& slots,
                                         const DenseRun& run, CUstream stream);
  // What a decoder here has to say of one chunk.
  Status Examine(const ChunkWork& work);
  // Nobody else's while Run() is under way.
  WorkerPool& pool() { return *pool_; }

 private:
  std::optional<Undecodable> Decode(const DenseRun& run, const Group& group, std::byte* slot);
  Status Enqueue(const KernelSet& kernels, GroupSlots& slots, const DenseRun& run,
                 const Group& group, std::byte* slot, CUstream stream);

  std::unique_ptr<WorkerPool> pool_;
  std::vector<MaskDecoder> decoders_;  // One a thread.
};

}  // namespace segue::cuda
