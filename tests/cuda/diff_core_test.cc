// SPDX-License-Identifier: Apache-2.0
//
// Diff core and layout, held against the encoder of the processor: sums of the scalar
// kernel, and streams byte for byte those of GroupBuilder, for every width, density, size, address,
// and choice of planes that hold one value.
#include "device/cuda/diff_core.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "base/random.h"
#include "delta/payload_writer.h"
#include "device/cuda/diff_layout.h"
#include "device/testing.h"
#include "fake_cuda/run_kernel.h"

namespace segue::cuda {
namespace {

using fake_cuda::RunRow;

constexpr host::ChunkKey kKey = {3, 256};

const host::Kernels& Scalar() { return *host::AvailableKernels().front(); }

// Bytes at any distance from an aligned address.
struct Skewed {
  Skewed(const ByteVector& bytes, std::size_t skew_bytes) : all(skew_bytes), skew(skew_bytes) {
    AppendBytes(all, bytes);
  }
  const std::byte* data() const { return all.data() + skew; }
  ByteVector all;
  std::size_t skew;
};

// What the CPU's encoder makes of the chunk.
struct Expected {
  host::DiffSums sums;
  ChunkRow row;
  std::array<ByteVector, kStreamCount> streams;
};

Expected EncodeOnHost(const ByteVector& base, const ByteVector& target, unsigned width) {
  Expected expected;
  const auto element_count = static_cast<std::uint32_t>(base.size() / width);
  std::vector<std::uint32_t> positions(element_count + kDigestBlockSize);
  ByteVector values(base.size() + kDigestBlockSize * width);
  expected.sums = Scalar().diff_sparse(kKey, base.data(), target.data(), base.size(), width,
                                       element_count, positions.data(), values.data());
  if (expected.sums.change_count == 0) return expected;
  GroupBuilder group;
  ChunkPlace place;
  place.tensor = kKey.tensor;
  place.offset = kKey.first_block * kDigestBlockSize;
  place.size = base.size();
  place.width = width;
  positions.resize(expected.sums.change_count);
  group.AddSparse(7, place,
                  {expected.sums.before, expected.sums.after, expected.sums.touched,
                   expected.sums.change_count},
                  positions, values.data());
  expected.row = group.rows().front();
  std::ranges::copy(group.streams(), expected.streams.begin());
  return expected;
}

// Both passes over one chunk, as a device runs them.
class Passes {
 public:
  Passes(const ByteVector& base, const ByteVector& target, unsigned width, std::size_t skew)
      : base_(base, skew), target_(target, skew == 0 ? 0 : 7 - skew) {
    pair_ = {base_.data(), target_.data(), base.size(), width, kKey};
  }

  void Find() {
    const std::uint64_t segments = SegmentCount(pair_.size);
    const std::uint64_t bits_size = BitsSize(kSegmentSize, pair_.width);
    bits_.assign(segments * bits_size / 8, ~std::uint64_t{0});
    auto* const bits = reinterpret_cast<std::byte*>(bits_.data());
    for (std::uint64_t i = 0; i < segments; ++i) {
      rows_.push_back(MakeFindRow(pair_, i, bits + i * bits_size));
      sums_.push_back(RunRow<FindSums>(Kernel::kDiffFind, rows_.back()));
    }
    found = AddUp(sums_);
  }

  void Pack() {
    layout = StreamLayout::Of(pair_, found);
    streams_.assign(layout.size() / 8 + 2, 0);
    auto* const streams = reinterpret_cast<std::byte*>(streams_.data());
    std::fill_n(streams + layout.size(), 8, kCanary);
    std::uint32_t first_change = 0;
    for (std::uint64_t i = 0; i < rows_.size(); ++i) {
      const PackRow row = MakePackRow(rows_[i], i, layout, streams, first_change);
      const PackSums packed = RunRow<PackSums>(Kernel::kDiffPack, row);
      EXPECT_EQ(packed.change_count, sums_[i].change_count);
      for (unsigned k = 0; k < 2; ++k) {
        EXPECT_EQ(packed.difference[k], sums_[i].after[k] - sums_[i].before[k]);
      }
      first_change += static_cast<std::uint32_t>(packed.change_count);
    }
    EXPECT_TRUE(std::all_of(streams + layout.size(), streams + layout.size() + 8,
                            [](std::byte byte) { return byte == kCanary; }));
    chunk = layout.At(streams);
  }

  ChunkFound found;
  StreamLayout layout;
  host::SparseChunk chunk;

 private:
  static constexpr std::byte kCanary{0xc5};
  Skewed base_;
  Skewed target_;
  DiffWork pair_;
  std::vector<FindRow> rows_;
  std::vector<FindSums> sums_;
  std::vector<std::uint64_t> bits_;
  std::vector<std::uint64_t> streams_;
};

void ExpectSameStreams(const Expected& expected, const Passes& passes, unsigned width) {
  const auto is = [](ByteSpan found, const ByteVector& wanted) {
    return std::ranges::equal(found, wanted);
  };
  const SparseShape& shape = passes.layout.shape;
  EXPECT_EQ(passes.chunk.low_bits, expected.row.low_bits);
  EXPECT_EQ(passes.layout.plane_mask, expected.row.plane_mask);
  EXPECT_EQ(passes.chunk.constants, expected.row.constants);
  EXPECT_TRUE(is(ByteSpan(passes.chunk.low, shape.LowSize()), expected.streams[kStreamLow]));
  EXPECT_TRUE(is(ByteSpan(passes.chunk.high, shape.HighSize()), expected.streams[kStreamHigh]));
  for (unsigned p = 0; p < width; ++p) {
    const std::byte* const plane = passes.chunk.plane[p];
    const std::size_t size = plane != nullptr ? shape.change_count : 0;
    EXPECT_TRUE(is(ByteSpan(plane, size), expected.streams[kStreamPlane0 + p])) << "plane " << p;
  }
}

void Check(const ByteVector& base, const ByteVector& target, unsigned width, std::size_t skew) {
  const Expected expected = EncodeOnHost(base, target, width);
  Passes passes(base, target, width, skew);
  passes.Find();
  ASSERT_EQ(passes.found.sums.before, expected.sums.before);
  ASSERT_EQ(passes.found.sums.after, expected.sums.after);
  ASSERT_EQ(passes.found.sums.touched, expected.sums.touched);
  ASSERT_EQ(passes.found.sums.change_count, expected.sums.change_count);
  if (expected.sums.change_count == 0) return;
  passes.Pack();
  ExpectSameStreams(expected, passes, width);
}

// `base` with the changes of `row`.
ByteVector Changed(const ByteVector& base, const host::Row& row, unsigned width) {
  ByteVector target = base;
  for (std::size_t i = 0; i < row.positions.size(); ++i) {
    for (unsigned p = 0; p < width; ++p) {
      target[std::size_t{row.positions[i]} * width + p] ^= row.values[i * width + p];
    }
  }
  return target;
}

TEST(DiffCoreTest, StreamsAreThoseOfTheEncoder) {
  Random random(1);
  for (const unsigned width : {1u, 2u, 4u, 8u}) {
    for (const std::uint32_t element_count : {1u, 2u, 31u, 33u, 1023u, 4097u, 40000u, 300001u}) {
      for (const double share : {0.0, 0.0005, 0.02, 0.3, 1.0}) {
        SCOPED_TRACE("width " + std::to_string(width) + " N " + std::to_string(element_count) +
                     " share " + std::to_string(share));
        const auto constant = static_cast<unsigned>(random.Below(1u << width));
        const ByteVector base = host::RandomBytes(random, std::size_t{element_count} * width);
        const host::Row row = host::RandomRow(random, element_count, width, share, constant);
        ASSERT_NO_FATAL_FAILURE(Check(base, Changed(base, row, width), width, 0));
      }
    }
  }
}

// case A6
TEST(DiffCoreTest, OddAddresses) {
  Random random(2);
  for (const unsigned width : {1u, 2u, 4u, 8u}) {
    for (const std::size_t skew : {1, 2, 3, 4, 5, 6}) {
      const ByteVector base = host::RandomBytes(random, std::size_t{20011} * width);
      const host::Row row = host::RandomRow(random, 20011, width, 0.05, 0);
      ASSERT_NO_FATAL_FAILURE(Check(base, Changed(base, row, width), width, skew));
    }
  }
}

TEST(DiffCoreTest, NothingChanged) {
  Random random(3);
  for (const std::size_t size : {1, 4095, 4096, 4097, 300000}) {
    const ByteVector base = host::RandomBytes(random, size);
    ASSERT_NO_FATAL_FAILURE(Check(base, base, 1, 0));
  }
}

// One change, at and around each border: of a lane's piece, a round of lanes, a digest block, a
// tile of bits, a segment.
TEST(DiffCoreTest, OneChangeAtEveryBorder) {
  Random random(4);
  const ByteVector base = host::RandomBytes(random, 2 * kSegmentSize + 8);
  for (const unsigned width : {1u, 2u, 4u, 8u}) {
    for (const std::uint64_t border :
         {std::uint64_t{16}, std::uint64_t{512}, std::uint64_t{1024}, std::uint64_t{4096},
          std::uint64_t{8192}, kSegmentSize, 2 * kSegmentSize}) {
      for (const std::uint64_t offset : {border - 1, border}) {
        ByteVector target = base;
        target[offset] ^= std::byte{0x80};
        ASSERT_NO_FATAL_FAILURE(Check(base, target, width, 0)) << width << " at " << offset;
      }
    }
  }
}

// Between the passes, a changed element changes once more.
TEST(DiffCoreTest, SumsTellOfABufferThatChangesBetweenThePasses) {
  Random random(5);
  ByteVector base = host::RandomBytes(random, 8192);
  ByteVector target = base;
  target[100] ^= std::byte{1};
  std::vector<std::uint64_t> bits(BitsSize(8192, 2) / 8);
  const DiffWork pair = {base.data(), target.data(), 8192, 2, kKey};
  const FindRow find = MakeFindRow(pair, 0, reinterpret_cast<std::byte*>(bits.data()));
  const FindSums found = RunRow<FindSums>(Kernel::kDiffFind, find);
  const StreamLayout layout = StreamLayout::Of(pair, AddUp({&found, 1}));
  std::vector<std::uint64_t> streams(layout.size() / 8 + 1);
  target[100] ^= std::byte{2};
  const PackRow row = MakePackRow(find, 0, layout, reinterpret_cast<std::byte*>(streams.data()), 0);
  const PackSums packed = RunRow<PackSums>(Kernel::kDiffPack, row);
  EXPECT_NE(packed.difference[0], found.after[0] - found.before[0]);
  EXPECT_NE(packed.difference[1], found.after[1] - found.before[1]);
}

}  // namespace
}  // namespace segue::cuda
