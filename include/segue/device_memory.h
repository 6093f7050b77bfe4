// SPDX-License-Identifier: Apache-2.0
//
// Device memory: weights in the memory of a GPU that another process of this machine has (an
// inference engine's, CUDA IPC). That process shares its buffers and sends what it gets, which is
// plain bytes, by any way; this one maps them and binds its receiver to the addresses.
//
//   // Engine:
//   const auto share = ShareDeviceMemory("cuda:0", pointer, size);
//   // Beside it:
//   const auto mapping = DeviceMapping::Open("cuda:0", share);
//   model.device = "cuda:0";
//   model.tensors.push_back({.name = ..., .data = mapping.value()->data(), .size = size});
//
// docs/cuda.md, "Weights of another process", says what both must keep to.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "segue/status.h"

namespace segue {

// Whether this library was built with a CUDA toolkit; says nothing of the machine that it runs on.
bool BuiltWithCuda();

// A stretch of a GPU's memory, as another process can map it.
struct DeviceMemoryShare {
  std::array<std::byte, 64> handle = {};  // Of the whole allocation, as the driver gives it.
  std::uint64_t offset = 0;               // Of the stretch in it.
  std::uint64_t size = 0;
};

// `device`: "cuda:0", "cuda:1", ... as the CUDA driver counts in this process. It must not
// be freed while another process has it mapped. InvalidArgument: not in this device's memory.
// Unsupported: memory that cannot be shared in this way.
Result<DeviceMemoryShare> ShareDeviceMemory(const std::string& device, const std::byte* address,
                                            std::uint64_t size);

// Memory of another process, mapped while this lives. Several shares of one allocation are mapped
// once. InvalidArgument: the share is not of this device, or reaches beyond its allocation.
class DeviceMapping {
 public:
  static Result<std::unique_ptr<DeviceMapping>> Open(const std::string& device,
                                                     const DeviceMemoryShare& share);
  ~DeviceMapping();
  DeviceMapping(const DeviceMapping&) = delete;
  DeviceMapping& operator=(const DeviceMapping&) = delete;

  // An address of the device.
  std::byte* data() const;
  std::uint64_t size() const;

 private:
  class Impl;
  explicit DeviceMapping(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace segue
