// SPDX-License-Identifier: Apache-2.0
//
// What a build without a CUDA toolkit has for devices by name (device/cuda/open_accelerator.cc is
// what others have).
#include "device/accelerator.h"
#include "device/differ.h"

namespace segue {
namespace {

Status Without(const std::string& name) {
  return Unsupported("no device '" + name + "': this library was built without CUDA");
}

}  // namespace

Result<std::shared_ptr<Accelerator>> OpenAccelerator(const std::string& name, unsigned) {
  return Without(name);
}

Result<std::shared_ptr<Differ>> OpenDiffer(const std::string& name, const DifferOptions&) {
  return Without(name);
}

}  // namespace segue
