// SPDX-License-Identifier: Apache-2.0
//
// Block walk, held against plain decoders (decode_testing.h) and against the libraries. Method:
// what the libraries compress fills its chunk and no other size; blocks with bytes changed, cut or
// added fill it exactly where the plain decoder takes them.
#include "device/cuda/block_walk.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "base/random.h"
#include "codec/block_codec.h"
#include "device/cuda/decode_testing.h"

namespace segue::cuda {
namespace {

ByteVector Compress(BlockCodec codec, ByteSpan content) {
  ByteVector block(std::max(SnappyBound(content.size()), Lz4Bound(content.size())));
  block.resize(codec == BlockCodec::kSnappy ? SnappyCompress(content, block)
                                            : Lz4Compress(content, block));
  return block;
}

std::size_t LengthSize(ByteSpan block) {
  std::size_t size = 1;
  while ((block[size - 1] & std::byte{0x80}) != std::byte{0}) ++size;
  return size;
}

bool Fills(BlockCodec codec, ByteSpan block, std::size_t length_size, std::uint64_t size) {
  return codec == BlockCodec::kSnappy ? SnappyBodyFills(block.subspan(length_size), size)
                                      : Lz4BlockFills(block, size);
}

ByteVector Mask(Random& random, std::size_t size) {
  ByteVector bytes(size);
  for (std::byte& byte : bytes) {
    if (random.Below(60) == 0) byte = static_cast<std::byte>(random.Next());
  }
  return bytes;
}

class BlockWalkTest : public ::testing::TestWithParam<BlockCodec> {};

TEST_P(BlockWalkTest, FillsItsOwnSizeAndNoOther) {
  Random random(1);
  for (const std::size_t size : {1, 15, 60, 61, 300, 70'000, 1'000'000}) {
    const ByteVector block = Compress(GetParam(), Mask(random, size));
    const std::size_t length = LengthSize(block);
    EXPECT_TRUE(Fills(GetParam(), block, length, size)) << size;
    EXPECT_FALSE(Fills(GetParam(), block, length, size - 1)) << size;
    EXPECT_FALSE(Fills(GetParam(), block, length, size + 1)) << size;
    EXPECT_FALSE(Fills(GetParam(), block, length, 0)) << size;
  }
}

// The length of a Snappy block stays as it is: the walk sees the body alone.
TEST_P(BlockWalkTest, TakesWhatAPlainDecoderTakes) {
  Random random(2);
  unsigned taken = 0;
  constexpr unsigned kRounds = 20'000;
  for (unsigned round = 0; round < kRounds; ++round) {
    const std::size_t size = 1 + random.Below(400);
    ByteVector block = Compress(GetParam(), Mask(random, size));
    const std::size_t length = GetParam() == BlockCodec::kSnappy ? LengthSize(block) : 0;
    const std::size_t place = length + random.Below(block.size() - length);
    switch (random.Below(4)) {
      case 0: block[place] = static_cast<std::byte>(random.Next()); break;
      case 1: block[place] ^= std::byte{1} << random.Below(8); break;
      case 2: block.resize(place); break;
      default: block.push_back(static_cast<std::byte>(random.Next())); break;
    }
    const bool fills = Fills(GetParam(), block, length, size);
    ASSERT_EQ(fills, PlainDecode(GetParam(), block, size).has_value()) << round;
    taken += fills ? 1 : 0;
  }
  EXPECT_GT(taken, kRounds / 20);
  EXPECT_LT(taken, kRounds * 9 / 10);
}

TEST_P(BlockWalkTest, ALengthThatOnlyItsLastByteEndsIsNoBlock) {
  const ByteVector block(100'000, std::byte{255});
  EXPECT_FALSE(Fills(GetParam(), block, 0, 1 << 20));
  EXPECT_FALSE(Fills(GetParam(), {}, 0, 1));
}

INSTANTIATE_TEST_SUITE_P(Codecs, BlockWalkTest,
                         ::testing::Values(BlockCodec::kSnappy, BlockCodec::kLz4),
                         [](const auto& parameters) {
                           return parameters.param == BlockCodec::kSnappy ? "Snappy" : "Lz4";
                         });

}  // namespace
}  // namespace segue::cuda
