// SPDX-License-Identifier: Apache-2.0
//
// Opening the device, and plain copies.
#include "bench/gpu/gpu.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <utility>

namespace segue::gpu_check {
namespace {

constexpr std::uint64_t kPieceSize = 64 << 20;
constexpr std::size_t kNameSize = 128;

}  // namespace

Result<std::unique_ptr<Gpu>> Gpu::Open(unsigned threads) {
  const char* const library = std::getenv("SEGUE_CUDA_DRIVER");
  SEGUE_ASSIGN_OR_RETURN(std::shared_ptr<const cuda::Driver> driver,
                         cuda::Driver::Load(library != nullptr ? library : cuda::kDriverLibrary));
  auto gpu = std::unique_ptr<Gpu>(new Gpu);
  SEGUE_ASSIGN_OR_RETURN(gpu->context_, cuda::Context::Make(driver, 0));
  gpu->scope_ = std::make_unique<cuda::ContextScope>(*gpu->context_);
  SEGUE_RETURN_IF_ERROR(gpu->scope_->status());
  char name[kNameSize] = {};
  SEGUE_CUDA_TRY(driver, cuDeviceGetName, name, kNameSize, gpu->context_->device());
  gpu->name_ = name;
  SEGUE_CUDA_TRY(driver, cuDriverGetVersion, &gpu->driver_version_);
  std::size_t total = 0;
  SEGUE_CUDA_TRY(driver, cuDeviceTotalMem, &total, gpu->context_->device());
  gpu->memory_size_ = total;
  SEGUE_ASSIGN_OR_RETURN(gpu->stream_, cuda::MakeStream(driver, cuda::StreamPriority::kGreatest));
  SEGUE_ASSIGN_OR_RETURN(gpu->pinned_, cuda::AllocatePinned(driver, kPieceSize));
  gpu->threads_ = threads;
  SEGUE_RETURN_IF_ERROR(gpu->UseDecoder(""));
  return gpu;
}

Status Gpu::UseDecoder(const std::string& decoder) {
  std::shared_ptr<Accelerator> opened;
  SEGUE_ASSIGN_OR_RETURN(opened, OpenAccelerator("cuda:0", threads_, {.decoder = decoder}));
  accelerator_ = std::move(opened);
  return {};
}

Result<cuda::DeviceBuffer> Gpu::Allocate(std::uint64_t size) const {
  return cuda::AllocateDevice(driver(), size);
}

Status Gpu::Copy(CUdeviceptr target, CUdeviceptr source, std::uint64_t size) const {
  SEGUE_CUDA_TRY(driver(), cuMemcpyAsync, target, source, size, stream_.get());
  return {};
}

Status Gpu::Upload(CUdeviceptr target, ByteSpan source) const {
  for (std::size_t offset = 0; offset < source.size(); offset += kPieceSize) {
    const std::size_t size = std::min<std::size_t>(kPieceSize, source.size() - offset);
    SEGUE_RETURN_IF_ERROR(Wait());  // The piece before may still be read.
    std::memcpy(pinned_.data(), source.data() + offset, size);
    SEGUE_CUDA_TRY(driver(), cuMemcpyHtoDAsync, target + offset, pinned_.data(), size,
                   stream_.get());
  }
  return Wait();
}

Status Gpu::Fill(CUdeviceptr target, std::uint8_t value, std::uint64_t size) const {
  SEGUE_CUDA_TRY(driver(), cuMemsetD8Async, target, value, size, stream_.get());
  return {};
}

Status Gpu::Wait() const {
  SEGUE_CUDA_TRY(driver(), cuStreamSynchronize, stream_.get());
  return {};
}

Result<bool> Gpu::Holds(CUdeviceptr source, ByteSpan expected) const {
  for (std::size_t offset = 0; offset < expected.size(); offset += kPieceSize) {
    const std::size_t size = std::min<std::size_t>(kPieceSize, expected.size() - offset);
    SEGUE_CUDA_TRY(driver(), cuMemcpyDtoHAsync, pinned_.data(), source + offset, size,
                   stream_.get());
    SEGUE_RETURN_IF_ERROR(Wait());
    if (std::memcmp(pinned_.data(), expected.data() + offset, size) != 0) return false;
  }
  return true;
}

}  // namespace segue::gpu_check
