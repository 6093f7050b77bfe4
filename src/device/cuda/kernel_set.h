// SPDX-License-Identifier: Apache-2.0
//
// KernelSet: the kernels of kernels.cu, loaded into a context, and what all of them need. Knows how
// to launch, not what for.
#pragma once

#include <array>
#include <cstdint>

#include "device/cuda/kernel_launch.h"
#include "device/cuda/kernel_rows.h"
#include "device/cuda/owners.h"

namespace segue::cuda {

// Unsupported where the device is older than what the kernels are compiled for.
Status CheckCapability(const Context& context);

class KernelSet {
 public:
  // For a device that CheckCapability() takes. Each kernel has been launched once, without rows: by
  // default a driver loads a kernel at its first launch, and that may not be in a pause, nor what
  // fails in it.
  static Result<KernelSet> Load(const DriverPointer& driver, CUstream stream);

  // One warp a row. `rows` and `sums` (one a row): what the kernel takes and gives, SparseRow or
  // DenseRow and RowSums, FindRow and FindSums, PackRow and PackSums, DecodeRow and DecodeResult.
  // Returns before it has run.
  Status Launch(Kernel kernel, CUdeviceptr rows, std::uint64_t row_count, CUdeviceptr sums,
                CUstream stream) const;

 private:
  Status Enqueue(Kernel kernel, CUdeviceptr rows, std::uint64_t row_count, CUdeviceptr sums,
                 CUstream stream) const;

  DriverPointer driver_;
  Module module_;
  std::array<CUfunction, kKernelCount> functions_ = {};
  DeviceBuffer word_keys_;  // Lane 0, then lane 1.
};

}  // namespace segue::cuda
