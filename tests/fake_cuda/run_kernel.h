// SPDX-License-Identifier: Apache-2.0
//
// What a launch of the fake driver runs: the kernels of kernels.cu by their cores, on HostWarp; or,
// with SEGUE_FAKE_CUDA_PTX=FILE in the environment, what the compiler made of them (tests/ptx),
// with SEGUE_FAKE_CUDA_SEED=N in a random order of lanes. A fault in there ends the program.
#pragma once

#include <cuda.h>

#include <cstdint>

#include "base/digest.h"
#include "device/cuda/kernel_launch.h"

namespace fake_cuda {

// The four arguments that all kernels take.
struct Arguments {
  CUdeviceptr rows;
  std::uint64_t row_count;
  CUdeviceptr keys;
  CUdeviceptr sums;
};

// `flips`: the kernel stores one wrong bit.
void RunKernel(segue::cuda::Kernel kernel, const Arguments& arguments, unsigned blocks,
               unsigned threads, bool flips);

// One row by one warp, in memory of the host.
template <typename Sums, typename Row>
Sums RunRow(segue::cuda::Kernel kernel, const Row& row) {
  Sums sums = {};
  const Arguments arguments = {reinterpret_cast<CUdeviceptr>(&row), 1,
                               reinterpret_cast<CUdeviceptr>(segue::kDigestWordKeys[0].data()),
                               reinterpret_cast<CUdeviceptr>(&sums)};
  RunKernel(kernel, arguments, 1, segue::cuda::kLaneCount, false);
  return sums;
}

}  // namespace fake_cuda
