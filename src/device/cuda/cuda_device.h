// SPDX-License-Identifier: Apache-2.0
//
// CUDA device: live weights in the memory of an NVIDIA GPU (compute capability 8.0 and newer).
// Follows the contract of Device; addresses of live bytes are addresses of the GPU.
#pragma once

#include <memory>
#include <string>

#include "device/accelerator.h"
#include "device/cuda/driver.h"

namespace segue::cuda {

struct CudaDeviceOptions {
  int ordinal = 0;       // As the driver counts.
  unsigned threads = 0;  // That undo codecs; 0 for every core.
  // Who undoes Snappy and LZ4: "engine", "multiprocessors", "nvcomp", "processor"; empty: the first
  // of these that there is, without nvCOMP.
  std::string decoder = {};
  std::string nvcomp_library = {};  // A file; empty: as the dynamic linker finds it.
  // Bytes of the GPU's and the host's memory that staging may take; 0: no bound.
  std::uint64_t memory_max = 0;
  // The two slots stay between calls. Otherwise each call takes them, also that inside the pause.
  bool keeps_slots = true;
  bool keeps_batch = true;  // Memory of a batch that is unloaded, for the next one.
};

// Unsupported: the GPU is older than 8.0.
Result<std::shared_ptr<Accelerator>> MakeCudaDevice(std::shared_ptr<const Driver> driver,
                                                    const CudaDeviceOptions& options);

}  // namespace segue::cuda
