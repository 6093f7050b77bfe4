// SPDX-License-Identifier: Apache-2.0
//
// What goes to the kernels of a diff and comes back: one row a segment of a chunk. Plain data, laid
// out alike for host and device. A chunk is cut into segments so that there are warps enough for a
// whole GPU; what they find of a chunk adds up (diff_layout.h).
#pragma once

#include "base/bytes.h"
#include "base/digest.h"
#include "device/cuda/kernel_rows.h"

namespace segue::cuda {

// Whole digest blocks.
inline constexpr std::uint64_t kSegmentSize = 128 << 10;

constexpr std::uint64_t SegmentCount(std::uint64_t chunk_size) {
  return DivideUp(chunk_size, kSegmentSize);
}

// Bytes of a bit string with one bit for each element, up to the end of the last digest block.
constexpr std::uint64_t BitsSize(std::uint64_t size, unsigned width) {
  return DivideUp(size, kDigestBlockSize) * (kDigestBlockSize / 8 / width);
}

// First pass: which elements of a segment differ.
struct FindRow {
  ChunkPlaceRow place;  // Of the segment, without a view; `live` is the base, and is only read.
  const std::byte* target;
  std::byte* bits;  // Written whole: BitsSize() bytes, 8-byte aligned.
};

struct FindSums {
  std::uint64_t before[2];   // Digest of the base.
  std::uint64_t after[2];    // Digest of the target.
  std::uint64_t touched;     // Lane 0 of the old values of the changed elements.
  std::uint64_t mask_ones;   // Bits that are 1 in the mask of some changed element,
  std::uint64_t mask_zeros;  // and those that are 0 in some.
  std::uint64_t change_count;
};

// Second pass: the changes of a segment into the streams of its chunk's `sparse` row.
struct PackRow {
  ChunkPlaceRow place;
  const std::byte* target;
  const std::uint32_t* bits;
  std::uint32_t* low;           // Zeros before; segments of a chunk share words.
  std::uint32_t* high;          // The same.
  std::byte* plane[8];          // Null: constant, or not of this width.
  std::uint32_t first_element;  // Of the segment in its chunk.
  std::uint32_t first_change;   // Changes of the chunk before the segment.
  std::uint32_t low_bits;
};

// Of what was packed: must be what the first pass found.
struct PackSums {
  std::uint64_t difference[2];
  std::uint64_t change_count;
};

}  // namespace segue::cuda
