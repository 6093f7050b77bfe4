// SPDX-License-Identifier: Apache-2.0
//
// The compiled kernels (kernels.cu) inside the library: machine code for sm_80, sm_90, sm_100 and
// sm_103, and PTX that the driver compiles for the rest.
#pragma once

namespace segue::cuda {

const void* KernelsImage();

}  // namespace segue::cuda
