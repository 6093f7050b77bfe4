// SPDX-License-Identifier: Apache-2.0
//
// What goes to a kernel and comes back: one row a changed chunk. Plain data, laid out alike for
// host and device; pointers are addresses in the device's memory. Offsets and sizes have 64 bits
// throughout (case H1).
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/limits.h"

namespace segue::cuda {

// A ViewMap, as kernels follow it.
struct KernelView {
  struct Axis {
    std::uint64_t count;
    std::uint64_t source_stride;
    std::uint64_t target_stride;
    std::int32_t shift;  // Of source_stride, where it is a power of two; else -1.
  };
  std::uint64_t source_offset;
  std::uint64_t target_offset;
  std::uint32_t axis_count;
  Axis axes[limits::kViewAxisCountMax + 1];
};

// Where a chunk lies, and whose bytes they are.
struct ChunkPlaceRow {
  std::byte* live;
  const KernelView* view;       // Null: the chunk lies at `live` as it is.
  std::uint64_t first_element;  // Of the chunk in its tensor.
  std::uint64_t size;           // Bytes.
  std::uint64_t tensor_key[2];  // Digest: what the tensor's block keys are made from.
  std::uint64_t first_block;    // Digest block in the tensor.
  std::uint32_t width;          // Bytes of an element: 1, 2, 4, 8.
};

// One row of encoding `sparse` (docs/format.md, section 6), its streams as they were staged.
struct SparseRow {
  ChunkPlaceRow place;
  const std::uint64_t* low;   // 8-byte aligned, LowSize() bytes.
  const std::uint32_t* high;  // 4-byte aligned, HighSize() bytes.
  const std::byte* plane[8];  // Null: constant.
  std::uint64_t constants;
  std::uint32_t change_count;
  std::uint32_t element_count;
  std::uint32_t low_bits;
};

// One row of another encoding, undone: a mask to XOR, or replacement bytes.
struct DenseRow {
  ChunkPlaceRow place;
  const std::byte* bytes;  // place.size of them.
  bool replaces;           // `raw`: they are the target's bytes.
};

// One compressed block to decode.
struct DecodeRow {
  const std::byte* source;
  std::uint64_t source_size;
  std::byte* target;
  std::uint64_t target_size;  // What it must decode to.
};

enum class DecodeStatus : std::uint32_t {
  kNotRun,  // As the host fills results beforehand.
  kDecoded,
  kSourceEnds,   // In the middle of an element.
  kTargetEnds,   // More comes out than the target holds.
  kTargetShort,  // Less comes out.
  kWrongLength,  // The length that the block states is not the target's, or not readable.
  kBadOffset,    // A copy from before the target's beginning, or from nowhere.
};

struct DecodeResult {
  std::uint64_t written;  // Bytes of the target, from its beginning.
  DecodeStatus status;
};

// What a kernel found.
struct RowSums {
  std::uint64_t before[2];      // Dense and scan: digest of the bytes that were there.
  std::uint64_t difference[2];  // Digest at the target minus digest at the base.
  std::uint64_t touched;        // Sparse: lane 0 of the old values of the changed elements.
  std::uint32_t is_valid;       // Sparse: 0 for a position out of order or bounds, or a mask of 0.
};

}  // namespace segue::cuda
