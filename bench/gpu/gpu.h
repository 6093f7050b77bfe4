// SPDX-License-Identifier: Apache-2.0
//
// Gpu: the device under check: its driver and context, and memory that parts fill, copy and read
// back by themselves, so that the device never judges itself.
#pragma once

#include <memory>
#include <string>

#include "base/bytes.h"
#include "device/accelerator.h"
#include "device/cuda/owners.h"

namespace segue::gpu_check {

class Gpu {
 public:
  // The first device of the machine's driver, or of the one that SEGUE_CUDA_DRIVER names.
  static Result<std::unique_ptr<Gpu>> Open(unsigned threads);

  const cuda::DriverPointer& driver() const { return context_->driver(); }
  const std::shared_ptr<Accelerator>& accelerator() const { return accelerator_; }
  // Another accelerator in its place, with that decoder; empty: as it is chosen. Unsupported: there
  // is no such decoder here, and the one before stays.
  Status UseDecoder(const std::string& decoder);
  CUdevice device() const { return context_->device(); }
  CUstream stream() const { return stream_.get(); }
  const std::string& name() const { return name_; }
  int driver_version() const { return driver_version_; }
  std::uint64_t memory_size() const { return memory_size_; }

  Result<cuda::DeviceBuffer> Allocate(std::uint64_t size) const;
  // Enqueued, between any two places; Wait() for the end.
  Status Copy(CUdeviceptr target, CUdeviceptr source, std::uint64_t size) const;
  Status Upload(CUdeviceptr target, ByteSpan source) const;
  Status Fill(CUdeviceptr target, std::uint8_t value, std::uint64_t size) const;
  Status Wait() const;
  // Whether device memory holds these bytes; through pinned memory, piece by piece.
  Result<bool> Holds(CUdeviceptr source, ByteSpan expected) const;

 private:
  Gpu() = default;

  // In the order in which they are needed; they go the other way round.
  cuda::ContextPointer context_;
  std::unique_ptr<cuda::ContextScope> scope_;  // The check's thread has the context throughout.
  cuda::Stream stream_;
  cuda::PinnedBuffer pinned_;
  unsigned threads_ = 0;
  std::shared_ptr<Accelerator> accelerator_;
  std::string name_;
  int driver_version_ = 0;
  std::uint64_t memory_size_ = 0;
};

}  // namespace segue::gpu_check
