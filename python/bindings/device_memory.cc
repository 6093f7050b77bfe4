// SPDX-License-Identifier: Apache-2.0
//
// Memory of a GPU that another process has (segue/device_memory.h): shares as plain bytes, mappings
// as addresses.
#include "segue/device_memory.h"

#include <nanobind/stl/string.h>
#include <nanobind/stl/unique_ptr.h>

#include <cstring>
#include <memory>

#include "bindings/interpreter.h"
#include "bindings/module.h"
#include "bindings/source.h"

namespace segue::python {
namespace {

nb::tuple Share(const std::string& device, std::uint64_t address, std::uint64_t size) {
  const DeviceMemoryShare share =
      Run([&] { return ShareDeviceMemory(device, AddressOf(address, size), size); });
  return nb::make_tuple(nb::bytes(share.handle.data(), share.handle.size()), share.offset,
                        share.size);
}

std::unique_ptr<DeviceMapping> Map(const std::string& device, const nb::bytes& handle,
                                   std::uint64_t offset, std::uint64_t size) {
  DeviceMemoryShare share;
  if (handle.size() != share.handle.size()) throw nb::value_error("a handle has 64 bytes");
  std::memcpy(share.handle.data(), handle.c_str(), share.handle.size());
  share.offset = offset;
  share.size = size;
  return Run([&] { return DeviceMapping::Open(device, share); });
}

}  // namespace

void BindDeviceMemory(nb::module_& module) {
  nb::class_<DeviceMapping>(module, "DeviceMapping", "Memory of another process, mapped.")
      .def_prop_ro(
          "address",
          [](const DeviceMapping& self) { return reinterpret_cast<std::uint64_t>(self.data()); })
      .def_prop_ro("nbytes", &DeviceMapping::size);
  module.def("share_device_memory", &Share, nb::arg("device"), nb::arg("address"), nb::arg("size"),
             "Handle, offset and size.");
  module.def("map_device_memory", &Map, nb::arg("device"), nb::arg("handle"), nb::arg("offset"),
             nb::arg("size"));
}

}  // namespace segue::python
