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

#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <set>
#include <string>

#include "device/cuda/dense_core.h"
#include "device/cuda/diff_core.h"
#include "device/cuda/kernel_launch.h"
#include "device/cuda/lz4_core.h"
#include "device/cuda/snappy_core.h"
#include "device/cuda/sparse_core.h"
#include "fake_cuda/engine.h"
#include "fake_cuda/memory.h"

#define SEGUE_FAKE extern "C" __attribute__((visibility("default")))
#define SEGUE_FAKE_TEXT(name) #name
#define SEGUE_FAKE_SYMBOL(name) SEGUE_FAKE_TEXT(name)
// At the head of each function that ends something: it fails after it has done so.
#define SEGUE_FAKE_ASK(name)                      \
  World::CallHook(SEGUE_FAKE_SYMBOL(name));       \
  const std::lock_guard lock(World::Get().mutex); \
  const CUresult asked = World::Get().Enter(SEGUE_FAKE_SYMBOL(name))
// At the head of every other function.
#define SEGUE_FAKE_ENTER(name)                                                                   \
  World::CallHook(SEGUE_FAKE_SYMBOL(name));                                                      \
  const std::lock_guard lock(World::Get().mutex);                                                \
  if (const CUresult asked = World::Get().Enter(SEGUE_FAKE_SYMBOL(name)); asked != CUDA_SUCCESS) \
  return asked
// Behind one of them, in functions that work in the thread's current context.
#define SEGUE_FAKE_NEED_CONTEXT() \
  if (!current.IsThere()) return CUDA_ERROR_INVALID_CONTEXT
#define SEGUE_FAKE_IN_CONTEXT(name) \
  SEGUE_FAKE_ENTER(name);           \
  SEGUE_FAKE_NEED_CONTEXT()

namespace {

using segue::cuda::DecodeResult;
using segue::cuda::DecodeRow;
using segue::cuda::DenseRow;
using segue::cuda::FindRow;
using segue::cuda::FindSums;
using segue::cuda::HostWarp;
using segue::cuda::Kernel;
using segue::cuda::PackRow;
using segue::cuda::PackSums;
using segue::cuda::RowSums;
using segue::cuda::SparseRow;
using segue::cuda::WordKeys;

struct FakeStream {
  std::deque<std::function<void()>> waiting;
  std::uint64_t enqueued = 0;
  std::uint64_t done = 0;
  int priority = 0;
};

// What a handle for other processes holds.
struct SharedPages {
  std::uint64_t magic;
  int process;
  int file;
  std::size_t size;
  int device;
};
constexpr std::uint64_t kShareMagic = 0x6b61665f61647563;

struct FakeEvent {
  FakeStream* stream = nullptr;
  std::uint64_t place = 0;  // Operations of the stream that it waits for.
};

// The contexts of one thread, by the numbers of their devices.
struct Current {
  static constexpr unsigned kDepthMax = 16;
  int devices[kDepthMax];
  unsigned depth;
  bool push_failed;  // As a test asked for: who goes on has nothing better to do.

  bool IsThere() const { return depth != 0 || push_failed; }
  int device() const { return depth != 0 ? devices[depth - 1] : 0; }
};
thread_local Current current = {};

// What the thread says of captures elsewhere, as threads begin.
thread_local CUstreamCaptureMode capture_mode = CU_STREAM_CAPTURE_MODE_GLOBAL;

bool IsForbiddenBesideCaptures(const std::string& symbol) {
  if (symbol == SEGUE_FAKE_SYMBOL(cuCtxSynchronize)) return true;
  static const std::set<std::string> unsafe = {
      SEGUE_FAKE_SYMBOL(cuMemAlloc),          SEGUE_FAKE_SYMBOL(cuMemFree),
      SEGUE_FAKE_SYMBOL(cuMemHostAlloc),      SEGUE_FAKE_SYMBOL(cuMemFreeHost),
      SEGUE_FAKE_SYMBOL(cuStreamSynchronize), SEGUE_FAKE_SYMBOL(cuEventSynchronize),
      SEGUE_FAKE_SYMBOL(cuModuleLoadData)};
  return capture_mode != CU_STREAM_CAPTURE_MODE_RELAXED && unsafe.contains(symbol);
}

CUcontext ContextOf(int device) {
  return reinterpret_cast<CUcontext>(static_cast<std::uintptr_t>(device) + 1);
}

struct World {
  std::mutex mutex;
  fake_cuda::DeviceMemory memory;
  fake_cuda::Engine engine;
  std::map<void*, std::size_t> pinned;
  std::set<FakeStream*> streams;
  std::set<FakeEvent*> events;
  std::uint64_t modules = 0;
  std::uint64_t contexts = 0;
  int device_count = 1;
  std::uint64_t calls = 0;
  std::uint64_t launches = 0;
  std::string failing;
  unsigned skip = 0;
  CUresult failure = CUDA_SUCCESS;
  bool flips = false;
  bool captures = false;  // Another thread does.
  std::uint64_t least_launches = 0;
  std::uint64_t device_max = ~std::uint64_t{0};
  std::uint64_t pinned_max = ~std::uint64_t{0};
  std::string hooked;
  std::function<void()> hook;

  static World& Get() {
    static World* const world = new World;  // Outlives everything that may still call.
    return *world;
  }

  // What a program that is run for a test cannot be told by call (fake_cuda.h).
  World() {
    if (const char* const fail = std::getenv("SEGUE_FAKE_CUDA_FAIL"); fail != nullptr) {
      failing = fail;
      failure = CUDA_ERROR_UNKNOWN;
    }
    if (const char* const before = std::getenv("SEGUE_FAKE_CUDA_SKIP"); before != nullptr) {
      const char* const end = before + std::strlen(before);
      if (std::from_chars(before, end, skip).ec != std::errc()) std::abort();
    }
    flips = std::getenv("SEGUE_FAKE_CUDA_FLIP") != nullptr;
  }

  // What a test wants to happen first, outside of the lock.
  static void CallHook(const char* symbol) {
    World& world = Get();
    std::unique_lock lock(world.mutex);
    if (world.hooked != symbol) return;
    world.hooked.clear();
    const auto hook = std::move(world.hook);
    lock.unlock();
    hook();
  }

  std::uint64_t PinnedBytes() const {
    std::uint64_t bytes = 0;
    for (const auto& [address, size] : pinned) bytes += size;
    return bytes;
  }

  CUresult Enter(const char* symbol) {
    ++calls;
    if (captures && IsForbiddenBesideCaptures(symbol)) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    if (failing != symbol) return CUDA_SUCCESS;
    if (skip-- != 0) return CUDA_SUCCESS;
    failing.clear();
    return failure;
  }

  CUresult Enqueue(CUstream handle, std::function<void()> operation) {
    auto* const stream = reinterpret_cast<FakeStream*>(handle);
    if (!streams.contains(stream)) return CUDA_ERROR_INVALID_HANDLE;
    stream->waiting.push_back(std::move(operation));
    ++stream->enqueued;
    return CUDA_SUCCESS;
  }

  void RunUntil(FakeStream& stream, std::uint64_t place) {
    while (stream.done < place) {
      const auto operation = std::move(stream.waiting.front());
      stream.waiting.pop_front();
      ++stream.done;
      memory.With(operation);
    }
  }

  void RunAll() {
    for (FakeStream* stream : streams) RunUntil(*stream, stream->enqueued);
  }
};

// The four arguments that all kernels take.
struct Arguments {
  CUdeviceptr rows;
  std::uint64_t row_count;
  CUdeviceptr keys;
  CUdeviceptr sums;
};

RowSums RunRow(Kernel kernel, CUdeviceptr rows, std::uint64_t row, const WordKeys& keys) {
  using segue::cuda::DensePass;
  const HostWarp warp;
  const SparseRow& sparse = reinterpret_cast<const SparseRow*>(rows)[row];
  const DenseRow& dense = reinterpret_cast<const DenseRow*>(rows)[row];
  switch (kernel) {
    case Kernel::kSparsePreflight:
      return segue::cuda::RunSparseRow<HostWarp, false>(warp, sparse, keys);
    case Kernel::kSparseApply: return segue::cuda::RunSparseRow<HostWarp, true>(warp, sparse, keys);
    case Kernel::kDenseScan:
      return segue::cuda::RunDenseRow<HostWarp, DensePass::kScan>(warp, dense, keys);
    case Kernel::kDensePreflight:
      return segue::cuda::RunDenseRow<HostWarp, DensePass::kPreflight>(warp, dense, keys);
    default: break;
  }
  return segue::cuda::RunDenseRow<HostWarp, DensePass::kApply>(warp, dense, keys);
}

void RunDecoder(Kernel kernel, const Arguments& arguments, std::uint64_t warps) {
  const HostWarp warp;
  const auto* const rows = reinterpret_cast<const DecodeRow*>(arguments.rows);
  auto* const results = reinterpret_cast<DecodeResult*>(arguments.sums);
  for (std::uint64_t row = 0; row < warps && row < arguments.row_count; ++row) {
    results[row] = kernel == Kernel::kSnappyDecode ? segue::cuda::RunSnappyRow(warp, rows[row])
                                                   : segue::cuda::RunLz4Row(warp, rows[row]);
  }
}

// A kernel that stores one wrong bit.
void FlipBit(Kernel kernel, CUdeviceptr rows) {
  if (kernel == Kernel::kSparseApply) {
    *reinterpret_cast<const SparseRow*>(rows)->place.live ^= std::byte{1};
  } else if (kernel == Kernel::kDenseApply) {
    *reinterpret_cast<const DenseRow*>(rows)->place.live ^= std::byte{1};
  }
}

void RunKernel(Kernel kernel, const Arguments& arguments, std::uint64_t warps) {
  if (World::Get().flips && arguments.row_count != 0) FlipBit(kernel, arguments.rows);
  const auto* const words = reinterpret_cast<const std::uint32_t*>(arguments.keys);
  const WordKeys keys = {{words, words + segue::kDigestBlockWords}};
  if (kernel == Kernel::kSnappyDecode || kernel == Kernel::kLz4Decode) {
    return RunDecoder(kernel, arguments, warps);
  }
  for (std::uint64_t row = 0; row < warps && row < arguments.row_count; ++row) {
    if (kernel == Kernel::kDiffFind) {
      const auto* const rows = reinterpret_cast<const FindRow*>(arguments.rows);
      reinterpret_cast<FindSums*>(arguments.sums)[row] = RunFindRow(HostWarp(), rows[row], keys);
    } else if (kernel == Kernel::kDiffPack) {
      const auto* const rows = reinterpret_cast<const PackRow*>(arguments.rows);
      reinterpret_cast<PackSums*>(arguments.sums)[row] = RunPackRow(HostWarp(), rows[row], keys);
    } else {
      reinterpret_cast<RowSums*>(arguments.sums)[row] = RunRow(kernel, arguments.rows, row, keys);
    }
  }
}

}  // namespace

SEGUE_FAKE void segue_fake_fail(const char* symbol, unsigned skip, CUresult result) {
  World& world = World::Get();
  world.failing = symbol;
  world.skip = skip;
  world.failure = result;
}

SEGUE_FAKE void segue_fake_limit(std::uint64_t device_bytes, std::uint64_t pinned_bytes) {
  World& world = World::Get();
  world.device_max = device_bytes;
  world.pinned_max = pinned_bytes;
}

SEGUE_FAKE void segue_fake_devices(int count) { World::Get().device_count = count; }

SEGUE_FAKE void segue_fake_capture(int on) {
  const std::lock_guard lock(World::Get().mutex);
  World::Get().captures = on != 0;
}

SEGUE_FAKE void segue_fake_hook(const char* symbol, void (*call)(void* context), void* context) {
  World& world = World::Get();
  const std::lock_guard lock(world.mutex);
  world.hooked = symbol;
  world.hook = [=] { call(context); };
}

SEGUE_FAKE void segue_fake_engine(unsigned algorithms, std::uint64_t size_max, int host_node) {
  fake_cuda::Engine& engine = World::Get().engine;
  engine.algorithms = algorithms;
  engine.size_max = size_max;
  engine.host_node = host_node;
}

SEGUE_FAKE void segue_fake_engine_goes_wrong(SegueFakeEngineFault fault, unsigned skip,
                                             std::size_t block) {
  fake_cuda::Engine& engine = World::Get().engine;
  engine.fault = fault;
  engine.fault_call = skip;
  engine.fault_block = block;
}

SEGUE_FAKE SegueFakeCounts segue_fake_count() {
  World& world = World::Get();
  SegueFakeCounts counts = {};
  counts.calls = world.calls;
  counts.device_bytes = world.memory.bytes();
  counts.device_peak = world.memory.peak();
  counts.pinned_bytes = world.PinnedBytes();
  counts.objects = world.streams.size() + world.events.size() + world.modules + world.contexts +
                   world.memory.mappings() + world.engine.objects();
  counts.launches = world.launches;
  counts.least_launches = world.least_launches;
  counts.decompressions = world.engine.batches;
  return counts;
}

SEGUE_FAKE void segue_fake_reset() {
  World& world = World::Get();
  const SegueFakeCounts counts = segue_fake_count();
  if (counts.device_bytes + counts.pinned_bytes + counts.objects != 0) {
    std::fputs("fake CUDA: something was never given back\n", stderr);
    std::abort();
  }
  world.failing.clear();
  world.hooked.clear();
  world.captures = false;
  world.device_count = 1;
  world.calls = 0;
  world.launches = 0;
  world.least_launches = 0;
  world.engine.batches = 0;
  segue_fake_engine(0, 0, 0);
  segue_fake_engine_goes_wrong(kFakeEngineRight, 0, 0);
  segue_fake_limit(~std::uint64_t{0}, ~std::uint64_t{0});
}

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
    if (!World::Get().engine.Knows(address)) return CUDA_ERROR_INVALID_VALUE;
    const unsigned is_capable = World::Get().engine.IsCapable(address, 1) ? 1 : 0;
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
  Arguments taken = {};
  std::memcpy(&taken.rows, arguments[0], sizeof(taken.rows));
  std::memcpy(&taken.row_count, arguments[1], sizeof(taken.row_count));
  std::memcpy(&taken.keys, arguments[2], sizeof(taken.keys));
  std::memcpy(&taken.sums, arguments[3], sizeof(taken.sums));
  ++World::Get().launches;
  if (reinterpret_cast<FakeStream*>(stream)->priority == 0) ++World::Get().least_launches;
  const std::uint64_t warps = std::uint64_t{grid_x} * block_x / segue::cuda::kLaneCount;
  return World::Get().Enqueue(stream, [=] { RunKernel(kernel, taken, warps); });
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
