// SPDX-License-Identifier: Apache-2.0
//
// Decoder trial: two known blocks through a decoder, before it is believed to be there and right.
// That a driver or a library says so is not enough, and the first update is too late to learn it.
#pragma once

#include "device/cuda/decoders.h"

namespace segue::cuda {

// A block of Snappy and one of LZ4, of those that it takes: size, bytes, and that nothing behind
// them is written. Unsupported: it is wrong. Anything else: the trial could not be made. Nothing of
// it is left afterwards.
Status TryDecoder(const DecoderUse& use, CUdevice device, const StagingMemory& memory,
                  WorkerPool& pool, CUstream stream);

}  // namespace segue::cuda
