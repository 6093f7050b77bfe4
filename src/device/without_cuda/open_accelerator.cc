// SPDX-License-Identifier: Apache-2.0
//
// What a build without a CUDA toolkit has for accelerators (device/cuda/open_accelerator.cc is what
// others have).
#include "device/accelerator.h"

namespace segue {

Result<std::shared_ptr<Accelerator>> OpenAccelerator(const std::string& name, unsigned) {
  return Unsupported("no device '" + name + "': this library was built without CUDA");
}

}  // namespace segue
