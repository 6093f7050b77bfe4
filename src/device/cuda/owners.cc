// SPDX-License-Identifier: Apache-2.0
//
// Making and giving back.
#include "device/cuda/owners.h"

#include <algorithm>
#include <string>

namespace segue::cuda {
namespace {

// The driver's message with what was asked for.
Status WithSize(const Status& status, const char* what, std::uint64_t size) {
  return status.WithContext(std::to_string(size) + " bytes of " + what);
}

bool IsDeviceMemory(const Context& context, CUdeviceptr at) {
  const Driver& driver = *context.driver();
  CUmemorytype kind = {};
  int ordinal = -1;
  return driver.cuPointerGetAttribute(&kind, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, at) ==
             CUDA_SUCCESS &&
         driver.cuPointerGetAttribute(&ordinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, at) ==
             CUDA_SUCCESS &&
         kind == CU_MEMORYTYPE_DEVICE && ordinal == context.device();
}

// Behind the allocation that `at` is in; `at` where there is none.
CUdeviceptr EndOfRange(const Driver& driver, CUdeviceptr at) {
  CUdeviceptr base = 0;
  std::size_t size = 0;
  if (driver.cuMemGetAddressRange(&base, &size, at) != CUDA_SUCCESS) return at;
  return std::max(at, base + size);
}

}  // namespace

Result<ContextPointer> Context::Make(DriverPointer driver, int ordinal) {
  const std::shared_ptr<Context> context(new Context(std::move(driver)));
  const Driver* const cuda = context->driver_.get();
  int count = 0;
  SEGUE_CUDA_TRY(cuda, cuDeviceGetCount, &count);
  if (ordinal < 0 || ordinal >= count) {
    return Unsupported("no device 'cuda:" + std::to_string(ordinal) + "': the driver has " +
                       std::to_string(count));
  }
  SEGUE_CUDA_TRY(cuda, cuDeviceGet, &context->device_, ordinal);
  SEGUE_CUDA_TRY(cuda, cuDevicePrimaryCtxRetain, &context->context_, context->device_);
  return ContextPointer(context);
}

Context::~Context() {
  if (context_ != nullptr) driver_->cuDevicePrimaryCtxRelease(device_);
}

ContextScope::ContextScope(const Context& context)
    : context_(context),
      status_(context.driver()->Check(context.driver()->cuCtxPushCurrent(context.get()),
                                      "cuCtxPushCurrent")) {
  if (!status_.ok()) return;
  const Driver& driver = *context.driver();
  status_ = driver.Check(driver.cuThreadExchangeStreamCaptureMode(&mode_),
                         "cuThreadExchangeStreamCaptureMode");
  CUcontext popped = nullptr;
  if (!status_.ok()) driver.cuCtxPopCurrent(&popped);
}

ContextScope::~ContextScope() {
  if (!status_.ok()) return;
  CUcontext popped = nullptr;
  context_.driver()->cuThreadExchangeStreamCaptureMode(&mode_);
  context_.driver()->cuCtxPopCurrent(&popped);
}

Status CheckDeviceMemory(const Context& context, const std::byte* address, std::uint64_t size) {
  const auto begin = reinterpret_cast<CUdeviceptr>(address);
  const CUdeviceptr end = begin + std::max<std::uint64_t>(size, 1);
  const std::string device = "CUDA device " + std::to_string(context.device());
  for (CUdeviceptr at = begin; at < end;) {
    const CUdeviceptr next = IsDeviceMemory(context, at) ? EndOfRange(*context.driver(), at) : at;
    if (next > at) {
      at = next;
    } else if (at == begin) {
      return InvalidArgument("it is not in the memory of " + device);
    } else {
      return InvalidArgument("it reaches beyond its allocation: " + std::to_string(at - begin) +
                             " of its " + std::to_string(size) + " bytes are memory of " + device);
    }
  }
  return {};
}

Result<Stream> MakeStream(const DriverPointer& driver, StreamPriority priority) {
  int least = 0;
  int greatest = 0;
  SEGUE_CUDA_TRY(driver, cuCtxGetStreamPriorityRange, &least, &greatest);
  CUstream stream = nullptr;
  SEGUE_CUDA_TRY(driver, cuStreamCreateWithPriority, &stream, CU_STREAM_NON_BLOCKING,
                 priority == StreamPriority::kGreatest ? greatest : least);
  return Stream(driver, stream, driver->cuStreamDestroy);
}

Result<Event> MakeEvent(const DriverPointer& driver) {
  CUevent event = nullptr;
  SEGUE_CUDA_TRY(driver, cuEventCreate, &event, CU_EVENT_DISABLE_TIMING);
  return Event(driver, event, driver->cuEventDestroy);
}

Result<Module> LoadModule(const DriverPointer& driver, const void* image) {
  CUmodule module = nullptr;
  SEGUE_CUDA_TRY(driver, cuModuleLoadData, &module, image);
  return Module(driver, module, driver->cuModuleUnload);
}

Result<DeviceBuffer> AllocateDevice(const DriverPointer& driver, std::uint64_t size) {
  if (size == 0) return DeviceBuffer();
  CUdeviceptr address = 0;
  const Status status = driver->Check(driver->cuMemAlloc(&address, size), "cuMemAlloc");
  if (!status.ok()) return WithSize(status, "device memory", size);
  return DeviceBuffer{Owned<CUdeviceptr>(driver, address, driver->cuMemFree), size};
}

Result<PinnedBuffer> AllocatePinned(const DriverPointer& driver, std::uint64_t size) {
  if (size == 0) return PinnedBuffer();
  void* address = nullptr;
  const CUresult result = driver->cuMemHostAlloc(&address, size, 0);
  Status status = driver->Check(result, "cuMemHostAlloc");
  // A container that may lock no pages, or a system that has none left to lock.
  if (result == CUDA_ERROR_NOT_PERMITTED || result == CUDA_ERROR_OPERATING_SYSTEM) {
    status = ResourceExhausted(status.message());
  }
  if (!status.ok()) return WithSize(status, "pinned host memory", size);
  return PinnedBuffer{Owned<void*>(driver, address, driver->cuMemFreeHost), size};
}

}  // namespace segue::cuda
