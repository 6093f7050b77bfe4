// SPDX-License-Identifier: Apache-2.0
//
// Chunks under a view on their own: parts are gathered and put back without touching a gap, a
// sparse row's sums are those of its part, and rows that do not decode are refused with nothing
// written. Whole models under views: src/delta/views_test.cc.
#include "device/host/mapped_chunk.h"

#include <gtest/gtest.h>

#include "base/random.h"
#include "codec/sparse.h"

namespace segue {
namespace {

constexpr std::uint64_t kSize = 4096;  // One chunk of BF16: 32 rows of 64 columns.
constexpr unsigned kWidth = 2;

ByteVector RandomBytes(std::size_t size, std::uint64_t seed) {
  ByteVector bytes(size);
  Random random(seed);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random.Next() >> 56);
  return bytes;
}

// Columns 10 to 19 of each row, in rows of 24 bytes.
ViewMap Columns() {
  return ViewMap::Make(ColumnSlice(32, 64, 10, 10, kWidth, 8, 24), kSize / kWidth, kWidth, 1000)
      .value();
}

bool Holds(std::uint64_t element) { return element % 64 >= 10 && element % 64 < 20; }

TEST(MappedChunk, GatheredAndPutBack) {
  const ViewMap view = Columns();
  const ByteVector live = RandomBytes(1000, 1);
  ByteVector chunk(kSize, std::byte{7});
  GatherPart(view, live.data(), 0, kSize, chunk.data());
  for (std::uint64_t element = 0; element < kSize / kWidth; ++element) {
    const auto target = view.Locate(element);
    ASSERT_EQ(target.has_value(), Holds(element));
    for (unsigned i = 0; i < kWidth; ++i) {
      ASSERT_EQ(chunk[element * kWidth + i], target ? live[*target + i] : std::byte{0});
    }
  }
  const ByteVector other = RandomBytes(kSize, 2);
  ByteVector put = live;
  ScatterPart(view, put.data(), 0, kSize, other.data());
  std::size_t changed = 0;
  for (std::size_t i = 0; i < put.size(); ++i) changed += put[i] != live[i];
  EXPECT_LE(changed, 32u * 10 * kWidth);
  GatherPart(view, put.data(), 0, kSize, chunk.data());
  for (std::uint64_t i = 0; i < kSize; ++i) {
    ASSERT_EQ(chunk[i], Holds(i / kWidth) ? other[i] : std::byte{0});
  }
}

// A sparse row over the whole chunk, of which the view holds some changes.
struct SparseRow {
  explicit SparseRow(std::vector<std::uint32_t> at) : positions(std::move(at)) {
    const SparseShape shape = {static_cast<std::uint32_t>(positions.size()), kSize / kWidth, 3};
    low.resize(shape.LowSize() + host::kStreamSlack);
    high.resize(shape.HighSize());
    EncodePositions(positions, shape, MutableByteSpan(low).first(shape.LowSize()), high);
    plane.assign(positions.size(), std::byte{0x21});
    work.width = kWidth;
    work.key = {3, 0};
    work.sparse.low = low.data();
    work.sparse.high = high.data();
    work.sparse.plane[0] = plane.data();
    work.sparse.change_count = shape.change_count;
    work.sparse.element_count = shape.element_count;
    work.sparse.low_bits = shape.low_bits;
    work.sparse.width = kWidth;
    work.size = kSize;
    work.touched = 1;
    work.view = &view;
    work.part = &sums;
    mapped.Reserve(kSize);
  }

  const ViewMap view = Columns();
  std::vector<std::uint32_t> positions;
  ByteVector low, high, plane;
  PartSums sums;
  ChunkWork work;
  MaskDecoder decoder;
  MappedChunk mapped;
};

TEST(MappedChunk, SparseSumsAreThoseOfThePart) {
  SparseRow row({5, 10, 12, 63, 74, 80, 2047});
  ByteVector live = RandomBytes(1000, 3);
  row.work.live = live.data();
  ByteVector before(kSize);
  GatherPart(row.view, live.data(), 0, kSize, before.data());
  const ByteVector loaded = live;
  ASSERT_TRUE(row.mapped.Preflight(row.work, row.decoder).ok());
  EXPECT_EQ(live, loaded);
  const PartSums sums = row.sums;
  ASSERT_TRUE(row.mapped.Apply(row.work, row.decoder).ok());
  ByteVector after(kSize);
  GatherPart(row.view, live.data(), 0, kSize, after.data());
  std::size_t changed = 0;
  for (std::size_t i = 0; i < kSize; ++i) changed += before[i] != after[i];
  EXPECT_EQ(changed, 4u) << "10, 12, 74 and 80 are in columns 10 to 19";
  const host::Kernels& kernels = host::ActiveKernels();
  EXPECT_EQ(sums.difference, kernels.digest(row.work.key, after.data(), kSize) -
                                 kernels.digest(row.work.key, before.data(), kSize));
  // Again, onto what is no longer the base.
  EXPECT_EQ(row.mapped.Apply(row.work, row.decoder).code(), StatusCode::kCorruption);
}

TEST(MappedChunk, RowsThatDoNotDecode) {
  SparseRow row({5, 10, 12});
  ByteVector live = RandomBytes(1000, 4);
  const ByteVector loaded = live;
  row.work.live = live.data();
  row.plane[1] = std::byte{0};  // A mask of zero.
  EXPECT_EQ(row.mapped.Preflight(row.work, row.decoder).code(), StatusCode::kCorruption);
  row.plane[1] = std::byte{1};
  row.work.sparse.element_count = 10;  // Position 10 is outside.
  EXPECT_EQ(row.mapped.Preflight(row.work, row.decoder).code(), StatusCode::kCorruption);
  row.work.encoding = DeviceEncoding::kZstd;
  row.work.dense = row.plane;
  EXPECT_EQ(row.mapped.Preflight(row.work, row.decoder).code(), StatusCode::kCorruption);
  EXPECT_EQ(live, loaded);
}

}  // namespace
}  // namespace segue
