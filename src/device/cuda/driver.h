// SPDX-License-Identifier: Apache-2.0
//
// Driver: the functions of the CUDA driver API that Segue calls, found at run time, so that the
// same library runs where there is no GPU and tests can load a driver of their own. Knows names and
// error codes, nothing of what is done with them. API: CUDA 12 and newer.
#pragma once

#include <cuda.h>

#include <memory>
#include <string>

#include "segue/status.h"

// Under the names that the toolkit's header maps to symbols (cuMemAlloc to cuMemAlloc_v2, ...).
#define SEGUE_CUDA_FUNCTIONS(X)        \
  X(cuInit)                            \
  X(cuDriverGetVersion)                \
  X(cuDeviceGetCount)                  \
  X(cuDeviceGet)                       \
  X(cuDeviceGetAttribute)              \
  X(cuDeviceGetName)                   \
  X(cuDeviceTotalMem)                  \
  X(cuDevicePrimaryCtxRetain)          \
  X(cuDevicePrimaryCtxRelease)         \
  X(cuCtxPushCurrent)                  \
  X(cuCtxPopCurrent)                   \
  X(cuCtxSynchronize)                  \
  X(cuThreadExchangeStreamCaptureMode) \
  X(cuCtxGetStreamPriorityRange)       \
  X(cuPointerGetAttribute)             \
  X(cuMemGetAddressRange)              \
  X(cuIpcGetMemHandle)                 \
  X(cuIpcOpenMemHandle)                \
  X(cuIpcCloseMemHandle)               \
  X(cuMemAlloc)                        \
  X(cuMemFree)                         \
  X(cuMemHostAlloc)                    \
  X(cuMemFreeHost)                     \
  X(cuMemcpyHtoDAsync)                 \
  X(cuMemcpyDtoHAsync)                 \
  X(cuMemcpyAsync)                     \
  X(cuMemsetD8Async)                   \
  X(cuStreamCreateWithPriority)        \
  X(cuStreamDestroy)                   \
  X(cuStreamSynchronize)               \
  X(cuEventCreate)                     \
  X(cuEventDestroy)                    \
  X(cuEventRecord)                     \
  X(cuEventSynchronize)                \
  X(cuModuleLoadData)                  \
  X(cuModuleUnload)                    \
  X(cuModuleGetFunction)               \
  X(cuLaunchKernel)                    \
  X(cuGetErrorName)                    \
  X(cuGetErrorString)

// For the decompression engine alone. Null in a driver that is too old (before 12.8) for them.
#define SEGUE_CUDA_ENGINE_FUNCTIONS(X) \
  X(cuMemGetAllocationGranularity)     \
  X(cuMemCreate)                       \
  X(cuMemRelease)                      \
  X(cuMemAddressReserve)               \
  X(cuMemAddressFree)                  \
  X(cuMemMap)                          \
  X(cuMemUnmap)                        \
  X(cuMemSetAccess)                    \
  X(cuMemBatchDecompressAsync)

namespace segue::cuda {

// The library of every machine with an NVIDIA driver.
inline constexpr const char* kDriverLibrary = "libcuda.so.1";

// Unsupported for a driver of an older major version (1000 * major + 10 * minor) than the toolkit
// that the kernels are built by.
Status CheckDriverVersion(int version);

class Driver {
 public:
  // Unsupported where the library is not there, is too old, or knows no device.
  static Result<std::shared_ptr<const Driver>> Load(const std::string& library = kDriverLibrary);
  ~Driver();
  Driver(const Driver&) = delete;
  Driver& operator=(const Driver&) = delete;

  // OK, or what `call` ended with. ResourceExhausted: no memory. Internal: anything else; the
  // device may have to be given up.
  Status Check(CUresult result, const char* call) const;

  bool has_engine_functions() const { return has_engine_functions_; }

#define SEGUE_CUDA_MEMBER(name) decltype(&::name) name = nullptr;
  SEGUE_CUDA_FUNCTIONS(SEGUE_CUDA_MEMBER)
  SEGUE_CUDA_ENGINE_FUNCTIONS(SEGUE_CUDA_MEMBER)
#undef SEGUE_CUDA_MEMBER

 private:
  Driver() = default;
  Status Find();

  void* library_ = nullptr;
  bool has_engine_functions_ = false;
};

}  // namespace segue::cuda

// Calls a function of `driver` (a pointer) and returns its failure from the enclosing function.
#define SEGUE_CUDA_TRY(driver, call, ...) \
  SEGUE_RETURN_IF_ERROR((driver)->Check((driver)->call(__VA_ARGS__), #call))
