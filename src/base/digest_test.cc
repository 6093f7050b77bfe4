// SPDX-License-Identifier: Apache-2.0
//
// Goal: the digest is the one that docs/format.md defines (a direct computation of the sum), and
// has the properties that the receiver's proofs rest on: linear, additive over parts, and changed
// by every single changed bit. Method: random bytes, seeds fixed.
#include "base/digest.h"

#include <gtest/gtest.h>

#include <set>

namespace segue {
namespace {

ByteVector RandomBytes(std::uint64_t seed, std::size_t size) {
  Random random(seed);
  ByteVector bytes(size);
  for (std::byte& b : bytes) b = static_cast<std::byte>(random.Next());
  return bytes;
}

// Key of one word, by the definition.
Digest WordKey(std::uint64_t tensor, std::uint64_t word) {
  Digest key;
  for (unsigned lane = 0; lane < 2; ++lane) {
    key.lane[lane] = kDigestWordKeys[lane][word % kDigestBlockWords] *
                     DigestBlockKey(lane, tensor, word / kDigestBlockWords);
  }
  return key;
}

TEST(DigestTest, NothingAndZerosDigestToZero) {
  EXPECT_EQ(DigestBytes(0, 0, {}), Digest());
  EXPECT_EQ(DigestBytes(9, 4096, ByteVector(10000)), Digest());
}

TEST(DigestTest, IsTheSumOfWordsTimesKeys) {
  const ByteVector bytes = RandomBytes(1, 2 * kDigestBlockSize + 44);
  Digest expected;
  for (std::size_t word = 0; word < bytes.size() / 4; ++word) {
    const Digest key = WordKey(5, word);
    const std::uint64_t value = LoadLittle<std::uint32_t>(bytes.data() + word * 4);
    expected += Digest{{value * key.lane[0], value * key.lane[1]}};
  }
  EXPECT_EQ(DigestBytes(5, 0, bytes), expected);
}

TEST(DigestTest, StoredValueNeverChanges) {
  // Published versions carry such numbers: a change here breaks every store.
  EXPECT_EQ(DigestBytes(3, 0, RandomBytes(2, 5000)).ToHex(), "eef7f3fdd83a8e85b329c09075076c37");
}

TEST(DigestTest, PartsAddUp) {
  const ByteVector bytes = RandomBytes(3, 5 * kDigestBlockSize + 123);
  const Digest whole = DigestBytes(7, 0, bytes);
  for (std::size_t cut = 0; cut <= 5; ++cut) {
    const std::size_t offset = cut * kDigestBlockSize;
    const Digest parts = DigestBytes(7, 0, ByteSpan(bytes).first(offset)) +
                         DigestBytes(7, offset, ByteSpan(bytes).subspan(offset));
    EXPECT_EQ(parts, whole) << cut;
  }
}

TEST(DigestTest, DifferenceFollowsFromChangedWordsAlone) {
  const ByteVector base = RandomBytes(4, 3 * kDigestBlockSize);
  ByteVector target = base;
  Random random(5);
  Digest difference;
  std::set<std::uint64_t> words;
  for (int i = 0; i < 200; ++i) words.insert(random.Below(base.size() / 4));
  for (const std::uint64_t word : words) {
    const auto before = LoadLittle<std::uint32_t>(base.data() + word * 4);
    const auto after = static_cast<std::uint32_t>(random.Next());
    StoreLittle(target.data() + word * 4, after);
    const std::uint64_t change = std::uint64_t{after} - before;
    const Digest key = WordKey(2, word);
    difference += Digest{{change * key.lane[0], change * key.lane[1]}};
  }
  EXPECT_EQ(DigestBytes(2, 0, target) - DigestBytes(2, 0, base), difference);
}

TEST(DigestTest, EverySingleBitIsSeenByBothLanes) {
  ByteVector bytes = RandomBytes(6, kDigestBlockSize + 50);
  const Digest before = DigestBytes(1, 0, bytes);
  // Every bit of the first and last words, one in each word between.
  for (std::size_t bit = 0; bit < bytes.size() * 8;
       bit += bit < 64 || bit + 512 > bytes.size() * 8 ? 1 : 31) {
    bytes[bit / 8] ^= static_cast<std::byte>(1u << bit % 8);
    const Digest after = DigestBytes(1, 0, bytes);
    ASSERT_NE(after.lane[0], before.lane[0]) << bit;
    ASSERT_NE(after.lane[1], before.lane[1]) << bit;
    bytes[bit / 8] ^= static_cast<std::byte>(1u << bit % 8);
  }
}

TEST(DigestTest, MovedBytesAreSeen) {
  const ByteVector bytes = RandomBytes(7, 2 * kDigestBlockSize);
  ByteVector swapped(bytes.begin() + kDigestBlockSize, bytes.end());
  swapped.insert(swapped.end(), bytes.begin(), bytes.begin() + kDigestBlockSize);
  EXPECT_NE(DigestBytes(0, 0, bytes), DigestBytes(0, 0, swapped));
  EXPECT_NE(DigestBytes(0, 0, bytes), DigestBytes(1, 0, bytes));
  EXPECT_NE(DigestBytes(0, 0, bytes), DigestBytes(0, kDigestBlockSize, bytes));
}

TEST(DigestTest, TailIsPaddedWithZeros) {
  for (std::size_t size = 1; size < 12; ++size) {
    const ByteVector bytes = RandomBytes(8, size);
    ByteVector padded = bytes;
    padded.resize(12);
    EXPECT_EQ(DigestBytes(4, 0, bytes), DigestBytes(4, 0, padded)) << size;
  }
}

TEST(DigestTest, KeysAreOddAndDistinct) {
  std::set<std::uint64_t> keys;
  for (unsigned lane = 0; lane < 2; ++lane) {
    for (const std::uint32_t key : kDigestWordKeys[lane]) {
      EXPECT_EQ(key & 1, 1u);
      keys.insert(key);
    }
    for (std::uint64_t tensor = 0; tensor < 20; ++tensor) {
      for (std::uint64_t block = 0; block < 20; ++block) {
        const std::uint64_t key = DigestBlockKey(lane, tensor, block);
        EXPECT_EQ(key & 1, 1u);
        keys.insert(key);
      }
    }
  }
  EXPECT_EQ(keys.size(), 2 * kDigestBlockWords + 2 * 20 * 20);
}

TEST(DigestTest, HexIsBigEndianAndStrict) {
  const Digest digest{{0x0123456789abcdefull, 0xf}};
  EXPECT_EQ(digest.ToHex(), "0123456789abcdef000000000000000f");
  EXPECT_EQ(Digest::FromHex(digest.ToHex()), digest);
  EXPECT_EQ(Digest::FromHex("0123456789abcdef00000000000000f"), std::nullopt);
  EXPECT_EQ(Digest::FromHex("0123456789ABCDEF000000000000000f"), std::nullopt);
}

TEST(DigestDeathTest, OffsetsInsideABlockAreABug) {
  EXPECT_DEATH(DigestBytes(0, 4, ByteVector(8)), "check failed");
}

// Elements one by one, in an order that leaves blocks and comes back, add up to the whole.
TEST(Digest, OfElementsAddsUp) {
  ByteVector bytes(3 * kDigestBlockSize + 512);
  Random random(11);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random.Next() >> 56);
  for (const unsigned width : {1u, 2u, 4u, 8u}) {
    ElementDigester element(5);
    Digest sum;
    const std::size_t count = bytes.size() / width;
    for (std::size_t k = 0; k < count; ++k) {
      const std::size_t offset = k % 2 * (count / 2 * width) + k / 2 * width;
      std::uint64_t value = 0;
      std::memcpy(&value, bytes.data() + offset, width);
      sum += element(offset, value, width);
    }
    EXPECT_EQ(sum, DigestBytes(5, 0, bytes)) << width;
  }
}

}  // namespace
}  // namespace segue
