// SPDX-License-Identifier: Apache-2.0
//
// Elias-Fano positions: what is encoded decodes to the same, at every border of the form, and each
// rule of docs/format.md, section 6, has a test that breaks it alone. Method: exact shapes
// (n = 1, n = N, N = 1, every low_bits), random sets, then single edits of a valid code.
#include "codec/sparse.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <vector>

#include "base/random.h"

namespace segue {
namespace {

using ::testing::HasSubstr;

struct Code {
  SparseShape shape;
  ByteVector low;
  ByteVector high;
};

Code Encode(const std::vector<std::uint32_t>& positions, std::uint32_t element_count,
            unsigned low_bits) {
  Code code{{static_cast<std::uint32_t>(positions.size()), element_count, low_bits}, {}, {}};
  code.low.resize(code.shape.LowSize(), std::byte{0xee});
  code.high.resize(code.shape.HighSize(), std::byte{0xee});
  EncodePositions(positions, code.shape, code.low, code.high);
  return code;
}

Status Decode(const Code& code, std::vector<std::uint32_t>& positions) {
  positions.assign(code.shape.change_count, 0xdeadbeef);
  return DecodePositions(code.shape, code.low, code.high, positions);
}

void ExpectRoundTrip(const std::vector<std::uint32_t>& positions, std::uint32_t element_count,
                     unsigned low_bits) {
  const Code code = Encode(positions, element_count, low_bits);
  EXPECT_TRUE(CheckSparse(code.shape, code.low, code.high).ok());
  std::vector<std::uint32_t> decoded;
  const Status status = Decode(code, decoded);
  ASSERT_TRUE(status.ok()) << status.ToString();
  ASSERT_EQ(decoded, positions) << "N " << element_count << " l " << low_bits;
}

std::vector<std::uint32_t> RandomPositions(Random& random, std::uint32_t count,
                                           std::uint32_t element_count) {
  std::vector<std::uint32_t> all(element_count);
  std::iota(all.begin(), all.end(), 0u);
  for (std::uint32_t i = 0; i < count; ++i) {
    std::swap(all[i], all[i + random.Below(element_count - i)]);
  }
  all.resize(count);
  std::sort(all.begin(), all.end());
  return all;
}

void ExpectRefused(const Code& code, const char* reason) {
  std::vector<std::uint32_t> positions;
  const Status status = Decode(code, positions);
  EXPECT_EQ(status.code(), StatusCode::kCorruption);
  EXPECT_THAT(status.message(), HasSubstr(reason));
}

void FlipBit(ByteVector& bytes, std::size_t bit) {
  bytes[bit / 8] ^= static_cast<std::byte>(1u << (bit % 8));
}

TEST(SparseTest, BordersRoundTripWithEveryLowBits) {
  for (unsigned low_bits = 0; low_bits <= kSparseLowBitsMax; ++low_bits) {
    for (const std::uint32_t n : {1u, 2u, 63u, 64u, 65u, 127u, 128u, 129u, 4096u}) {
      std::vector<std::uint32_t> all(n);
      std::iota(all.begin(), all.end(), 0u);
      ExpectRoundTrip(all, n, low_bits);
      ExpectRoundTrip({0}, n, low_bits);
      ExpectRoundTrip({n - 1}, n, low_bits);
      if (n > 1) ExpectRoundTrip({0, n - 1}, n, low_bits);
    }
    // The largest chunk: 16 MiB of single bytes.
    ExpectRoundTrip({0, 1, (1u << 23) - 1, 1u << 23, (1u << 24) - 1}, 1u << 24, low_bits);
  }
}

TEST(SparseTest, RandomSetsRoundTrip) {
  Random random(1);
  for (int round = 0; round < 300; ++round) {
    const auto element_count = static_cast<std::uint32_t>(1 + random.Below(5000));
    const auto count = static_cast<std::uint32_t>(1 + random.Below(element_count));
    const auto positions = RandomPositions(random, count, element_count);
    ExpectRoundTrip(positions, element_count, ChooseLowBits(count, element_count));
    ExpectRoundTrip(positions, element_count, static_cast<unsigned>(random.Below(25)));
  }
}

TEST(SparseTest, ChosenLowBitsAreWithinTheFormat) {
  for (const std::uint32_t n : {1u, 2u, 3u, 1000u, 1u << 20, 1u << 24}) {
    EXPECT_EQ(ChooseLowBits(n, n), 0u);
    // At most the classical choice, with which both parts together are smallest.
    EXPECT_LE(ChooseLowBits(1, n), static_cast<unsigned>(std::bit_width(n)) - 1);
    EXPECT_LE(ChooseLowBits(1, n), kSparseLowBitsMax);
  }
}

TEST(SparseTest, LowBitsAtEqualsABitByBitReader) {
  Random random(2);
  ByteVector low(64);
  for (std::byte& byte : low) byte = static_cast<std::byte>(random.Next());
  for (unsigned low_bits = 1; low_bits <= kSparseLowBitsMax; ++low_bits) {
    for (std::uint64_t i = 0; (i + 1) * low_bits <= 512; ++i) {
      std::uint32_t expected = 0;
      for (unsigned b = 0; b < low_bits; ++b) {
        const std::uint64_t bit = i * low_bits + b;
        expected |= (std::to_integer<std::uint32_t>(low[bit / 8]) >> (bit % 8) & 1u) << b;
      }
      ASSERT_EQ(LowBitsAt(low, i, low_bits), expected) << i << " " << low_bits;
    }
  }
}

TEST(SparseTest, RefusesAnotherCountOfOnes) {
  const Code valid = Encode({3, 50, 99}, 100, 2);
  for (std::size_t bit = 0; bit < valid.shape.HighBits(); ++bit) {
    Code code = valid;
    FlipBit(code.high, bit);
    ExpectRefused(code, "positions, expected 3");
    EXPECT_FALSE(CheckSparse(code.shape, code.low, code.high).ok());
  }
}

TEST(SparseTest, RefusesHighPadding) {
  const Code valid = Encode({3, 50, 99}, 100, 2);  // 3 + 24 high bits.
  ASSERT_EQ(valid.shape.HighBits(), 27u);
  for (std::size_t bit = 27; bit < 64; ++bit) {
    Code code = valid;
    FlipBit(code.high, bit);
    FlipBit(code.high, 26);  // The last position's one, so that the count stays.
    ExpectRefused(code, "padding");
  }
}

TEST(SparseTest, RefusesLowPadding) {
  const Code valid = Encode({3, 50, 99}, 100, 2);  // 6 low bits.
  for (std::size_t bit = 6; bit < 64; ++bit) {
    Code code = valid;
    FlipBit(code.low, bit);
    ExpectRefused(code, "padding");
  }
}

TEST(SparseTest, RefusesPositionsOutOfOrder) {
  Code code = Encode({4, 5, 6}, 100, 2);  // One high part, so the low bits alone give the order.
  FlipBit(code.low, 2);                   // 5 becomes 4: twice the same.
  ExpectRefused(code, "out of order");
  code = Encode({4, 5, 6}, 100, 2);
  FlipBit(code.low, 2);
  FlipBit(code.low, 0);  // 5, 4, 6: descending.
  ExpectRefused(code, "out of order");
  EXPECT_TRUE(CheckSparse(code.shape, code.low, code.high).ok());  // Only positions show it.
}

TEST(SparseTest, RefusesAPositionThatIsNotBelowN) {
  Code code = Encode({97}, 98, 4);
  FlipBit(code.low, 1);  // 97 = 6 * 16 + 1 becomes 99.
  ExpectRefused(code, "not below 98");
}

}  // namespace
}  // namespace segue
