// SPDX-License-Identifier: Apache-2.0
//
// Loading and launching. The image is the fat binary that CMake makes of kernels.cu.
#include "device/cuda/kernel_set.h"

#include <algorithm>
#include <string>

#include "base/bytes.h"
#include "base/digest.h"
#include "device/cuda/kernels_image.h"

namespace segue::cuda {
namespace {

constexpr int kCapabilityMin = 8;

}  // namespace

Status CheckCapability(const Context& context) {
  int major = 0;
  SEGUE_CUDA_TRY(context.driver(), cuDeviceGetAttribute, &major,
                 CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, context.device());
  if (major >= kCapabilityMin) return {};
  return Unsupported("the GPU has compute capability " + std::to_string(major) +
                     ".x; 8.0 or newer is needed");
}

Result<KernelSet> KernelSet::Load(const DriverPointer& driver, CUstream stream) {
  KernelSet set;
  set.driver_ = driver;
  SEGUE_ASSIGN_OR_RETURN(set.module_, LoadModule(driver, KernelsImage()));
  for (unsigned i = 0; i < kKernelCount; ++i) {
    SEGUE_CUDA_TRY(driver, cuModuleGetFunction, &set.functions_[i], set.module_.get(),
                   kKernelNames[i]);
  }
  constexpr std::uint64_t kLaneSize = sizeof(kDigestWordKeys[0]);
  SEGUE_ASSIGN_OR_RETURN(set.word_keys_, AllocateDevice(driver, 2 * kLaneSize));
  for (unsigned lane = 0; lane < 2; ++lane) {
    SEGUE_CUDA_TRY(driver, cuMemcpyHtoDAsync, set.word_keys_.address() + lane * kLaneSize,
                   kDigestWordKeys[lane].data(), kLaneSize, stream);
  }
  for (unsigned i = 0; i < kKernelCount; ++i) {
    SEGUE_RETURN_IF_ERROR(set.Enqueue(static_cast<Kernel>(i), 0, 0, 0, stream));
  }
  SEGUE_CUDA_TRY(driver, cuStreamSynchronize, stream);
  return set;
}

Status KernelSet::Launch(Kernel kernel, CUdeviceptr rows, std::uint64_t row_count, CUdeviceptr sums,
                         CUstream stream) const {
  return row_count == 0 ? Status() : Enqueue(kernel, rows, row_count, sums, stream);
}

// At least one block.
Status KernelSet::Enqueue(Kernel kernel, CUdeviceptr rows, std::uint64_t row_count,
                          CUdeviceptr sums, CUstream stream) const {
  CUdeviceptr keys = word_keys_.address();
  void* arguments[] = {&rows, &row_count, &keys, &sums};
  const unsigned warps = WarpsPerBlock(row_count);
  const auto blocks = static_cast<unsigned>(std::max<std::uint64_t>(DivideUp(row_count, warps), 1));
  SEGUE_CUDA_TRY(driver_, cuLaunchKernel, functions_[static_cast<unsigned>(kernel)], blocks, 1, 1,
                 warps * kLaneCount, 1, 1, 0, stream, arguments, nullptr);
  return {};
}

}  // namespace segue::cuda
