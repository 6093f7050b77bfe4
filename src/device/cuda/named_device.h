// SPDX-License-Identifier: Apache-2.0
//
// Devices by name: "cuda:N", through the driver of the machine, or the one that SEGUE_CUDA_DRIVER
// names (tests have theirs).
#pragma once

#include <string>

#include "device/cuda/owners.h"

namespace segue::cuda {

struct NamedDevice {
  DriverPointer driver;
  int ordinal = 0;
};

// Unsupported: no name of a device, or no driver.
Result<NamedDevice> FindNamedDevice(const std::string& name);

}  // namespace segue::cuda
