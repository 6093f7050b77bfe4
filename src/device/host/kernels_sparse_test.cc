// SPDX-License-Identifier: Apache-2.0
//
// Sparse rows in the host kernels: preflight and apply. Method: random rows of every width, density
// and set of constant planes, held against a loop over decoded positions; then rows that break one
// rule (order, bound, mask of 0), which the preflight must report without touching memory outside
// the chunk. Streams lie in exact buffers with the promised slack, the live bytes with none.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/random.h"
#include "codec/sparse.h"
#include "device/host/kernels.h"
#include "device/testing.h"

namespace segue::host {
namespace {

constexpr ChunkKey kKey = {3, 256};

Digest Whole(ByteSpan bytes) {
  return DigestBytes(kKey.tensor, kKey.first_block * kDigestBlockSize, bytes);
}

class SparseKernelsTest : public ::testing::TestWithParam<const Kernels*> {
 protected:
  const Kernels& kernels() const { return *GetParam(); }

  void CheckRow(const Row& row, const ByteVector& base) {
    const unsigned width = row.chunk.width;
    ByteVector target = base;
    ByteVector touched(base.size());
    for (std::size_t i = 0; i < row.positions.size(); ++i) {
      const std::size_t place = std::size_t{row.positions[i]} * width;
      for (unsigned p = 0; p < width; ++p) {
        touched[place + p] = base[place + p];
        target[place + p] ^= row.values[i * width + p];
      }
    }
    ByteVector live = base;
    const SparseSums sums = kernels().sparse_preflight(kKey, row.chunk, live.data());
    ASSERT_TRUE(sums.valid);
    ASSERT_EQ(live, base);
    ASSERT_EQ(sums.difference, Whole(target) - Whole(base));
    ASSERT_EQ(sums.touched, Whole(touched).lane[0]);
    ASSERT_EQ(kernels().sparse_apply(kKey, row.chunk, live.data()).difference, sums.difference);
    ASSERT_EQ(live, target);
    // XOR undoes itself.
    ASSERT_EQ(kernels().sparse_apply(kKey, row.chunk, live.data()).difference,
              Digest() - sums.difference);
    ASSERT_EQ(live, base);
  }

  void ExpectInvalid(const Row& row, std::size_t live_size) {
    const ByteVector live(live_size, std::byte{0x77});
    EXPECT_FALSE(kernels().sparse_preflight(kKey, row.chunk, live.data()).valid);
    EXPECT_EQ(live, ByteVector(live_size, std::byte{0x77}));
  }
};

TEST_P(SparseKernelsTest, RandomRows) {
  Random random(1);
  for (const unsigned width : {1u, 2u, 4u, 8u}) {
    for (const std::uint32_t element_count : {1u, 2u, 31u, 32u, 33u, 64u, 1024u, 4097u, 40000u}) {
      for (const double share : {0.0, 0.001, 0.1, 0.6, 1.0}) {
        const auto constant = static_cast<unsigned>(random.Below(1u << width));
        const Row row = RandomRow(random, element_count, width, share, constant);
        SCOPED_TRACE("width " + std::to_string(width) + " N " + std::to_string(element_count));
        ASSERT_NO_FATAL_FAILURE(
            CheckRow(row, RandomBytes(random, std::size_t{element_count} * width)));
      }
    }
  }
}

TEST_P(SparseKernelsTest, EveryLowBits) {
  Random random(2);
  for (unsigned low_bits = 0; low_bits <= kSparseLowBitsMax; ++low_bits) {
    Row row;
    row.positions = {0, 1, 2, 500, 501, 1022, 1023};
    row.values = RandomBytes(random, 14);
    for (std::byte& byte : row.values) byte |= std::byte{1};
    row.Encode(1024, 2, low_bits);
    ASSERT_NO_FATAL_FAILURE(CheckRow(row, RandomBytes(random, 2048)));
  }
}

// A row without low bits in a group without a low stream: any readable word stands in.
TEST_P(SparseKernelsTest, RowWithoutLowBitsReadsNoLowStream) {
  Random random(3);
  Row row = RandomRow(random, 64, 1, 1.0, 0);
  ASSERT_EQ(row.chunk.low_bits, 0u);
  row.chunk.low = row.chunk.high;
  ASSERT_NO_FATAL_FAILURE(CheckRow(row, RandomBytes(random, 64)));
}

// case A6
TEST_P(SparseKernelsTest, OddAddresses) {
  Random random(4);
  for (const unsigned width : {2u, 4u, 8u}) {
    const Row row = RandomRow(random, 3000, width, 0.05, 0);
    const ByteVector base = RandomBytes(random, std::size_t{3000} * width);
    ByteVector aligned = base;
    const SparseSums expected = kernels().sparse_apply(kKey, row.chunk, aligned.data());
    for (const std::size_t skew : {1, 2, 3, 5, 7}) {
      ByteVector shifted(skew + base.size());
      std::copy(base.begin(), base.end(), shifted.begin() + static_cast<std::ptrdiff_t>(skew));
      const SparseSums sums = kernels().sparse_apply(kKey, row.chunk, shifted.data() + skew);
      EXPECT_EQ(sums.difference, expected.difference);
      EXPECT_TRUE(std::equal(aligned.begin(), aligned.end(),
                             shifted.begin() + static_cast<std::ptrdiff_t>(skew)));
    }
  }
}

TEST_P(SparseKernelsTest, ReportsPositionsOutOfOrder) {
  // One high part for all, so that the low bits alone give the order; at several batch places.
  for (const std::size_t place : {0, 1, 30, 31, 32, 33, 62}) {
    Row row;
    for (std::uint32_t i = 0; i < 64; ++i) row.positions.push_back(i);
    row.values.assign(64, std::byte{1});
    std::swap(row.positions[place], row.positions[place + 1]);
    row.Encode(64, 1, 6);
    ExpectInvalid(row, 64);
    row.positions[place] = row.positions[place + 1];
    row.Encode(64, 1, 6);
    ExpectInvalid(row, 64);
  }
}

TEST_P(SparseKernelsTest, ReportsPositionsBeyondTheChunk) {
  for (const unsigned width : {1u, 2u, 4u, 8u}) {
    for (const std::uint32_t element_count : {1u, 33u, 1000u, 65537u}) {
      const unsigned low_bits = 17;
      Row row;
      row.values.assign(width, std::byte{1});
      // The high part is 0, within its bound; the low bits alone lead outside.
      for (const std::uint32_t position : {element_count, element_count + 1, (1u << 17) - 1}) {
        row.positions = {position};
        row.Encode(element_count, width, low_bits);
        ExpectInvalid(row, std::size_t{element_count} * width);
      }
    }
  }
}

// After 40 good ones, so that the bad one stands in the second batch.
TEST_P(SparseKernelsTest, ReportsALatePositionBeyondTheChunk) {
  Row row;
  for (std::uint32_t i = 0; i < 40; ++i) row.positions.push_back(i);
  row.positions.push_back(130);
  row.values.assign(41, std::byte{1});
  row.Encode(129, 1, 8);
  ExpectInvalid(row, 129);
}

TEST_P(SparseKernelsTest, ReportsAMaskOfZero) {
  Random random(5);
  for (const unsigned width : {1u, 2u, 4u, 8u}) {
    for (const std::size_t place : {0, 31, 32, 99}) {
      Row row = RandomRow(random, 100, width, 1.0, 0);
      for (unsigned p = 0; p < width; ++p) row.values[place * width + p] = std::byte{0};
      row.Encode(100, width, 0);
      ExpectInvalid(row, std::size_t{100} * width);
    }
    Row row = RandomRow(random, 100, width, 1.0, 0);
    row.values.assign(row.values.size(), std::byte{0});  // All planes elided with 0.
    row.Encode(100, width, 0);
    ExpectInvalid(row, std::size_t{100} * width);
  }
}

INSTANTIATE_TEST_SUITE_P(Tables, SparseKernelsTest,
                         ::testing::ValuesIn(AvailableKernels().begin(), AvailableKernels().end()),
                         [](const auto& parameters) {
                           return std::string(parameters.param->name);
                         });

}  // namespace
}  // namespace segue::host
