// SPDX-License-Identifier: Apache-2.0
//
// Sharing and mapping by the driver's IPC handles. A handle is of a whole allocation, which a
// caching allocator cuts into many tensors: hence the offset.
#include "segue/device_memory.h"

#include <cstring>
#include <utility>

#include "device/cuda/named_device.h"

namespace segue {
namespace {

using cuda::CheckDeviceMemory;
using cuda::Context;
using cuda::ContextPointer;
using cuda::ContextScope;
using cuda::DriverPointer;
using cuda::FindNamedDevice;
using cuda::NamedDevice;
using cuda::Owned;

static_assert(sizeof(DeviceMemoryShare::handle) == sizeof(CUipcMemHandle));

Result<ContextPointer> OpenContext(const std::string& device) {
  SEGUE_ASSIGN_OR_RETURN(NamedDevice named, FindNamedDevice(device));
  return Context::Make(std::move(named.driver), named.ordinal);
}

// Memory of the driver's pools, and addresses that were reserved and mapped one by one.
Status CannotShare(const Status& status) {
  return Unsupported(
      "memory that was not allocated as one piece (cuMemAlloc, cudaMalloc) cannot be "
      "shared: " +
      status.message());
}

}  // namespace

bool BuiltWithCuda() { return true; }

Result<DeviceMemoryShare> ShareDeviceMemory(const std::string& device, const std::byte* address,
                                            std::uint64_t size) {
  SEGUE_ASSIGN_OR_RETURN(const ContextPointer context, OpenContext(device));
  const ContextScope scope(*context);
  SEGUE_RETURN_IF_ERROR(scope.status());
  SEGUE_RETURN_IF_ERROR(CheckDeviceMemory(*context, address, size));
  const DriverPointer& driver = context->driver();
  const auto at = reinterpret_cast<CUdeviceptr>(address);
  CUdeviceptr base = 0;
  std::size_t allocated = 0;
  SEGUE_CUDA_TRY(driver, cuMemGetAddressRange, &base, &allocated, at);
  DeviceMemoryShare share;
  share.offset = at - base;
  share.size = size;
  if (share.offset > allocated || size > allocated - share.offset) {
    return InvalidArgument("the memory lies in more than one allocation");
  }
  CUipcMemHandle handle = {};
  const Status status =
      driver->Check(driver->cuIpcGetMemHandle(&handle, base), "cuIpcGetMemHandle");
  if (status.code() == StatusCode::kInternal) return CannotShare(status);
  SEGUE_RETURN_IF_ERROR(status);
  std::memcpy(share.handle.data(), &handle, sizeof(handle));
  return share;
}

class DeviceMapping::Impl {
 public:
  explicit Impl(ContextPointer context) : context_(std::move(context)) {}
  ~Impl() {
    const ContextScope scope(*context_);
    mapped_ = {};
  }

  Status Open(const DeviceMemoryShare& share) {
    const ContextScope scope(*context_);
    SEGUE_RETURN_IF_ERROR(scope.status());
    const DriverPointer& driver = context_->driver();
    CUipcMemHandle handle = {};
    std::memcpy(&handle, share.handle.data(), sizeof(handle));
    // The driver may map more than the allocation, so that the range around it begins before it:
    // the offset counts from what was opened.
    CUdeviceptr opened = 0;
    SEGUE_CUDA_TRY(driver, cuIpcOpenMemHandle, &opened, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
    mapped_ = Owned<CUdeviceptr>(driver, opened, driver->cuIpcCloseMemHandle);
    CUdeviceptr range = 0;
    std::size_t range_size = 0;
    SEGUE_CUDA_TRY(driver, cuMemGetAddressRange, &range, &range_size, opened);
    const std::uint64_t room = range + range_size - opened;
    if (share.offset > room || share.size > room - share.offset) {
      return InvalidArgument("the share reaches beyond its allocation of " + std::to_string(room) +
                             " bytes");
    }
    data_ = reinterpret_cast<std::byte*>(opened + share.offset);
    size_ = share.size;
    // Another GPU's memory can be mapped too.
    return CheckDeviceMemory(*context_, data_, size_);
  }

  std::byte* data() const { return data_; }
  std::uint64_t size() const { return size_; }

 private:
  const ContextPointer context_;
  Owned<CUdeviceptr> mapped_;
  std::byte* data_ = nullptr;
  std::uint64_t size_ = 0;
};

DeviceMapping::DeviceMapping(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
DeviceMapping::~DeviceMapping() = default;

Result<std::unique_ptr<DeviceMapping>> DeviceMapping::Open(const std::string& device,
                                                           const DeviceMemoryShare& share) {
  SEGUE_ASSIGN_OR_RETURN(ContextPointer context, OpenContext(device));
  auto impl = std::make_unique<Impl>(std::move(context));
  SEGUE_RETURN_IF_ERROR(impl->Open(share).WithContext("memory of another process"));
  return std::unique_ptr<DeviceMapping>(new DeviceMapping(std::move(impl)));
}

std::byte* DeviceMapping::data() const { return impl_->data(); }
std::uint64_t DeviceMapping::size() const { return impl_->size(); }

}  // namespace segue
