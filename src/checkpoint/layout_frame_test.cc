// SPDX-License-Identifier: Apache-2.0
//
// Goal: exactly one frame of exactly the stated size is decoded; what a frame claims is checked
// before memory is taken for it.
#include "checkpoint/layout_frame.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <zstd.h>

#include <string>
#include <vector>

#include "base/limits.h"

namespace segue {
namespace {

using testing::HasSubstr;

ByteVector Compress(std::string_view text, int window_log, bool content_size) {
  ZSTD_CCtx* context = ZSTD_createCCtx();
  ZSTD_CCtx_setParameter(context, ZSTD_c_contentSizeFlag, content_size ? 1 : 0);
  if (window_log != 0) {
    ZSTD_CCtx_setParameter(context, ZSTD_c_windowLog, window_log);
  }
  ByteVector frame(ZSTD_compressBound(text.size()));
  const std::size_t size =
      ZSTD_compress2(context, frame.data(), frame.size(), text.data(), text.size());
  EXPECT_FALSE(ZSTD_isError(size));
  frame.resize(size);
  ZSTD_freeCCtx(context);
  return frame;
}

std::string Refusal(ByteSpan frame, std::uint64_t inner_size) {
  const Status status = DecodeLayoutFrame(frame, inner_size).status();
  EXPECT_EQ(status.code(), StatusCode::kCorruption) << status.ToString();
  return status.message();
}

ByteVector Joined(const std::vector<ByteVector>& parts) {
  ByteVector joined;
  for (const ByteVector& part : parts) {
    for (const std::byte byte : part) joined.push_back(byte);
  }
  return joined;
}

ByteVector FromDigits(std::string_view digits) {
  ByteVector bytes(digits.size() / 2);
  EXPECT_TRUE(FromHex(digits, bytes));
  return bytes;
}

TEST(LayoutFrameTest, RoundTripOfSizes) {
  // Over 8 MiB the frame is no longer a single segment; its window must stay within the limit.
  for (const std::size_t size : {0u, 1u, 1000u, (8u << 20) - 1, (8u << 20) + 1, 20u << 20}) {
    const std::string text(size, 'x');
    ByteVector frame;
    ASSERT_TRUE(EncodeLayoutFrame(AsBytes(text), frame).ok());
    const Result<LayoutBytes> decoded = DecodeLayoutFrame(frame, size);
    ASSERT_TRUE(decoded.ok()) << decoded.status().ToString();
    EXPECT_EQ(AsText(decoded->bytes()), text);
  }
}

TEST(LayoutFrameTest, ContentSizeMayBeUnknown) {  // case F1
  const ByteVector frame = Compress("hello hello hello", 0, false);
  ASSERT_EQ(ZSTD_getFrameContentSize(frame.data(), frame.size()), ZSTD_CONTENTSIZE_UNKNOWN);
  EXPECT_EQ(AsText(DecodeLayoutFrame(frame, 17).value().bytes()), "hello hello hello");
  EXPECT_THAT(Refusal(frame, 18), HasSubstr("decodes to 17 bytes, expected 18"));
  Refusal(frame, 16);
}

TEST(LayoutFrameTest, WindowLimit) {  // case F2
  ByteVector frame = Compress(std::string(100, 'x'), 0, false);
  // The window descriptor: exponent - 10 in the upper five bits, eighths in the lower three.
  frame[5] = std::byte{13 << 3};
  EXPECT_TRUE(DecodeLayoutFrame(frame, 100).ok());
  frame[5] = std::byte{14 << 3};
  EXPECT_THAT(Refusal(frame, 100), HasSubstr("window is 16777216 bytes, the limit is 8388608"));
  frame[5] = std::byte{13 << 3 | 1};
  EXPECT_THAT(Refusal(frame, 100), HasSubstr("window is 9437184 bytes, the limit is 8388608"));
  // A single segment's window is its content.
  const std::string large((8u << 20) + 1, 'x');
  EXPECT_THAT(Refusal(Compress(large, 24, true), large.size()),
              HasSubstr("window is 8388609 bytes, the limit is 8388608"));
}

TEST(LayoutFrameTest, SkippableFramesAreRefused) {  // case F4
  const ByteVector frame = Compress("hello", 0, true);
  const ByteVector skippable = FromDigits("502a4d180400000061626364");
  EXPECT_THAT(Refusal(Joined({skippable, frame}), 5), HasSubstr("no Zstd frame behind the head"));
  EXPECT_THAT(Refusal(Joined({frame, skippable}), 5),
              HasSubstr("12 bytes lie past the Zstd frame"));
  Refusal(skippable, 0);
  Refusal(skippable, 5);
  EXPECT_THAT(Refusal(Joined({frame, frame}), 10), HasSubstr("holds 5 bytes, expected 10"));
}

TEST(LayoutFrameTest, HugeClaims) {  // case F5
  const ByteVector bomb = FromDigits("28b52ffde06c06060663636363");
  EXPECT_THAT(Refusal(bomb, 7161677109403190892), HasSubstr("the limit is 1073741824"));
  EXPECT_THAT(Refusal(bomb, 100), HasSubstr("holds 7161677109403190892 bytes, expected 100"));
  const ByteVector frame = Compress("hello", 0, true);
  EXPECT_THAT(Refusal(frame, limits::kLayoutSizeMax), HasSubstr("holds 5 bytes"));
  Refusal(Compress("hello", 0, false), limits::kLayoutSizeMax);
}

TEST(LayoutFrameTest, BrokenFrames) {
  ByteVector frame;
  ASSERT_TRUE(EncodeLayoutFrame(AsBytes("hello hello hello"), frame).ok());
  for (std::size_t size = 0; size < frame.size(); ++size) Refusal(ByteSpan(frame).first(size), 17);
  frame.back() ^= std::byte{1};
  EXPECT_THAT(Refusal(frame, 17), HasSubstr("checksum"));
  Refusal({}, 0);
}

}  // namespace
}  // namespace segue
