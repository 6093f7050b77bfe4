// SPDX-License-Identifier: Apache-2.0
//
// Making and giving back.
#include "device/cuda/owners.h"

#include <string>

namespace segue::cuda {
namespace {

// The driver's message with what was asked for.
Status WithSize(const Status& status, const char* what, std::uint64_t size) {
  return status.WithContext(std::to_string(size) + " bytes of " + what);
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
                                      "cuCtxPushCurrent")) {}

ContextScope::~ContextScope() {
  CUcontext popped = nullptr;
  if (status_.ok()) context_.driver()->cuCtxPopCurrent(&popped);
}

Status CheckDeviceMemory(const Context& context, const std::byte* address, std::uint64_t size) {
  const Driver& driver = *context.driver();
  // Both ends, as a buffer may begin in one allocation and be said to reach over the next.
  for (const std::byte* place : {address, address + (size == 0 ? 0 : size - 1)}) {
    CUmemorytype kind = {};
    int ordinal = -1;
    const auto at = reinterpret_cast<CUdeviceptr>(place);
    const bool is_known =
        driver.cuPointerGetAttribute(&kind, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, at) == CUDA_SUCCESS &&
        driver.cuPointerGetAttribute(&ordinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, at) ==
            CUDA_SUCCESS;
    if (is_known && kind == CU_MEMORYTYPE_DEVICE && ordinal == context.device()) continue;
    return InvalidArgument("it is not in the memory of CUDA device " +
                           std::to_string(context.device()));
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
  const Status status = driver->Check(driver->cuMemHostAlloc(&address, size, 0), "cuMemHostAlloc");
  if (!status.ok()) return WithSize(status, "pinned host memory", size);
  return PinnedBuffer{Owned<void*>(driver, address, driver->cuMemFreeHost), size};
}

}  // namespace segue::cuda
