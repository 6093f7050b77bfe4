// SPDX-License-Identifier: Apache-2.0
//
// What a launch of the fake driver runs: the kernels of kernels.cu, by their cores. Not a model of
// anything that a kernel does with more than one warp.
#pragma once

#include <cuda.h>

#include <cstdint>

#include "device/cuda/kernel_launch.h"

namespace fake_cuda {

// The four arguments that all kernels take.
struct Arguments {
  CUdeviceptr rows;
  std::uint64_t row_count;
  CUdeviceptr keys;
  CUdeviceptr sums;
};

// `warps`: how many were launched. `flips`: the kernel stores one wrong bit.
void RunKernel(segue::cuda::Kernel kernel, const Arguments& arguments, std::uint64_t warps,
               bool flips);

}  // namespace fake_cuda
