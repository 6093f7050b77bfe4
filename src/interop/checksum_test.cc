// SPDX-License-Identifier: Apache-2.0
//
// The public checksum is XXH3-128, and sees every bit.
#include "segue/checksum.h"

#include <gtest/gtest.h>

#include "base/bytes.h"

namespace segue {
namespace {

TEST(ChecksumTest, IsXxh3) { EXPECT_EQ(ToHex(ChecksumOf({})), "99aa06d3014798d86001c324468d497f"); }

TEST(ChecksumTest, SeesEveryBit) {
  ByteVector bytes(1000, std::byte{7});
  const Checksum before = ChecksumOf(bytes);
  for (const std::size_t at : {0, 499, 999}) {
    bytes[at] ^= std::byte{0x40};
    EXPECT_NE(ChecksumOf(bytes), before);
    bytes[at] ^= std::byte{0x40};
  }
  EXPECT_EQ(ChecksumOf(bytes), before);
}

}  // namespace
}  // namespace segue
