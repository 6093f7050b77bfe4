// SPDX-License-Identifier: Apache-2.0
//
// Adding up, sizes, rows.
#include "device/cuda/diff_layout.h"

#include <algorithm>
#include <bit>

#include "base/random.h"

namespace segue::cuda {

ChunkFound AddUp(std::span<const FindSums> segments) {
  ChunkFound found;
  for (const FindSums& segment : segments) {
    found.sums.before += Digest{{segment.before[0], segment.before[1]}};
    found.sums.after += Digest{{segment.after[0], segment.after[1]}};
    found.sums.touched += segment.touched;
    found.sums.change_count += static_cast<std::uint32_t>(segment.change_count);
    found.mask_ones |= segment.mask_ones;
    found.mask_zeros |= segment.mask_zeros;
  }
  return found;
}

StreamLayout StreamLayout::Of(const DiffWork& work, const ChunkFound& found) {
  const auto element_count = static_cast<std::uint32_t>(work.size / work.width);
  const std::uint32_t change_count = found.sums.change_count;
  StreamLayout layout;
  layout.shape = {change_count, element_count, ChooseLowBits(change_count, element_count)};
  layout.width = work.width;
  // A bit that is 1 in some masks and 0 in others.
  const std::uint64_t varying = found.mask_ones & found.mask_zeros;
  for (unsigned p = 0; p < work.width; ++p) {
    if ((varying >> 8 * p & 0xff) != 0) {
      layout.plane_mask |= 1u << p;
    } else {
      layout.constants |= found.mask_ones & std::uint64_t{0xff} << 8 * p;
    }
  }
  return layout;
}

std::uint64_t StreamLayout::PlaneOffset(unsigned plane) const {
  const unsigned before = plane_mask & ((1u << plane) - 1);
  return HighOffset() + shape.HighSize() +
         static_cast<unsigned>(std::popcount(before)) * std::uint64_t{shape.change_count};
}

host::SparseChunk StreamLayout::At(const std::byte* bytes) const {
  host::SparseChunk chunk;
  chunk.low = bytes;
  chunk.high = bytes + HighOffset();
  for (unsigned p = 0; p < width; ++p) {
    if ((plane_mask >> p & 1) != 0) chunk.plane[p] = bytes + PlaneOffset(p);
  }
  chunk.constants = constants;
  chunk.change_count = shape.change_count;
  chunk.element_count = shape.element_count;
  chunk.low_bits = shape.low_bits;
  chunk.width = width;
  return chunk;
}

FindRow MakeFindRow(const DiffWork& work, std::uint64_t segment, std::byte* bits) {
  const std::uint64_t offset = segment * kSegmentSize;
  FindRow row = {};
  row.place.live = const_cast<std::byte*>(work.base) + offset;
  row.place.size = std::min(kSegmentSize, work.size - offset);
  for (unsigned lane = 0; lane < 2; ++lane) {
    row.place.tensor_key[lane] = Mix64(work.key.tensor << 1 | lane);
  }
  row.place.first_block = work.key.first_block + offset / kDigestBlockSize;
  row.place.width = work.width;
  row.target = work.target + offset;
  row.bits = bits;
  return row;
}

PackRow MakePackRow(const FindRow& find, std::uint64_t segment, const StreamLayout& layout,
                    std::byte* streams, std::uint32_t first_change) {
  PackRow row = {};
  row.place = find.place;
  row.target = find.target;
  row.bits = reinterpret_cast<const std::uint32_t*>(find.bits);
  row.low = reinterpret_cast<std::uint32_t*>(streams);
  row.high = reinterpret_cast<std::uint32_t*>(streams + layout.HighOffset());
  for (unsigned p = 0; p < layout.width; ++p) {
    if ((layout.plane_mask >> p & 1) != 0) row.plane[p] = streams + layout.PlaneOffset(p);
  }
  row.first_element = static_cast<std::uint32_t>(segment * kSegmentSize / layout.width);
  row.first_change = first_change;
  row.low_bits = layout.shape.low_bits;
  return row;
}

}  // namespace segue::cuda
