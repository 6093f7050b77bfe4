// SPDX-License-Identifier: Apache-2.0
//
// Diff layout: sums over segments, streams one after the other without gaps or overlap, rows of the
// second pass that begin where the segments before them end. The bytes that kernels make of it are
// held against the encoder in tests/cuda.
#include "device/cuda/diff_layout.h"

#include <gtest/gtest.h>

#include <vector>

namespace segue::cuda {
namespace {

constexpr std::uint64_t kChunkSize = 3 * kSegmentSize - 4096;

DiffWork Work(const std::byte* base, const std::byte* target) {
  return {base, target, kChunkSize, 4, {5, 512}};
}

FindSums Sums(std::uint64_t count, std::uint64_t ones, std::uint64_t zeros) {
  return {{1, 2}, {10, 20}, 7, ones, zeros, count};
}

TEST(DiffLayoutTest, SegmentsAddUp) {
  const FindSums segments[] = {Sums(3, 0x0f, ~0x0full), Sums(4, 0xf0, ~0xf0ull)};
  const ChunkFound found = AddUp(segments);
  EXPECT_EQ(found.sums.before, (Digest{{2, 4}}));
  EXPECT_EQ(found.sums.after, (Digest{{20, 40}}));
  EXPECT_EQ(found.sums.touched, 14u);
  EXPECT_EQ(found.sums.change_count, 7u);
  EXPECT_EQ(found.mask_ones, 0xffu);
  EXPECT_EQ(found.mask_zeros, ~std::uint64_t{0});
}

// Planes 0 and 3 vary, plane 1 is 0x22 and plane 2 is 0 in all masks.
TEST(DiffLayoutTest, StreamsLieOneAfterTheOther) {
  ChunkFound found;
  found.sums.change_count = 100;
  found.mask_ones = 0xff0022ff;
  found.mask_zeros = ~std::uint64_t{0x2200};
  const StreamLayout layout = StreamLayout::Of(Work(nullptr, nullptr), found);
  EXPECT_EQ(layout.plane_mask, 0b1001u);
  EXPECT_EQ(layout.constants, 0x2200u);
  EXPECT_EQ(layout.shape.element_count, kChunkSize / 4);
  EXPECT_EQ(layout.HighOffset(), layout.shape.LowSize());
  EXPECT_EQ(layout.PlaneOffset(0), layout.shape.LowSize() + layout.shape.HighSize());
  EXPECT_EQ(layout.PlaneOffset(3), layout.PlaneOffset(0) + 100);
  EXPECT_EQ(layout.size(), layout.PlaneOffset(0) + 200);

  const std::vector<std::byte> bytes(layout.size());
  const host::SparseChunk chunk = layout.At(bytes.data());
  EXPECT_EQ(chunk.low, bytes.data());
  EXPECT_EQ(chunk.high, bytes.data() + layout.HighOffset());
  EXPECT_EQ(chunk.plane[0], bytes.data() + layout.PlaneOffset(0));
  EXPECT_EQ(chunk.plane[1], nullptr);
  EXPECT_EQ(chunk.plane[2], nullptr);
  EXPECT_EQ(chunk.plane[3], bytes.data() + layout.PlaneOffset(3));
  EXPECT_EQ(chunk.constants, 0x2200u);
}

TEST(DiffLayoutTest, RowsOfASegment) {
  const std::vector<std::byte> base(kChunkSize);
  const std::vector<std::byte> target(kChunkSize);
  std::vector<std::uint64_t> words(BitsSize(kSegmentSize, 4) / 8);
  auto* const bits = reinterpret_cast<std::byte*>(words.data());
  const DiffWork work = Work(base.data(), target.data());
  ASSERT_EQ(SegmentCount(work.size), 3u);
  const FindRow find = MakeFindRow(work, 2, bits);
  EXPECT_EQ(find.place.live, base.data() + 2 * kSegmentSize);
  EXPECT_EQ(find.place.size, kSegmentSize - 4096);
  EXPECT_EQ(find.place.first_block, 512 + 2 * kSegmentSize / kDigestBlockSize);
  EXPECT_EQ(find.target, target.data() + 2 * kSegmentSize);

  ChunkFound found;
  found.sums.change_count = 100;
  const StreamLayout layout = StreamLayout::Of(work, found);
  std::vector<std::uint64_t> streams(layout.size() / 8 + 1);
  auto* const at = reinterpret_cast<std::byte*>(streams.data());
  const PackRow pack = MakePackRow(find, 2, layout, at, 60);
  EXPECT_EQ(pack.first_element, 2 * kSegmentSize / 4);
  EXPECT_EQ(pack.first_change, 60u);
  EXPECT_EQ(reinterpret_cast<std::byte*>(pack.low), at);
  EXPECT_EQ(reinterpret_cast<std::byte*>(pack.high), at + layout.HighOffset());
  EXPECT_EQ(pack.low_bits, layout.shape.low_bits);
}

}  // namespace
}  // namespace segue::cuda
