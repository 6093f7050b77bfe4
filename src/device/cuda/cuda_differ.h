// SPDX-License-Identifier: Apache-2.0
//
// CUDA differ: versions in the memory of an NVIDIA GPU (compute capability 8.0 and newer). Follows
// the contract of Differ.
#pragma once

#include <memory>

#include "device/cuda/driver.h"
#include "device/differ.h"

namespace segue::cuda {

// `ordinal`: as the driver counts.
Result<std::shared_ptr<Differ>> MakeCudaDiffer(std::shared_ptr<const Driver> driver, int ordinal,
                                               const DifferOptions& options);

}  // namespace segue::cuda
