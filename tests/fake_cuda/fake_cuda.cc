// SPDX-License-Identifier: Apache-2.0
//
// Fake CUDA driver: a shared library in place of libcuda.so.1, for tests of the host code. Device
// memory is pages of this process that nobody else may touch (memory.h); kernels run their cores on
// HostWarp, block by block and warp by warp; copies and kernels wait in their stream until somebody
// waits for them, so that a missing wait is seen; what needs a context fails in a thread that has
// none; and any call can be made to fail. Not a model of speed, nor of anything that a kernel does
// with more than one warp.
#include "fake_cuda/fake_cuda.h"

#include <unistd.h>

#include <cstdio>
#include <cstring>

#include "fake_cuda/run_kernel.h"
#include "fake_cuda/world.h"

using fake_cuda::capture_mode;
using fake_cuda::ContextOf;
using fake_cuda::current;
using fake_cuda::Current;
using fake_cuda::FakeEvent;
using fake_cuda::FakeStream;
using fake_cuda::kShareMagic;
using fake_cuda::SharedPages;
using fake_cuda::World;
using segue::cuda::Kernel;

CUresult CUDAAPI cuInit(unsigned) {
  SEGUE_FAKE_ENTER(cuInit);
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuDriverGetVersion(int* version) {
  SEGUE_FAKE_ENTER(cuDriverGetVersion);
  *version = 13'000;
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuDeviceGetCount(int* count) {
  SEGUE_FAKE_ENTER(cuDeviceGetCount);
  *count = World::Get().device_count;
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuDeviceGet(CUdevice* device, int ordinal) {
  SEGUE_FAKE_ENTER(cuDeviceGet);
  if (ordinal < 0 || ordinal >= World::Get().device_count) return CUDA_ERROR_INVALID_DEVICE;
  *device = ordinal;
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuDeviceGetAttribute(int* value, CUdevice_attribute attribute, CUdevice) {
  SEGUE_FAKE_ENTER(cuDeviceGetAttribute);
  const fake_cuda::Engine& engine = World::Get().engine;
  switch (attribute) {
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR: *value = 9; break;
    case CU_DEVICE_ATTRIBUTE_MEM_DECOMPRESS_ALGORITHM_MASK:
      *value = static_cast<int>(engine.algorithms);
      break;
    case CU_DEVICE_ATTRIBUTE_MEM_DECOMPRESS_MAXIMUM_LENGTH:
      *value = static_cast<int>(engine.size_max);
      break;
    case CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID: *value = engine.host_node; break;
    default: *value = 0;
  }
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuDeviceGetName(char* name, int size, CUdevice) {
  SEGUE_FAKE_ENTER(cuDeviceGetName);
  std::snprintf(name, static_cast<std::size_t>(size), "fake CUDA device");
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuDeviceTotalMem(std::size_t* size, CUdevice) {
  SEGUE_FAKE_ENTER(cuDeviceTotalMem);
  *size = std::size_t{1} << 30;
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuDevicePrimaryCtxRetain(CUcontext* context, CUdevice device) {
  SEGUE_FAKE_ENTER(cuDevicePrimaryCtxRetain);
  *context = ContextOf(device);
  ++World::Get().contexts;
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuDevicePrimaryCtxRelease(CUdevice) {
  SEGUE_FAKE_ASK(cuDevicePrimaryCtxRelease);
  --World::Get().contexts;
  return asked;
}

CUresult CUDAAPI cuCtxPushCurrent(CUcontext context) {
  current.push_failed = true;
  SEGUE_FAKE_ENTER(cuCtxPushCurrent);
  current.push_failed = false;
  if (context == nullptr || current.depth == Current::kDepthMax) return CUDA_ERROR_INVALID_CONTEXT;
  current.devices[current.depth++] =
      static_cast<int>(reinterpret_cast<std::uintptr_t>(context)) - 1;
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuCtxPopCurrent(CUcontext* context) {
  SEGUE_FAKE_ASK(cuCtxPopCurrent);
  if (current.depth == 0) return CUDA_ERROR_INVALID_CONTEXT;
  *context = ContextOf(current.devices[--current.depth]);
  return asked;
}

CUresult CUDAAPI cuCtxSynchronize() {
  SEGUE_FAKE_IN_CONTEXT(cuCtxSynchronize);
  World::Get().RunAll();
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode* mode) {
  SEGUE_FAKE_ENTER(cuThreadExchangeStreamCaptureMode);
  std::swap(*mode, capture_mode);
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuCtxGetStreamPriorityRange(int* least, int* greatest) {
  SEGUE_FAKE_IN_CONTEXT(cuCtxGetStreamPriorityRange);
  *least = 0;
  *greatest = -5;
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuPointerGetAttribute(void* value, CUpointer_attribute attribute,
                                       CUdeviceptr address) {
  SEGUE_FAKE_IN_CONTEXT(cuPointerGetAttribute);
  if (attribute == CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE) {
    const fake_cuda::Engine& engine = World::Get().engine;
    const bool is_device = World::Get().memory.Holds(address, 1);
    if (!is_device && !engine.Knows(address)) return CUDA_ERROR_INVALID_VALUE;
    const unsigned is_capable =
        (is_device ? engine.TakesDevice() : engine.IsCapable(address, 1)) ? 1 : 0;
    std::memcpy(value, &is_capable, sizeof(is_capable));
    return CUDA_SUCCESS;
  }
  if (!World::Get().memory.Holds(address, 1)) return CUDA_ERROR_INVALID_VALUE;
  const int answer = attribute == CU_POINTER_ATTRIBUTE_MEMORY_TYPE
                         ? int{CU_MEMORYTYPE_DEVICE}
                         : World::Get().memory.DeviceOf(address);
  std::memcpy(value, &answer, sizeof(answer));
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuMemGetAddressRange(CUdeviceptr* base, std::size_t* size, CUdeviceptr address) {
  SEGUE_FAKE_IN_CONTEXT(cuMemGetAddressRange);
  const auto [found, allocated] = World::Get().memory.Find(address);
  if (found == 0) return CUDA_ERROR_NOT_FOUND;
  *base = found;
  *size = allocated;
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuIpcGetMemHandle(CUipcMemHandle* handle, CUdeviceptr address) {
  SEGUE_FAKE_IN_CONTEXT(cuIpcGetMemHandle);
  const int file = World::Get().memory.Share(address);
  if (file < 0) return CUDA_ERROR_INVALID_VALUE;
  const SharedPages pages = {kShareMagic, getpid(), file, World::Get().memory.Find(address).second,
                             World::Get().memory.DeviceOf(address)};
  std::memset(handle, 0, sizeof(*handle));
  std::memcpy(handle, &pages, sizeof(pages));
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuIpcOpenMemHandle(CUdeviceptr* address, CUipcMemHandle handle, unsigned flags) {
  SEGUE_FAKE_IN_CONTEXT(cuIpcOpenMemHandle);
  SharedPages pages;
  std::memcpy(&pages, &handle, sizeof(pages));
  if (flags != CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS || pages.magic != kShareMagic) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (pages.process == getpid()) return CUDA_ERROR_INVALID_CONTEXT;
  *address = World::Get().memory.Map(pages.process, pages.file, pages.size, pages.device);
  return *address != 0 ? CUDA_SUCCESS : CUDA_ERROR_MAP_FAILED;
}

CUresult CUDAAPI cuIpcCloseMemHandle(CUdeviceptr address) {
  SEGUE_FAKE_ASK(cuIpcCloseMemHandle);
  SEGUE_FAKE_NEED_CONTEXT();
  World::Get().RunAll();
  return World::Get().memory.Unmap(address) ? asked : CUDA_ERROR_INVALID_VALUE;
}

CUresult CUDAAPI cuMemAlloc(CUdeviceptr* address, std::size_t size) {
  SEGUE_FAKE_IN_CONTEXT(cuMemAlloc);
  if (size == 0) return CUDA_ERROR_INVALID_VALUE;
  const std::uint64_t taken = World::Get().memory.bytes();
  if (taken + size > World::Get().device_max) return CUDA_ERROR_OUT_OF_MEMORY;
  *address = World::Get().memory.Allocate(size, current.device());
  return *address != 0 ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult CUDAAPI cuMemFree(CUdeviceptr address) {
  SEGUE_FAKE_ASK(cuMemFree);
  SEGUE_FAKE_NEED_CONTEXT();
  World::Get().RunAll();
  return World::Get().memory.Free(address) ? asked : CUDA_ERROR_INVALID_VALUE;
}

CUresult CUDAAPI cuMemHostAlloc(void** address, std::size_t size, unsigned) {
  SEGUE_FAKE_IN_CONTEXT(cuMemHostAlloc);
  if (World::Get().PinnedBytes() + size > World::Get().pinned_max) return CUDA_ERROR_OUT_OF_MEMORY;
  *address = std::malloc(size);
  if (*address == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  World::Get().pinned[*address] = size;
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuMemFreeHost(void* address) {
  SEGUE_FAKE_ASK(cuMemFreeHost);
  SEGUE_FAKE_NEED_CONTEXT();
  World::Get().RunAll();
  if (World::Get().pinned.erase(address) == 0) return CUDA_ERROR_INVALID_VALUE;
  std::free(address);
  return asked;
}

CUresult CUDAAPI cuMemcpyHtoDAsync(CUdeviceptr target, const void* source, std::size_t size,
                                   CUstream stream) {
  SEGUE_FAKE_IN_CONTEXT(cuMemcpyHtoDAsync);
  if (!World::Get().memory.Holds(target, size)) return CUDA_ERROR_INVALID_VALUE;
  return World::Get().Enqueue(stream,
                              [=] { std::memcpy(reinterpret_cast<void*>(target), source, size); });
}

CUresult CUDAAPI cuMemcpyDtoHAsync(void* target, CUdeviceptr source, std::size_t size,
                                   CUstream stream) {
  SEGUE_FAKE_IN_CONTEXT(cuMemcpyDtoHAsync);
  if (!World::Get().memory.Holds(source, size)) return CUDA_ERROR_INVALID_VALUE;
  return World::Get().Enqueue(
      stream, [=] { std::memcpy(target, reinterpret_cast<const void*>(source), size); });
}

// Between any two places; those of the device are checked, others are of the host.
CUresult CUDAAPI cuMemcpyAsync(CUdeviceptr target, CUdeviceptr source, std::size_t size,
                               CUstream stream) {
  SEGUE_FAKE_IN_CONTEXT(cuMemcpyAsync);
  for (const CUdeviceptr place : {target, source}) {
    const bool on_device = World::Get().memory.Holds(place, 0);
    if (on_device && !World::Get().memory.Holds(place, size)) return CUDA_ERROR_INVALID_VALUE;
  }
  return World::Get().Enqueue(stream, [=] {
    std::memcpy(reinterpret_cast<void*>(target), reinterpret_cast<const void*>(source), size);
  });
}

CUresult CUDAAPI cuMemsetD8Async(CUdeviceptr target, unsigned char value, std::size_t size,
                                 CUstream stream) {
  SEGUE_FAKE_IN_CONTEXT(cuMemsetD8Async);
  if (!World::Get().memory.Holds(target, size)) return CUDA_ERROR_INVALID_VALUE;
  return World::Get().Enqueue(stream,
                              [=] { std::memset(reinterpret_cast<void*>(target), value, size); });
}

CUresult CUDAAPI cuStreamCreateWithPriority(CUstream* handle, unsigned, int priority) {
  SEGUE_FAKE_IN_CONTEXT(cuStreamCreateWithPriority);
  auto* const stream = new FakeStream;
  stream->priority = priority;
  World::Get().streams.insert(stream);
  *handle = reinterpret_cast<CUstream>(stream);
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuStreamDestroy(CUstream handle) {
  SEGUE_FAKE_ASK(cuStreamDestroy);
  SEGUE_FAKE_NEED_CONTEXT();
  auto* const stream = reinterpret_cast<FakeStream*>(handle);
  if (!World::Get().streams.contains(stream)) return CUDA_ERROR_INVALID_HANDLE;
  World::Get().RunUntil(*stream, stream->enqueued);
  World::Get().streams.erase(stream);
  delete stream;
  return asked;
}

CUresult CUDAAPI cuStreamSynchronize(CUstream handle) {
  SEGUE_FAKE_IN_CONTEXT(cuStreamSynchronize);
  auto* const stream = reinterpret_cast<FakeStream*>(handle);
  if (!World::Get().streams.contains(stream)) return CUDA_ERROR_INVALID_HANDLE;
  World::Get().RunUntil(*stream, stream->enqueued);
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuEventCreate(CUevent* handle, unsigned) {
  SEGUE_FAKE_IN_CONTEXT(cuEventCreate);
  auto* const event = new FakeEvent;
  World::Get().events.insert(event);
  *handle = reinterpret_cast<CUevent>(event);
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuEventDestroy(CUevent handle) {
  SEGUE_FAKE_ASK(cuEventDestroy);
  SEGUE_FAKE_NEED_CONTEXT();
  auto* const event = reinterpret_cast<FakeEvent*>(handle);
  if (World::Get().events.erase(event) == 0) return CUDA_ERROR_INVALID_HANDLE;
  delete event;
  return asked;
}

CUresult CUDAAPI cuEventRecord(CUevent handle, CUstream stream) {
  SEGUE_FAKE_IN_CONTEXT(cuEventRecord);
  auto* const event = reinterpret_cast<FakeEvent*>(handle);
  event->stream = reinterpret_cast<FakeStream*>(stream);
  event->place = event->stream->enqueued;
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuEventSynchronize(CUevent handle) {
  SEGUE_FAKE_IN_CONTEXT(cuEventSynchronize);
  const FakeEvent& event = *reinterpret_cast<FakeEvent*>(handle);
  if (event.stream != nullptr) World::Get().RunUntil(*event.stream, event.place);
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuModuleLoadData(CUmodule* module, const void* image) {
  SEGUE_FAKE_IN_CONTEXT(cuModuleLoadData);
  if (image == nullptr) return CUDA_ERROR_INVALID_IMAGE;
  ++World::Get().modules;
  *module = reinterpret_cast<CUmodule>(&World::Get());
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuModuleUnload(CUmodule) {
  SEGUE_FAKE_ASK(cuModuleUnload);
  SEGUE_FAKE_NEED_CONTEXT();
  --World::Get().modules;
  return asked;
}

CUresult CUDAAPI cuModuleGetFunction(CUfunction* function, CUmodule, const char* name) {
  SEGUE_FAKE_IN_CONTEXT(cuModuleGetFunction);
  for (unsigned i = 0; i < segue::cuda::kKernelCount; ++i) {
    if (std::strcmp(segue::cuda::kKernelNames[i], name) != 0) continue;
    *function = reinterpret_cast<CUfunction>(std::uintptr_t{i} + 1);
    return CUDA_SUCCESS;
  }
  return CUDA_ERROR_NOT_FOUND;
}

CUresult CUDAAPI cuLaunchKernel(CUfunction function, unsigned grid_x, unsigned grid_y,
                                unsigned grid_z, unsigned block_x, unsigned block_y,
                                unsigned block_z, unsigned, CUstream stream, void** arguments,
                                void**) {
  SEGUE_FAKE_IN_CONTEXT(cuLaunchKernel);
  if (grid_x == 0 || grid_y * grid_z * block_y * block_z != 1 || block_x == 0 ||
      block_x > segue::cuda::kBlockThreadsMax || block_x % segue::cuda::kLaneCount != 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const auto kernel = static_cast<Kernel>(reinterpret_cast<std::uintptr_t>(function) - 1);
  fake_cuda::Arguments taken = {};
  std::memcpy(&taken.rows, arguments[0], sizeof(taken.rows));
  std::memcpy(&taken.row_count, arguments[1], sizeof(taken.row_count));
  std::memcpy(&taken.keys, arguments[2], sizeof(taken.keys));
  std::memcpy(&taken.sums, arguments[3], sizeof(taken.sums));
  ++World::Get().launches;
  if (reinterpret_cast<FakeStream*>(stream)->priority == 0) ++World::Get().least_launches;
  return World::Get().Enqueue(
      stream, [=] { RunKernel(kernel, taken, grid_x, block_x, World::Get().flips); });
}

CUresult CUDAAPI cuMemGetAllocationGranularity(std::size_t* granularity, const CUmemAllocationProp*,
                                               CUmemAllocationGranularity_flags) {
  SEGUE_FAKE_ENTER(cuMemGetAllocationGranularity);
  *granularity = fake_cuda::Engine::kGranularity;
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuMemCreate(CUmemGenericAllocationHandle* handle, std::size_t size,
                             const CUmemAllocationProp* kind, unsigned long long flags) {
  SEGUE_FAKE_ENTER(cuMemCreate);
  return flags == 0 ? World::Get().engine.Create(handle, size, *kind) : CUDA_ERROR_INVALID_VALUE;
}

CUresult CUDAAPI cuMemRelease(CUmemGenericAllocationHandle handle) {
  SEGUE_FAKE_ASK(cuMemRelease);
  const CUresult released = World::Get().engine.Release(handle);
  return released == CUDA_SUCCESS ? asked : released;
}

CUresult CUDAAPI cuMemAddressReserve(CUdeviceptr* address, std::size_t size, std::size_t,
                                     CUdeviceptr, unsigned long long) {
  SEGUE_FAKE_ENTER(cuMemAddressReserve);
  return World::Get().engine.Reserve(address, size);
}

CUresult CUDAAPI cuMemAddressFree(CUdeviceptr address, std::size_t size) {
  SEGUE_FAKE_ASK(cuMemAddressFree);
  const CUresult freed = World::Get().engine.FreeRange(address, size);
  return freed == CUDA_SUCCESS ? asked : freed;
}

CUresult CUDAAPI cuMemMap(CUdeviceptr address, std::size_t size, std::size_t offset,
                          CUmemGenericAllocationHandle handle, unsigned long long flags) {
  SEGUE_FAKE_ENTER(cuMemMap);
  if (offset != 0 || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  return World::Get().engine.Map(address, size, handle);
}

CUresult CUDAAPI cuMemUnmap(CUdeviceptr address, std::size_t size) {
  SEGUE_FAKE_ASK(cuMemUnmap);
  World::Get().RunAll();
  const CUresult unmapped = World::Get().engine.Unmap(address, size);
  return unmapped == CUDA_SUCCESS ? asked : unmapped;
}

CUresult CUDAAPI cuMemSetAccess(CUdeviceptr address, std::size_t size,
                                const CUmemAccessDesc* access, std::size_t count) {
  SEGUE_FAKE_ENTER(cuMemSetAccess);
  return World::Get().engine.SetAccess(address, size, access, count);
}

// The parameters are read at once, the blocks when the stream comes to them.
CUresult CUDAAPI cuMemBatchDecompressAsync(CUmemDecompressParams* blocks, std::size_t count,
                                           unsigned flags, std::size_t* error_index,
                                           CUstream stream) {
  SEGUE_FAKE_IN_CONTEXT(cuMemBatchDecompressAsync);
  World& world = World::Get();
  *error_index = SIZE_MAX;
  if (flags != 0 || count == 0) return CUDA_ERROR_INVALID_VALUE;
  const auto is_device = [&](CUdeviceptr address, std::size_t size) {
    return world.memory.Holds(address, size);
  };
  const bool is_wrong = world.engine.batches++ == world.engine.fault_call;
  const SegueFakeEngineFault fault = is_wrong ? world.engine.fault : kFakeEngineRight;
  if (fault == kFakeEngineFails) return CUDA_ERROR_INVALID_VALUE;
  for (std::size_t i = 0; i < count; ++i) {
    const bool refuses = fault == kFakeEngineRefuses && i == world.engine.fault_block;
    if (world.engine.Takes(blocks[i], is_device) && !refuses) continue;
    *error_index = i;
    return CUDA_ERROR_INVALID_VALUE;
  }
  const std::vector<CUmemDecompressParams> taken(blocks, blocks + count);
  return world.Enqueue(stream, [taken, fault, wrong = world.engine.fault_block] {
    for (std::size_t i = 0; i < taken.size(); ++i) {
      fake_cuda::Engine::Decode(taken[i], i == wrong ? fault : kFakeEngineRight);
    }
  });
}

CUresult CUDAAPI cuGetErrorName(CUresult error, const char** name) {
  *name = error == CUDA_ERROR_OUT_OF_MEMORY ? "CUDA_ERROR_OUT_OF_MEMORY" : "CUDA_ERROR_FAKE";
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuGetErrorString(CUresult, const char** text) {
  *text = "as the test asked for";
  return CUDA_SUCCESS;
}

// cuBLAS, as far as bench/gpu calls it.
SEGUE_FAKE int cublasCreate_v2(void** handle) {
  *handle = &World::Get();
  return 0;
}
SEGUE_FAKE int cublasSetStream_v2(void*, CUstream) { return 0; }
SEGUE_FAKE int cublasGemmEx(void*, int, int, int, int, int, const void*, const void*, int, int,
                            const void*, int, int, const void*, void*, int, int, int, int) {
  return 0;
}
