// SPDX-License-Identifier: Apache-2.0
//
// LoadedBatch: what the kernels need of one batch of chunks, in the device's memory before the
// pause: the streams of its sparse rows as they were staged, views, rows. Rows of other encodings
// keep their bytes on the host, which undoes them in slots (dense_path.h).
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "device/cuda/kernel_rows.h"
#include "device/cuda/slots.h"
#include "device/device.h"

namespace segue::cuda {

class LoadedBatch {
 public:
  // In place of the batch before, whose memory serves where it is large enough: the driver makes
  // the whole GPU wait to take memory back. Everything is enqueued on `stream`. ResourceExhausted
  // where it does not fit.
  Status Load(const StagingMemory& memory, Slots& slots, CUstream stream,
              std::span<const ChunkWork> batch);
  // For kernels that read no staged data: views alone.
  Status LoadViews(const StagingMemory& memory, Slots& slots, CUstream stream,
                   std::span<const ChunkWork> batch);

  // Bytes that Load() and LoadViews() take of the device's memory.
  static std::uint64_t SizeOf(std::span<const ChunkWork> batch);
  static std::uint64_t SizeOfViews(std::span<const ChunkWork> batch);

  // The batch is gone; its memory stays for the next one.
  void Forget();

  // Work of encoding `sparse`, ascending: what row i stands for.
  std::span<const std::size_t> sparse() const { return sparse_; }
  std::span<const std::size_t> dense() const { return dense_; }
  CUdeviceptr sparse_rows() const { return sparse_rows_; }
  // Where the chunk lies, for rows that are made later.
  ChunkPlaceRow Place(const ChunkWork& work) const;

  // Bytes in the device's memory.
  std::uint64_t size() const { return memory_.size; }

 private:
  std::uint64_t PlanViews(std::span<const ChunkWork> batch);
  std::uint64_t PlanSparse(std::span<const ChunkWork> batch);
  Status Allocate(const StagingMemory& memory, std::uint64_t size);
  Status UploadViews(Uploader& uploader, std::span<const ChunkWork> batch);
  Status UploadSparse(Uploader& uploader, std::span<const ChunkWork> batch);

  DeviceBuffer memory_;
  std::map<const ViewMap*, CUdeviceptr> views_;
  std::vector<std::size_t> sparse_;
  std::vector<std::size_t> dense_;
  CUdeviceptr sparse_rows_ = 0;
};

}  // namespace segue::cuda
