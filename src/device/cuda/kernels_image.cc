// SPDX-License-Identifier: Apache-2.0
//
// The fat binary, taken in by the assembler; SEGUE_KERNELS_IMAGE is its path, from CMake.
#include "device/cuda/kernels_image.h"

asm(".pushsection .rodata, \"a\", @progbits\n"
    ".balign 64\n"
    ".hidden segue_kernels_image\n"
    ".global segue_kernels_image\n"
    "segue_kernels_image:\n"
    ".incbin \"" SEGUE_KERNELS_IMAGE
    "\"\n"
    ".popsection\n");

extern "C" const unsigned char segue_kernels_image[];

namespace segue::cuda {

const void* KernelsImage() { return segue_kernels_image; }

}  // namespace segue::cuda
