// SPDX-License-Identifier: Apache-2.0
//
// Machine: what others are held against, measured in the same run.
#pragma once

#include "bench/gpu/check.h"

namespace segue::gpu_check {

// Bytes read plus written a second by a copy within the device's memory.
Result<double> CopyRate(Check& check, Gpu& gpu);

}  // namespace segue::gpu_check
