// SPDX-License-Identifier: Apache-2.0
//
// Slots: two buffers of pinned host memory that take turns. While the device reads one, the other
// is filled; a slot is free again once all that was enqueued with it has run.
#pragma once

#include <array>
#include <cstdint>

#include "device/cuda/staging_memory.h"

namespace segue::cuda {

class Slots {
 public:
  Slots() = default;
  static Result<Slots> Make(const StagingMemory& memory, std::uint64_t size);

  const DriverPointer& driver() const { return driver_; }
  std::uint64_t size() const { return buffers_[0].size; }
  // The other slot, once the device is done with it.
  Result<std::byte*> Next();
  unsigned current() const { return current_; }
  // All that uses the current slot has been enqueued on `stream`.
  Status Release(CUstream stream);

 private:
  DriverPointer driver_;
  std::array<PinnedBuffer, 2> buffers_;
  std::array<Event, 2> done_;
  std::array<bool, 2> in_use_ = {};
  unsigned current_ = 0;
};

// Copies pieces of host memory one after the other into one stretch of device memory.
class Uploader {
 public:
  // All must outlive the uploader. `target` has room for everything.
  Uploader(const DriverPointer& driver, Slots& slots, CUdeviceptr target, CUstream stream)
      : driver_(driver), slots_(slots), target_(target), stream_(stream) {}

  // Returns the device address, a multiple of `alignment` (a power of two, at most 256).
  Result<CUdeviceptr> Append(const void* source, std::uint64_t size, std::uint64_t alignment);
  // Everything is enqueued.
  Status Finish();

 private:
  Status Write(const std::byte* source, std::uint64_t size);
  Status Send();

  const DriverPointer& driver_;
  Slots& slots_;
  const CUdeviceptr target_;
  const CUstream stream_;
  std::byte* slot_ = nullptr;
  std::uint64_t filled_ = 0;  // Of the slot.
  std::uint64_t sent_ = 0;    // Of the target.
};

}  // namespace segue::cuda
