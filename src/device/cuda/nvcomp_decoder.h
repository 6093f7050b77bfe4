// SPDX-License-Identifier: Apache-2.0
//
// nvCOMP decoder: nvCOMP's decoders for multiprocessors as a block decoder.
#pragma once

#include <memory>

#include "device/cuda/block_decoder.h"
#include "device/cuda/nvcomp_library.h"

namespace segue::cuda {

std::unique_ptr<const BlockDecoder> MakeNvcompDecoder(std::shared_ptr<const NvcompLibrary> library);

// Whether the codec takes what lies at multiples of kDecodeAlignment.
bool IsAlignedFor(const NvcompLibrary::Codec& codec);

}  // namespace segue::cuda
