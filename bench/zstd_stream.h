// SPDX-License-Identifier: Apache-2.0
//
// One Zstd frame of level 1 over the XOR of two buffers, written and applied a piece at a time, so
// that no mask of a whole tensor lies in memory. As fast as whole-buffer calls or faster: the
// pieces stay in the caches, which favours the baseline.
#pragma once

#include "base/bytes.h"
#include "segue/status.h"

namespace segue::bench {

// a XOR b, compressed.
Result<ByteVector> CompressMask(ByteSpan a, ByteSpan b);
// live ^= the mask that `frame` decodes to, which has exactly live's size.
Status ApplyMask(ByteSpan frame, MutableByteSpan live);

}  // namespace segue::bench
