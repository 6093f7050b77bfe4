// SPDX-License-Identifier: Apache-2.0
//
// Kernel cores on HostWarp, or the compiled kernels (tests/fake_cuda/run_kernel.h), held against
// the scalar kernels of the host. Method: the same rows for both, of every width, density and set
// of constant planes, at odd addresses, in views, and rows that break one rule; bytes and sums must
// be equal, and canaries around the live bytes intact.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/random.h"
#include "device/cuda/dense_core.h"
#include "device/cuda/kernel_view.h"
#include "device/cuda/row_testing.h"
#include "device/cuda/sparse_core.h"
#include "device/host/mapped_chunk.h"
#include "device/testing.h"
#include "fake_cuda/run_kernel.h"

namespace segue::cuda {
namespace {

using fake_cuda::RunRow;

constexpr std::size_t kCanarySize = 64;

// Live bytes at any skew, with canaries before and behind.
class Live {
 public:
  explicit Live(const ByteVector& bytes, std::size_t skew = 0)
      : size_(bytes.size()),
        begin_(kCanarySize + skew),
        all_(begin_ + size_ + kCanarySize, kCanary) {
    std::copy(bytes.begin(), bytes.end(), data());
  }
  std::byte* data() { return all_.data() + begin_; }
  ByteVector bytes() { return ByteVector(data(), data() + size_); }
  bool CanariesAreIntact() const {
    const auto is_canary = [](std::byte byte) { return byte == kCanary; };
    return std::all_of(all_.begin(), all_.begin() + Offset(begin_), is_canary) &&
           std::all_of(all_.begin() + Offset(begin_ + size_), all_.end(), is_canary);
  }

 private:
  static constexpr std::byte kCanary{0xc5};
  static std::ptrdiff_t Offset(std::size_t size) { return static_cast<std::ptrdiff_t>(size); }

  std::size_t size_;
  std::size_t begin_;
  ByteVector all_;
};

Digest DifferenceOf(const RowSums& sums) { return {{sums.difference[0], sums.difference[1]}}; }
Digest BeforeOf(const RowSums& sums) { return {{sums.before[0], sums.before[1]}}; }

const host::Kernels& Scalar() { return *host::AvailableKernels().front(); }

void CheckSparseRow(const host::Row& row, const ByteVector& base, std::size_t skew) {
  ByteVector expected_bytes = base;
  const host::SparseSums expected =
      Scalar().sparse_preflight(kKey, row.chunk, expected_bytes.data());
  ASSERT_TRUE(expected.valid);
  Scalar().sparse_apply(kKey, row.chunk, expected_bytes.data());

  Live live(base, skew);
  const SparseInput input(row.chunk, live.data());
  const RowSums before = RunRow<RowSums>(Kernel::kSparsePreflight, input.row);
  ASSERT_EQ(before.is_valid, 1u);
  ASSERT_EQ(live.bytes(), base);
  ASSERT_EQ(DifferenceOf(before), expected.difference);
  ASSERT_EQ(before.touched, expected.touched);
  const RowSums applied = RunRow<RowSums>(Kernel::kSparseApply, input.row);
  ASSERT_EQ(DifferenceOf(applied), expected.difference);
  ASSERT_EQ(live.bytes(), expected_bytes);
  ASSERT_TRUE(live.CanariesAreIntact());
}

TEST(SparseCoreTest, EqualsTheScalarKernel) {
  Random random(1);
  for (const unsigned width : {1u, 2u, 4u, 8u}) {
    for (const std::uint32_t element_count : {1u, 2u, 31u, 32u, 33u, 64u, 1024u, 4097u, 40000u}) {
      for (const double share : {0.0, 0.001, 0.1, 0.6, 1.0}) {
        const auto constant = static_cast<unsigned>(random.Below(1u << width));
        const host::Row row = host::RandomRow(random, element_count, width, share, constant);
        SCOPED_TRACE("width " + std::to_string(width) + " N " + std::to_string(element_count));
        const ByteVector base = host::RandomBytes(random, std::size_t{element_count} * width);
        ASSERT_NO_FATAL_FAILURE(CheckSparseRow(row, base, 0));
      }
    }
  }
}

TEST(SparseCoreTest, EveryCountOfLowBits) {
  Random random(2);
  for (unsigned low_bits = 0; low_bits <= kSparseLowBitsMax; ++low_bits) {
    host::Row row;
    row.positions = {0, 1, 2, 500, 501, 1022, 1023};
    row.values = host::RandomBytes(random, 14);
    for (std::byte& byte : row.values) byte |= std::byte{1};
    row.Encode(1024, 2, low_bits);
    ASSERT_NO_FATAL_FAILURE(CheckSparseRow(row, host::RandomBytes(random, 2048), 0));
  }
}

// case A6
TEST(SparseCoreTest, OddAddresses) {
  Random random(3);
  for (const unsigned width : {2u, 4u, 8u}) {
    for (const std::size_t skew : {1, 2, 3, 5, 7}) {
      const host::Row row = host::RandomRow(random, 3000, width, 0.05, 0);
      const ByteVector base = host::RandomBytes(random, std::size_t{3000} * width);
      ASSERT_NO_FATAL_FAILURE(CheckSparseRow(row, base, skew));
    }
  }
}

void ExpectInvalid(const host::Row& row, std::size_t live_size) {
  const ByteVector base(live_size, std::byte{0x77});
  Live live(base);
  const SparseInput input(row.chunk, live.data());
  const RowSums found = RunRow<RowSums>(Kernel::kSparsePreflight, input.row);
  EXPECT_EQ(found.is_valid, 0u);
  EXPECT_EQ(live.bytes(), base);
}

// At every place of a round, and across the borders of rounds and of tiles (1,024 bits).
TEST(SparseCoreTest, ReportsPositionsOutOfOrder) {
  for (const std::size_t place : {0, 1, 30, 31, 32, 62, 95, 1022, 1023, 1024, 1500, 2046}) {
    host::Row row;
    for (std::uint32_t i = 0; i < 2048; ++i) row.positions.push_back(i);
    row.values.assign(2048, std::byte{1});
    std::swap(row.positions[place], row.positions[place + 1]);
    row.Encode(2048, 1, 11);  // One high part for all: the low bits alone give the order.
    ExpectInvalid(row, 2048);
    row.positions[place] = row.positions[place + 1];
    row.Encode(2048, 1, 11);
    ExpectInvalid(row, 2048);
  }
}

TEST(SparseCoreTest, ReportsPositionsBeyondTheChunkAndMasksOfZero) {
  for (const unsigned width : {1u, 2u, 4u, 8u}) {
    for (const std::uint32_t element_count : {1u, 33u, 1000u, 65537u}) {
      for (const std::uint32_t position : {element_count, element_count + 1, (1u << 17) - 1}) {
        host::Row row;
        row.values.assign(width, std::byte{1});
        row.positions = {position};
        row.Encode(element_count, width, 17);
        ExpectInvalid(row, std::size_t{element_count} * width);
      }
    }
    for (const std::size_t place : {0, 31, 32, 99}) {
      Random random(5);
      host::Row row = host::RandomRow(random, 100, width, 1.0, 0);
      for (unsigned p = 0; p < width; ++p) row.values[place * width + p] = std::byte{0};
      row.Encode(100, width, 0);
      ExpectInvalid(row, std::size_t{100} * width);
    }
  }
}

TEST(SelectOneTest, FindsEveryOne) {
  Random random(6);
  for (int round = 0; round < 2000; ++round) {
    std::uint32_t word = static_cast<std::uint32_t>(random.Next() & random.Next());
    if (round < 32) word = 1u << round;
    if (round == 32) word = ~0u;
    unsigned rank = 0;
    for (unsigned bit = 0; bit < 32; ++bit) {
      if ((word >> bit & 1) == 0) continue;
      ASSERT_EQ(SelectOne(word, rank), bit);
      ++rank;
    }
  }
}

void CheckDenseRow(ByteSpan base_bytes, std::size_t skew, bool replaces, Random& random) {
  const ByteVector base(base_bytes.begin(), base_bytes.end());
  const ByteVector bytes = host::RandomBytes(random, base.size());
  ByteVector target = bytes;
  if (!replaces) Scalar().xor_bytes(base.data(), bytes.data(), target.data(), base.size());
  const Digest before = Scalar().digest(kKey, base.data(), base.size());
  const Digest after = Scalar().digest(kKey, target.data(), target.size());

  Live live(base, skew);
  const DenseRow row = {Place(live.data(), base.size(), 1), bytes.data(), replaces};
  EXPECT_EQ(BeforeOf(RunRow<RowSums>(Kernel::kDenseScan, row)), before);
  const RowSums found = RunRow<RowSums>(Kernel::kDensePreflight, row);
  EXPECT_EQ(BeforeOf(found), before);
  EXPECT_EQ(DifferenceOf(found), after - before);
  EXPECT_EQ(live.bytes(), base);
  const RowSums applied = RunRow<RowSums>(Kernel::kDenseApply, row);
  EXPECT_EQ(DifferenceOf(applied), after - before);
  EXPECT_EQ(live.bytes(), target);
  EXPECT_TRUE(live.CanariesAreIntact());
}

TEST(DenseCoreTest, EqualsTheScalarKernelAtEverySizeAndAddress) {
  Random random(7);
  for (const std::size_t size : {1, 2, 3, 4, 15, 16, 17, 511, 512, 513, 4095, 4096, 4097, 9001}) {
    const ByteVector base = host::RandomBytes(random, size);
    for (const std::size_t skew : {0, 1, 4, 7}) {
      for (const bool replaces : {false, true}) CheckDenseRow(base, skew, replaces, random);
    }
  }
}

// A chunk of a tensor of 64 x 48 elements under views: slices, transposed, padded.
class ViewTest : public ::testing::TestWithParam<unsigned> {
 protected:
  static constexpr std::uint32_t kRows = 64, kColumns = 48;
  unsigned width() const { return GetParam(); }
  std::vector<View> Views() const {
    return {RowSlice(kColumns, 8, 40, width()),
            ColumnSlice(kRows, kColumns, 5, 17, width(), 32, 200),
            TransposedView(kRows, kColumns, width())};
  }
  std::uint64_t BufferSize() const { return 64 * 48 * 8 + 64 * 200; }
  ViewMap Map(const View& view) const {
    return ViewMap::Make(view, kRows * kColumns, width(), BufferSize()).value();
  }
};

TEST_P(ViewTest, PlacesAreThoseOfTheViewMap) {
  for (const View& view : Views()) {
    const ViewMap map = Map(view);
    const KernelView kernel_view = MakeKernelView(map);
    for (std::uint64_t element = 0; element < kRows * kColumns; ++element) {
      ASSERT_EQ(Locate(kernel_view, element), map.Locate(element).value_or(kNotHeld));
    }
  }
}

TEST_P(ViewTest, SparseRowsEqualTheMappedChunk) {
  Random random(8);
  for (const View& view : Views()) {
    const ViewMap map = Map(view);
    const KernelView kernel_view = MakeKernelView(map);
    const host::Row row = host::RandomRow(random, kRows * kColumns, width(), 0.1, 0);
    const ByteVector base = host::RandomBytes(random, BufferSize());

    ByteVector expected = base;
    PartSums part;
    ChunkWork work;
    work.width = width();
    work.key = {kKey.tensor, 0};
    work.sparse = row.chunk;
    work.live = expected.data();
    work.size = std::uint64_t{kRows} * kColumns * width();
    work.touched = 1;
    work.view = &map;
    work.part = &part;
    MappedChunk mapped;
    MaskDecoder decoder;
    mapped.Reserve(work.size);
    ASSERT_TRUE(mapped.Preflight(work, decoder).ok());
    ASSERT_TRUE(mapped.Apply(work, decoder).ok());

    Live live(base);
    SparseInput input(row.chunk, live.data());
    input.row.place.view = &kernel_view;
    input.row.place.first_element = 0;
    input.row.place.first_block = 0;
    const RowSums found = RunRow<RowSums>(Kernel::kSparsePreflight, input.row);
    EXPECT_EQ(DifferenceOf(found), part.difference);
    EXPECT_EQ(found.touched, part.touched);
    EXPECT_EQ(live.bytes(), base);
    RunRow<RowSums>(Kernel::kSparseApply, input.row);
    EXPECT_EQ(live.bytes(), expected);
    EXPECT_TRUE(live.CanariesAreIntact());
  }
}

TEST_P(ViewTest, DenseRowsChangeTheirPartAlone) {
  Random random(9);
  const std::uint64_t size = std::uint64_t{kRows} * kColumns * width();
  for (const View& view : Views()) {
    const ViewMap map = Map(view);
    const KernelView kernel_view = MakeKernelView(map);
    const ByteVector base = host::RandomBytes(random, BufferSize());
    const ByteVector mask = host::RandomBytes(random, size);
    ByteVector part(size);
    GatherPart(map, base.data(), 0, size, part.data());
    const Digest before = Scalar().digest({kKey.tensor, 0}, part.data(), size);
    Scalar().xor_bytes(part.data(), mask.data(), part.data(), size);
    ByteVector expected = base;
    ScatterPart(map, expected.data(), 0, size, part.data());
    GatherPart(map, expected.data(), 0, size, part.data());
    const Digest after = Scalar().digest({kKey.tensor, 0}, part.data(), size);

    Live live(base);
    DenseRow row = {Place(live.data(), size, width()), mask.data(), false};
    row.place.view = &kernel_view;
    row.place.first_element = 0;
    row.place.first_block = 0;
    const RowSums found = RunRow<RowSums>(Kernel::kDenseApply, row);
    EXPECT_EQ(BeforeOf(found), before);
    EXPECT_EQ(DifferenceOf(found), after - before);
    EXPECT_EQ(live.bytes(), expected);
  }
}

INSTANTIATE_TEST_SUITE_P(Widths, ViewTest, ::testing::Values(1u, 2u, 4u, 8u));

}  // namespace
}  // namespace segue::cuda
