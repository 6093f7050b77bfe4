// SPDX-License-Identifier: Apache-2.0
//
// Engine arena: host memory that the decompression engine reads. Pinned, on the memory node of the
// host that is closest to the GPU, made for that use, and asked afterwards whether it is: the flag
// alone succeeds on GPUs without an engine.
#pragma once

#include <cstdint>
#include <memory>

#include "device/cuda/staging_memory.h"

namespace segue::cuda {

// Unsupported: the engine cannot use the memory at `address`, or nobody says that it can. Memory of
// cuMemAlloc() it can, and what was made for it.
Status CheckForEngine(const DriverPointer& driver, CUdeviceptr address, const char* what);

class EngineArena {
 public:
  EngineArena() = default;
  // Unsupported: the memory is there, but not for the engine.
  static Result<EngineArena> Make(const StagingMemory& memory, CUdevice device, int host_node,
                                  std::uint64_t size);

  // The same place for the host and the device.
  CUdeviceptr address() const { return mapping_ != nullptr ? mapping_->address : 0; }
  std::uint64_t size() const { return mapping_ != nullptr ? mapping_->size : 0; }
  std::byte* data() const { return reinterpret_cast<std::byte*>(address()); }

 private:
  struct Mapping {
    DriverPointer driver;
    std::shared_ptr<const void> charge = nullptr;
    std::uint64_t size = 0;
    CUmemGenericAllocationHandle handle = 0;
    CUdeviceptr address = 0;
    bool has_handle = false;
    bool is_mapped = false;

    ~Mapping();
  };
  std::unique_ptr<Mapping> mapping_;
};

}  // namespace segue::cuda
