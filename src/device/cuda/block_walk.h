// SPDX-License-Identifier: Apache-2.0
//
// Block walk: what a Snappy or LZ4 block decodes to, in bytes, found without decoding it. The
// decompression engine promises no bound by the size of its target, and a Snappy body says no
// length; so a block goes to it only if its elements fill the chunk to the byte.
#pragma once

#include <cstdint>

#include "base/bytes.h"

namespace segue::cuda {

// Whether the elements end with the block, state `size` bytes in all, and copy from nothing but
// what lies before them. `body`: without the length in front.
bool SnappyBodyFills(ByteSpan body, std::uint64_t size);
bool Lz4BlockFills(ByteSpan block, std::uint64_t size);

}  // namespace segue::cuda
