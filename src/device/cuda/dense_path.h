// SPDX-License-Identifier: Apache-2.0
//
// Dense path: kernels that read whole chunks, a group of them at a time. The processor undoes the
// codec of one group in a slot while the device works on the group before it.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/worker_pool.h"
#include "device/cuda/kernel_set.h"
#include "device/cuda/loaded_batch.h"
#include "device/cuda/slots.h"
#include "device/device.h"

namespace segue::cuda {

// A chunk whose data does not decode, with what the decoder said.
struct Undecodable {
  std::size_t index = 0;  // Into the batch.
  Status reason;
};

// One run of a kernel over some of a batch's chunks.
struct DenseRun {
  Kernel kernel = Kernel::kDenseScan;
  const LoadedBatch* loaded = nullptr;
  std::span<const ChunkWork> batch;
  std::span<const std::size_t> items;  // Numbers into the batch.
  std::function<void(std::size_t index, const RowSums& sums)> take;
};

class DensePath {
 public:
  // Slots for groups of at least one chunk of `chunk_size_max` bytes. `threads`: 0 for every core.
  static Result<DensePath> Make(const DriverPointer& driver, std::uint64_t chunk_size_max,
                                unsigned threads);

  // Gives `take` each chunk's sums. Nothing is enqueued behind a chunk that does not decode.
  // Returns when everything has run.
  Result<std::optional<Undecodable>> Run(const KernelSet& kernels, const DenseRun& run,
                                         CUstream stream);

  // Bytes of chunks that a group may have.
  std::uint64_t group_size_max() const;

 private:
  // What one slot holds: the bytes of some chunks, then their rows.
  struct Group {
    std::span<const std::size_t> items;
    std::vector<std::uint64_t> offsets;  // Of each chunk's bytes.
    std::uint64_t rows_offset = 0;
    std::uint64_t size = 0;
  };

  Group NextGroup(const DenseRun& run, std::span<const std::size_t> items) const;
  std::optional<Undecodable> Decode(const DenseRun& run, const Group& group, std::byte* slot);
  Status Enqueue(const KernelSet& kernels, const DenseRun& run, const Group& group, std::byte* slot,
                 CUstream stream);
  void Collect(const DenseRun& run, unsigned slot);

  DriverPointer driver_;
  std::unique_ptr<WorkerPool> pool_;
  std::vector<MaskDecoder> decoders_;  // One a thread.
  Slots slots_;
  std::array<DeviceBuffer, 2> device_;  // The slots' copies.
  std::array<DeviceBuffer, 2> device_sums_;
  std::array<PinnedBuffer, 2> sums_;
  std::array<std::span<const std::size_t>, 2> running_;
};

}  // namespace segue::cuda
