// SPDX-License-Identifier: Apache-2.0
//
// Goal: loads and stores at any alignment, checked arithmetic at its edges, a reader that never
// leaves its span and stays failed, and hexadecimal text that is strict.
#include "base/bytes.h"

#include <gtest/gtest.h>

#include <array>
#include <limits>

namespace segue {
namespace {

constexpr std::uint64_t kMax = std::numeric_limits<std::uint64_t>::max();

TEST(BytesTest, LoadsAndStoresAtEveryAlignment) {
  std::array<std::byte, 24> buffer{};
  for (std::size_t offset = 0; offset < 8; ++offset) {
    StoreLittle<std::uint64_t>(buffer.data() + offset, 0x0807060504030201ull);
    EXPECT_EQ(buffer[offset], std::byte{1});
    EXPECT_EQ(buffer[offset + 7], std::byte{8});
    EXPECT_EQ(LoadLittle<std::uint64_t>(buffer.data() + offset), 0x0807060504030201ull);
    EXPECT_EQ(LoadLittle<std::uint16_t>(buffer.data() + offset + 1), 0x0302);
  }
}

TEST(BytesTest, Appends) {
  ByteVector target;
  AppendLittle<std::uint32_t>(target, 0x04030201);
  AppendLittle<std::uint8_t>(target, 5);
  AppendBytes(target, AsBytes("ab"));
  EXPECT_EQ(ToHex(target), "01020304056162");
  EXPECT_EQ(AsText(ByteSpan(target).last(2)), "ab");
}

TEST(BytesTest, CheckedArithmeticRefusesOverflow) {
  EXPECT_EQ(CheckedAdd(kMax - 1, 1), kMax);
  EXPECT_EQ(CheckedAdd(kMax, 1), std::nullopt);
  EXPECT_EQ(CheckedMultiply(1ull << 32, (1ull << 32) - 1), kMax - ((1ull << 32) - 1));
  EXPECT_EQ(CheckedMultiply(1ull << 32, 1ull << 32), std::nullopt);
  EXPECT_EQ(CheckedMultiply(0, kMax), 0u);
}

TEST(BytesTest, DivideUpDoesNotOverflow) {
  EXPECT_EQ(DivideUp(0, 4), 0u);
  EXPECT_EQ(DivideUp(1, 4), 1u);
  EXPECT_EQ(DivideUp(4, 4), 1u);
  EXPECT_EQ(DivideUp(kMax, 2), 1ull << 63);
}

TEST(ByteReaderTest, ReadsFrontToBack) {
  ByteVector bytes;
  AppendLittle<std::uint16_t>(bytes, 0x1234);
  AppendLittle<std::uint64_t>(bytes, 7);
  AppendBytes(bytes, AsBytes("tail"));
  ByteReader reader(bytes);
  EXPECT_EQ(reader.Read<std::uint16_t>(), 0x1234);
  EXPECT_EQ(reader.Read<std::uint64_t>(), 7u);
  EXPECT_EQ(reader.offset(), 10u);
  EXPECT_EQ(reader.remaining(), 4u);
  EXPECT_EQ(AsText(reader.ReadBytes(4)), "tail");
  EXPECT_TRUE(reader.ok());
  EXPECT_EQ(reader.remaining(), 0u);
}

TEST(ByteReaderTest, StaysFailed) {
  const ByteVector bytes(3);
  ByteReader reader(bytes);
  EXPECT_EQ(reader.Read<std::uint32_t>(), 0u);
  EXPECT_FALSE(reader.ok());
  EXPECT_EQ(reader.remaining(), 0u);
  // One byte is there, but a reader that failed once gives nothing more.
  EXPECT_TRUE(reader.ReadBytes(1).empty());
  EXPECT_FALSE(reader.ok());
}

TEST(ByteReaderTest, RefusesSizesThatWouldWrapAround) {
  const ByteVector bytes(16);
  ByteReader reader(bytes);
  reader.ReadBytes(8);
  EXPECT_TRUE(reader.ReadBytes(kMax - 4).empty());
  EXPECT_FALSE(reader.ok());
}

TEST(HexTest, RoundTripsEveryByte) {
  ByteVector bytes;
  for (unsigned value = 0; value < 256; ++value) bytes.push_back(static_cast<std::byte>(value));
  const std::string text = ToHex(bytes);
  EXPECT_EQ(text.substr(0, 6), "000102");
  EXPECT_EQ(text.substr(506), "fdfeff");
  ByteVector back(256);
  EXPECT_TRUE(FromHex(text, back));
  EXPECT_EQ(back, bytes);
}

TEST(HexTest, RefusesAnythingElse) {
  ByteVector target(2);
  for (const char* text :
       {"", "abc", "abcde", "abcdef", "ABCD", "abc ", "0xab", "ab\ncd", "abcg"}) {
    EXPECT_FALSE(FromHex(text, target)) << text;
  }
  EXPECT_TRUE(FromHex("", {}));
}

}  // namespace
}  // namespace segue
