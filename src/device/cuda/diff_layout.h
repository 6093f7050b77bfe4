// SPDX-License-Identifier: Apache-2.0
//
// Diff layout: the host's arithmetic between the two passes of a diff. What the segments of a chunk
// found adds up; from it follow the sizes of the streams of the chunk's `sparse` row, and the rows
// of the second pass. No driver, no memory: tests and the CUDA differ use it alike.
#pragma once

#include <cstdint>
#include <span>

#include "codec/sparse.h"
#include "device/cuda/diff_rows.h"
#include "device/differ.h"

namespace segue::cuda {

// Segments of one chunk, or all of them, added up.
struct ChunkFound {
  host::DiffSums sums;
  std::uint64_t mask_ones = 0;
  std::uint64_t mask_zeros = 0;
};
ChunkFound AddUp(std::span<const FindSums> segments);

// Where the streams of a chunk's row lie in one stretch of memory.
struct StreamLayout {
  SparseShape shape;
  unsigned width = 1;
  unsigned plane_mask = 0;      // Planes that are streams;
  std::uint64_t constants = 0;  // the bytes of the others.

  // `found` has a change.
  static StreamLayout Of(const DiffWork& work, const ChunkFound& found);
  std::uint64_t HighOffset() const { return shape.LowSize(); }
  std::uint64_t PlaneOffset(unsigned plane) const;
  std::uint64_t size() const { return PlaneOffset(width); }
  // The row as kernels of the host take it, for streams that lie at `bytes`.
  host::SparseChunk At(const std::byte* bytes) const;
};

// `segment`: number in the chunk. `bits`: of the segment.
FindRow MakeFindRow(const DiffWork& work, std::uint64_t segment, std::byte* bits);
// `find`: the segment's row of the first pass. `streams`: where the layout's begin, 8-byte aligned.
// `first_change`: changes of the chunk's segments before this one.
PackRow MakePackRow(const FindRow& find, std::uint64_t segment, const StreamLayout& layout,
                    std::byte* streams, std::uint32_t first_change);

}  // namespace segue::cuda
