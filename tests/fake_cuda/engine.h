// SPDX-License-Identifier: Apache-2.0
//
// Fake decompression engine: host memory that is made for it, in the driver's four steps, and
// batches of blocks that it decodes with the cores of the multiprocessors. It is off until a test
// turns it on, and then right, or wrong in one way at one block.
#pragma once

#include <cuda.h>
#include <sys/mman.h>

#include <cstdint>
#include <cstring>
#include <map>
#include <vector>

#include "device/cuda/lz4_core.h"
#include "device/cuda/snappy_core.h"
#include "fake_cuda/fake_cuda.h"

namespace fake_cuda {

class Engine {
 public:
  static constexpr std::size_t kGranularity = 4096;
  static constexpr std::size_t kUnboundedRoom = 256 << 20;

  unsigned algorithms = 0;
  std::uint64_t size_max = 0;
  int host_node = 0;
  SegueFakeEngineFault fault = kFakeEngineRight;
  unsigned fault_call = 0;  // Batches before the one with the wrong block.
  std::size_t fault_block = 0;
  std::uint64_t batches = 0;

  // Everything that a test must give back.
  std::uint64_t objects() const { return handles_.size() + ranges_.size(); }

  CUresult Create(CUmemGenericAllocationHandle* handle, std::size_t size,
                  const CUmemAllocationProp& kind) {
    if (size == 0 || size % kGranularity != 0 || kind.type != CU_MEM_ALLOCATION_TYPE_PINNED ||
        kind.location.type != CU_MEM_LOCATION_TYPE_HOST_NUMA || kind.location.id != host_node) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    *handle = ++last_handle_;
    handles_[*handle] = {size, (kind.allocFlags.usage & CU_MEM_CREATE_USAGE_HW_DECOMPRESS) != 0};
    return CUDA_SUCCESS;
  }
  CUresult Release(CUmemGenericAllocationHandle handle) {
    return handles_.erase(handle) != 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
  }

  CUresult Reserve(CUdeviceptr* address, std::size_t size) {
    if (size == 0 || size % kGranularity != 0) return CUDA_ERROR_INVALID_VALUE;
    void* const pages =
        mmap(nullptr, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (pages == MAP_FAILED) return CUDA_ERROR_OUT_OF_MEMORY;
    *address = reinterpret_cast<CUdeviceptr>(pages);
    ranges_[*address] = {size, 0, false};
    return CUDA_SUCCESS;
  }
  CUresult FreeRange(CUdeviceptr address, std::size_t size) {
    const auto found = ranges_.find(address);
    if (found == ranges_.end() || found->second.size != size || found->second.handle != 0) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    munmap(reinterpret_cast<void*>(address), size);
    ranges_.erase(found);
    return CUDA_SUCCESS;
  }
  CUresult Map(CUdeviceptr address, std::size_t size, CUmemGenericAllocationHandle handle) {
    const auto found = ranges_.find(address);
    if (found == ranges_.end() || found->second.size != size || found->second.handle != 0 ||
        !handles_.contains(handle) || handles_[handle].size != size) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    found->second.handle = handle;
    return CUDA_SUCCESS;
  }
  CUresult Unmap(CUdeviceptr address, std::size_t size) {
    const auto found = ranges_.find(address);
    if (found == ranges_.end() || found->second.size != size) return CUDA_ERROR_INVALID_VALUE;
    found->second.handle = 0;
    return CUDA_SUCCESS;
  }
  CUresult SetAccess(CUdeviceptr address, std::size_t size, const CUmemAccessDesc* access,
                     std::size_t count) {
    const auto found = ranges_.find(address);
    if (found == ranges_.end() || found->second.size != size || found->second.handle == 0) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    bool host = false;
    for (std::size_t i = 0; i < count; ++i) {
      const bool writes = access[i].flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
      host = host || (access[i].location.type == CU_MEM_LOCATION_TYPE_HOST_NUMA && writes);
      found->second.is_on_device =
          found->second.is_on_device || access[i].location.type == CU_MEM_LOCATION_TYPE_DEVICE;
    }
    if (host) mprotect(reinterpret_cast<void*>(address), size, PROT_READ | PROT_WRITE);
    return CUDA_SUCCESS;
  }

  bool Knows(CUdeviceptr address) const { return Find(address, 1) != nullptr; }
  // Whether [address, address + size) is memory that the engine reads.
  bool IsCapable(CUdeviceptr address, std::size_t size) const {
    const Range* const range = Find(address, size);
    if (range == nullptr || range->handle == 0 || !range->is_on_device) return false;
    return algorithms != 0 && fault != kFakeEngineIncapable &&
           handles_.at(range->handle).is_for_engine;
  }

  // The same of memory of the device.
  bool TakesDevice() const {
    return algorithms != 0 && fault != kFakeEngineIncapable && fault != kFakeEngineNoDevice;
  }

  // Whether the engine takes it; `is_device`: whether an address is one of the device's memory.
  template <typename IsDevice>
  bool Takes(const CUmemDecompressParams& block, IsDevice is_device) const {
    const auto reaches = [&](const void* place, std::size_t size) {
      const auto address = reinterpret_cast<CUdeviceptr>(place);
      return (is_device(address, size) && TakesDevice()) || IsCapable(address, size);
    };
    for (const unsigned char byte : block.padding) {
      if (byte != 0) return false;
    }
    return (block.algo & algorithms) != 0 && block.srcNumBytes <= size_max &&
           block.dstNumBytes <= size_max && reaches(block.src, block.srcNumBytes) &&
           reaches(block.dst, block.dstNumBytes) && reaches(block.dstActBytes, 4);
  }

  // One block, wrong in the way of `how`.
  static void Decode(const CUmemDecompressParams& block, SegueFakeEngineFault how) {
    if (how == kFakeEngineSilent) return;
    const std::size_t room = how == kFakeEngineUnbounded ? kUnboundedRoom : block.dstNumBytes;
    std::vector<std::byte> source;
    if (block.algo == CU_MEM_DECOMPRESS_ALGORITHM_SNAPPY) {
      std::size_t rest = room;
      for (; rest >= 0x80; rest >>= 7) source.push_back(static_cast<std::byte>(0x80 | rest));
      source.push_back(static_cast<std::byte>(rest));
    }
    const auto* const bytes = static_cast<const std::byte*>(block.src);
    source.insert(source.end(), bytes, bytes + block.srcNumBytes);
    std::vector<std::byte> target(room);
    const segue::cuda::DecodeRow row = {source.data(), source.size(), target.data(), target.size()};
    const segue::cuda::HostWarp warp;
    const auto result = block.algo == CU_MEM_DECOMPRESS_ALGORITHM_SNAPPY
                            ? segue::cuda::RunSnappyRow(warp, row)
                            : segue::cuda::RunLz4Row(warp, row);
    auto actual = static_cast<std::uint32_t>(result.written);
    const std::size_t written = how == kFakeEngineShort ? result.written / 2 : result.written;
    if (how == kFakeEngineLies) target.back() ^= std::byte{1};
    std::memcpy(block.dst, target.data(), written);
    if (how == kFakeEngineShort) actual /= 2;
    if (how == kFakeEngineWrongSize) ++actual;
    std::memcpy(block.dstActBytes, &actual, sizeof(actual));
  }

 private:
  struct Handle {
    std::size_t size = 0;
    bool is_for_engine = false;
  };
  struct Range {
    std::size_t size = 0;
    CUmemGenericAllocationHandle handle = 0;
    bool is_on_device = false;
  };

  const Range* Find(CUdeviceptr address, std::size_t size) const {
    auto found = ranges_.upper_bound(address);
    if (found == ranges_.begin()) return nullptr;
    --found;
    const bool holds = address - found->first + size <= found->second.size;
    return holds ? &found->second : nullptr;
  }

  std::map<CUmemGenericAllocationHandle, Handle> handles_;
  std::map<CUdeviceptr, Range> ranges_;
  CUmemGenericAllocationHandle last_handle_ = 0;
};

}  // namespace fake_cuda
