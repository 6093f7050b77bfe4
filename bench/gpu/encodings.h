// SPDX-License-Identifier: Apache-2.0
//
// Encodings: whether the payload that the device makes of two versions is the processor's, byte for
// byte, over widths, profiles and densities.
#pragma once

#include "bench/gpu/check.h"

namespace segue::gpu_check {

// The base once on the device and once in memory of the host. Another payload is a finding.
Status CheckEncodings(Check& check, Gpu& gpu);

}  // namespace segue::gpu_check
