// SPDX-License-Identifier: Apache-2.0
//
// What a build without a CUDA toolkit has for devices by name (device/cuda/open_accelerator.cc is
// what others have).
#include "device/accelerator.h"
#include "device/differ.h"
#include "segue/device_memory.h"

namespace segue {
namespace {

Status Without(const std::string& name) {
  return Unsupported("no device '" + name + "': this library was built without CUDA");
}

}  // namespace

Result<std::shared_ptr<Accelerator>> OpenAccelerator(const std::string& name, unsigned,
                                                     const AcceleratorOptions&) {
  return Without(name);
}

Result<std::shared_ptr<Differ>> OpenDiffer(const std::string& name, const DifferOptions&) {
  return Without(name);
}

bool BuiltWithCuda() { return false; }

Result<DeviceMemoryShare> ShareDeviceMemory(const std::string& device, const std::byte*,
                                            std::uint64_t) {
  return Without(device);
}

class DeviceMapping::Impl {};
DeviceMapping::~DeviceMapping() = default;
Result<std::unique_ptr<DeviceMapping>> DeviceMapping::Open(const std::string& device,
                                                           const DeviceMemoryShare&) {
  return Without(device);
}
std::byte* DeviceMapping::data() const { return nullptr; }
std::uint64_t DeviceMapping::size() const { return 0; }

}  // namespace segue
