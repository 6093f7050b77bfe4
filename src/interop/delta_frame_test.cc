// SPDX-License-Identifier: Apache-2.0
//
// Delta frames: what is written leads from old to new bytes, in both encodings; and every way in
// which a frame can lie is refused (cases F1, F2).
#include "interop/delta_frame.h"

#include <gtest/gtest.h>

#include <utility>

#include "base/random.h"
#include "interop/testing.h"

namespace segue {
namespace {

using test::Frame;

constexpr DeltaEncoding kEncodings[] = {DeltaEncoding::kXor, DeltaEncoding::kOverwrite};

ByteVector RandomBytes(std::uint64_t seed, std::size_t size) {
  Random random(seed);
  ByteVector bytes(size);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random.Next());
  return bytes;
}

ByteVector Changed(ByteVector bytes, std::uint64_t seed, std::size_t count) {
  Random random(seed);
  for (std::size_t i = 0; i < count; ++i) {
    bytes[random.Below(bytes.size())] ^= static_cast<std::byte>(1 + random.Below(255));
  }
  return bytes;
}

ByteVector Written(DeltaEncoding encoding, ByteVector old_bytes, ByteSpan new_bytes) {
  DeltaFrameWriter writer;
  const ByteSpan frame = writer.Make(encoding, old_bytes, new_bytes).value();
  return ByteVector(frame.begin(), frame.end());
}

// The content of an `overwrite` diff, as it is given.
ByteVector Overwrite(std::uint32_t count, const std::vector<std::uint32_t>& positions,
                     std::string_view values) {
  ByteVector content;
  AppendLittle(content, count);
  for (const std::uint32_t position : positions) AppendLittle(content, position);
  AppendBytes(content, AsBytes(values));
  return content;
}

TEST(DeltaFrameTest, ThereAndBack) {
  DeltaFrameReader reader;
  for (const DeltaEncoding encoding : kEncodings) {
    for (const std::size_t size : {1, 5, 4096, 700'000, 2'500'000}) {
      for (const std::size_t changes : {std::size_t{0}, std::size_t{1}, size / 50, size}) {
        const ByteVector old_bytes = RandomBytes(size, size);
        const ByteVector new_bytes = Changed(old_bytes, changes, changes);
        const ByteVector frame = Written(encoding, old_bytes, new_bytes);
        EXPECT_LE(frame.size(), DeltaFrameSizeMax(encoding, size));
        EXPECT_TRUE(ZstdContentSize(frame).has_value());
        ByteVector bytes = old_bytes;
        ASSERT_TRUE(reader.Apply(encoding, frame, bytes).ok());
        EXPECT_EQ(bytes, new_bytes) << size << " " << changes;
      }
    }
  }
}

TEST(DeltaFrameTest, EmptyTensors) {
  DeltaFrameReader reader;
  for (const DeltaEncoding encoding : kEncodings) {
    const ByteVector frame = Written(encoding, {}, {});
    EXPECT_TRUE(reader.Apply(encoding, frame, {}).ok());
    EXPECT_FALSE(reader.Apply(encoding, {}, {}).ok());
  }
}

TEST(DeltaFrameTest, ContentIsWhatTheFormatSays) {
  ByteVector old_bytes(300);
  ByteVector new_bytes(300);
  new_bytes[2] = std::byte{7};
  new_bytes[258] = std::byte{9};
  const ByteVector expected = Overwrite(2, {2, 258}, "\x07\x09");
  EXPECT_EQ(test::ContentOf(Written(DeltaEncoding::kOverwrite, old_bytes, new_bytes)), expected);
  EXPECT_EQ(test::ContentOf(Written(DeltaEncoding::kXor, old_bytes, new_bytes)), new_bytes);
}

TEST(DeltaFrameTest, OverwriteThatLies) {
  const std::pair<const char*, ByteVector> lies[] = {
      {"positions that descend", Overwrite(2, {6, 5}, "ab")},
      {"a position twice", Overwrite(2, {5, 5}, "ab")},
      {"a position at the end", Overwrite(1, {1000}, "a")},
      {"a position far behind it", Overwrite(1, {0xffffffff}, "a")},
      {"a count too high", Overwrite(3, {5, 6}, "ab")},
      {"a count too low", Overwrite(1, {5, 6}, "ab")},
      {"a count beyond all bounds", Overwrite(0xffffffff, {5, 6}, "ab")},
      {"a byte too many", Overwrite(1, {5}, "ab")},
      {"no count", ByteVector(3)},
      {"nothing", {}},
      {"more changes than bytes", ByteVector(4 + 5 * 1001)},
  };
  DeltaFrameReader reader;
  for (const auto& [what, content] : lies) {
    ByteVector bytes(1000);
    EXPECT_EQ(reader.Apply(DeltaEncoding::kOverwrite, Frame(content), bytes).code(),
              StatusCode::kCorruption)
        << what;
  }
  ByteVector bytes(1000);
  EXPECT_TRUE(
      reader.Apply(DeltaEncoding::kOverwrite, Frame(Overwrite(2, {5, 999}, "ab")), bytes).ok());
  EXPECT_EQ(bytes[999], std::byte{'b'});
}

TEST(DeltaFrameTest, OverwriteStatesItsSize) {
  DeltaFrameReader reader;
  ByteVector bytes(1000);
  const ByteVector frame = test::UnsizedFrame(Overwrite(1, {5}, "a"));
  const Status status = reader.Apply(DeltaEncoding::kOverwrite, frame, bytes);
  EXPECT_EQ(status.code(), StatusCode::kCorruption);
  EXPECT_NE(status.message().find("content's size"), std::string::npos);
}

TEST(DeltaFrameTest, XorThatLies) {
  DeltaFrameReader reader;
  for (const std::size_t size : {0, 999, 1001, 300'000'000}) {
    ByteVector bytes(1000);
    const ByteVector content(size);
    EXPECT_FALSE(reader.Apply(DeltaEncoding::kXor, Frame(content), bytes).ok()) << size;
    EXPECT_FALSE(reader.Apply(DeltaEncoding::kXor, test::UnsizedFrame(content), bytes).ok())
        << size;
  }
  ByteVector bytes(1000);
  EXPECT_TRUE(reader.Apply(DeltaEncoding::kXor, test::UnsizedFrame(ByteVector(1000)), bytes).ok());
  EXPECT_FALSE(reader.Apply(DeltaEncoding::kXor, RandomBytes(1, 100), bytes).ok());
}

TEST(DeltaFrameTest, Names) {
  for (const DeltaEncoding encoding : kEncodings) {
    EXPECT_EQ(DeltaEncodingFromName(DeltaEncodingName(encoding)), encoding);
  }
  EXPECT_EQ(DeltaEncodingFromName("add"), std::nullopt);
}

}  // namespace
}  // namespace segue
