// SPDX-License-Identifier: Apache-2.0
//
// Snappy and LZ4 blocks: round trips, and refusal of every block that does not decode to exactly
// the size that is expected. Method: sizes around the codecs' borders, then truncation, trailing
// bytes and stated sizes that lie; targets are exact heap buffers, so that AddressSanitizer sees
// any byte written outside.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "base/random.h"
#include "codec/block_codec.h"

namespace segue {
namespace {

using ::testing::HasSubstr;

struct Codec {
  const char* name;
  std::size_t (*bound)(std::size_t);
  std::size_t (*compress)(ByteSpan, MutableByteSpan);
  Status (*decompress)(ByteSpan, MutableByteSpan);
};

class BlockCodecTest : public ::testing::TestWithParam<Codec> {
 protected:
  ByteVector Pack(ByteSpan source) const {
    ByteVector packed(GetParam().bound(source.size()));
    packed.resize(GetParam().compress(source, packed));
    return packed;
  }
  Status Unpack(ByteSpan packed, ByteVector& target) const {
    return GetParam().decompress(packed, target);
  }
};

ByteVector RandomBytes(std::uint64_t seed, std::size_t size, std::uint64_t values) {
  Random random(seed);
  ByteVector bytes(size);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random.Below(values));
  return bytes;
}

TEST_P(BlockCodecTest, RoundTripsAtManySizes) {
  for (const std::size_t size : {0, 1, 2, 3, 15, 16, 63, 64, 65, 255, 256, 4095, 4096, 4097, 65535,
                                 65536, 65537, 1 << 20, 16 << 20}) {
    for (const std::uint64_t values : {1, 3, 256}) {
      const ByteVector source = RandomBytes(size, size, values);
      const ByteVector packed = Pack(source);
      ByteVector target(size, std::byte{0xee});
      const Status status = Unpack(packed, target);
      ASSERT_TRUE(status.ok()) << status.ToString() << " at size " << size;
      ASSERT_EQ(target, source);
    }
  }
}

TEST_P(BlockCodecTest, RefusesAnotherSizeThanExpected) {
  const ByteVector source = RandomBytes(1, 1000, 3);
  const ByteVector packed = Pack(source);
  for (const std::size_t size : {0, 1, 999, 1001, 5000}) {
    ByteVector target(size);
    EXPECT_EQ(Unpack(packed, target).code(), StatusCode::kCorruption) << size;
  }
}

TEST_P(BlockCodecTest, RefusesTruncationAndTrailingBytes) {
  const ByteVector source = RandomBytes(2, 1000, 3);
  const ByteVector packed = Pack(source);
  ByteVector target(source.size());
  for (std::size_t size = 0; size < packed.size(); ++size) {
    const ByteVector exact(packed.begin(), packed.begin() + static_cast<std::ptrdiff_t>(size));
    EXPECT_FALSE(Unpack(exact, target).ok()) << size;
  }
  ByteVector longer = packed;
  longer.push_back(std::byte{0});
  EXPECT_FALSE(Unpack(longer, target).ok());
}

TEST_P(BlockCodecTest, NoiseNeverDecodesOutsideItsTarget) {
  for (std::uint64_t seed = 0; seed < 2000; ++seed) {
    const ByteVector noise = RandomBytes(seed, 1 + seed % 200, 256);
    ByteVector target(seed % 300);
    (void)Unpack(noise, target).ok();
  }
}

INSTANTIATE_TEST_SUITE_P(Codecs, BlockCodecTest,
                         ::testing::Values(Codec{"snappy", SnappyBound, SnappyCompress,
                                                 SnappyDecompress},
                                           Codec{"lz4", Lz4Bound, Lz4Compress, Lz4Decompress}),
                         [](const auto& parameters) { return std::string(parameters.param.name); });

// case F5: an inner Snappy block that claims 4 GiB - 1, and one whose length does not fit 32 bits.
TEST(SnappyTest, RefusesAClaimOf4GiB) {
  ByteVector block(8);
  ASSERT_TRUE(FromHex("ffffffff0f000000", block));
  ByteVector target(4096, std::byte{0xee});
  const Status status = SnappyDecompress(block, target);
  EXPECT_EQ(status.code(), StatusCode::kCorruption);
  EXPECT_THAT(status.message(), HasSubstr("4294967295"));
  EXPECT_THAT(status.message(), HasSubstr("4096"));
  EXPECT_EQ(target, ByteVector(4096, std::byte{0xee}));
  ASSERT_TRUE(FromHex("8080808010000000", block));
  EXPECT_EQ(SnappyDecompress(block, target).code(), StatusCode::kCorruption);
}

// case F5: LZ4 states no size; what comes out stops at the target's end.
TEST(Lz4Test, ABombStopsAtTheTargetsEnd) {
  const ByteVector zeros(64 << 20);
  ByteVector packed(Lz4Bound(zeros.size()));
  packed.resize(Lz4Compress(zeros, packed));
  ByteVector target(4096);
  EXPECT_EQ(Lz4Decompress(packed, target).code(), StatusCode::kCorruption);
}

}  // namespace
}  // namespace segue
