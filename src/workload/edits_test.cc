// SPDX-License-Identifier: Apache-2.0
//
// Direct edits do what their description says, and no more.
#include "workload/edits.h"

#include <gtest/gtest.h>

#include <bit>

#include "workload/statistics.h"

namespace segue::workload {
namespace {

TEST(Edits, ProxyFlipsTheWantedCountOfLowestBits) {
  ByteVector bytes(kProxyFrameSize, std::byte{0x5a});
  const ByteVector before = bytes;
  FlipProxyFrame(1, 0, 0.00085, 1, bytes);
  EXPECT_EQ(CountDifferent(8, before, bytes), 891u);
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    ASSERT_TRUE(bytes[i] == before[i] || bytes[i] == (before[i] ^ std::byte{1}));
  }
}

TEST(Edits, ProxyFlipsAtLeastOneElementInItsFirstByte) {
  ByteVector bytes(20, std::byte{0});
  FlipProxyFrame(1, 7, 0.00085, 2, bytes);
  EXPECT_EQ(CountDifferent(8, bytes, ByteVector(20, std::byte{0})), 1u);
  for (std::size_t i = 1; i < bytes.size(); i += 2) {
    EXPECT_EQ(bytes[i], std::byte{0});
  }
  FlipProxyFrame(1, 0, 0.5, 1, {});
  ByteVector one(2);
  FlipProxyFrame(1, 0, 9.0, 2, one);
  EXPECT_EQ(one[0], std::byte{1});
}

TEST(Edits, AdversarialBlocksHoldEveryKindOfValue) {
  ByteVector bytes(8 * kAdversarialBlockSize);
  FillAdversarialBlock(3, 0, bytes);
  int nan = 0, infinity = 0, zero = 0, negative_zero = 0, denormal = 0, number = 0;
  for (std::size_t i = 0; i < bytes.size(); i += 2) {
    const auto value = LoadLittle<std::uint16_t>(bytes.data() + i);
    const int magnitude = value & 0x7fff;
    nan += magnitude > 0x7f80;
    infinity += magnitude == 0x7f80;
    zero += value == 0;
    negative_zero += value == 0x8000;
    denormal += magnitude > 0 && magnitude < 0x80;
    number += magnitude >= 0x80 && magnitude < 0x7f80;
  }
  EXPECT_GT(nan, 1000);
  EXPECT_GT(infinity, 1000);
  EXPECT_GT(zero, 1000);
  EXPECT_GT(negative_zero, 1000);
  EXPECT_GT(denormal, 1000);
  EXPECT_GT(number, 10000);
}

// Goal: every edit changes its element. Method: the blocks of the pattern "all" must have no
// element left as it was, and the patterns must all occur.
TEST(Edits, AdversarialPatterns) {
  int untouched = 0, ends = 0, half = 0, all = 0, few = 0;
  constexpr std::uint64_t kElements = kAdversarialBlockSize / 2;
  for (std::uint64_t block = 0; block < 400; ++block) {
    ByteVector bytes(kAdversarialBlockSize);
    FillAdversarialBlock(3, block, bytes);
    const ByteVector before = bytes;
    EditAdversarialBlock(4, block, bytes);
    const std::uint64_t changed = CountDifferent(16, before, bytes);
    untouched += changed == 0;
    ends += changed == 2;
    all += changed == kElements;
    half += changed > kElements / 3 && changed < kElements * 2 / 3;
    few += changed > 2 && changed < 100;
  }
  EXPECT_GT(untouched, 50);
  EXPECT_GT(ends, 5);
  EXPECT_GT(half, 20);
  EXPECT_GT(all, 5);
  EXPECT_GT(few, 20);
  EXPECT_EQ(untouched + ends + half + all + few, 400);
}

// NaN may become a number, but a NaN that stays one has another payload, never infinity.
TEST(Edits, AdversarialPayloadsChange) {
  std::uint64_t other_payloads = 0;
  for (std::uint64_t block = 0; block < 100; ++block) {
    ByteVector bytes(kAdversarialBlockSize);
    FillAdversarialBlock(3, block, bytes);
    const ByteVector before = bytes;
    EditAdversarialBlock(4, block, bytes);
    for (std::size_t i = 0; i < bytes.size(); i += 2) {
      const auto a = LoadLittle<std::uint16_t>(before.data() + i);
      const auto b = LoadLittle<std::uint16_t>(bytes.data() + i);
      if ((a & 0x7fff) <= 0x7f80) continue;
      EXPECT_NE(b & 0x7fff, 0x7f80);
      other_payloads += a != b && (b & 0x7fff) > 0x7f80;
    }
  }
  EXPECT_GT(other_payloads, 1000u);
}

}  // namespace
}  // namespace segue::workload
