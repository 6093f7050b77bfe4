// SPDX-License-Identifier: Apache-2.0
//
// Zstd frames: what we write decodes to the same bytes, and of what others write only the one plain
// frame of docs/format.md is taken. Method: round trips over sizes and contents, then frames made
// with libzstd's own interface (or written out in hex) that break one rule each; the refusal must
// come from the header, before the target is written to.
#define ZSTD_STATIC_LINKING_ONLY
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <zstd.h>

#include <string>
#include <string_view>

#include "base/limits.h"
#include "base/random.h"
#include "codec/block_codec.h"

namespace segue {
namespace {

using ::testing::HasSubstr;

ByteVector RandomBytes(std::uint64_t seed, std::size_t size, std::uint64_t values) {
  Random random(seed);
  ByteVector bytes(size);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random.Below(values));
  return bytes;
}

ByteVector FromHexText(std::string_view text) {
  ByteVector bytes(text.size() / 2);
  EXPECT_TRUE(FromHex(text, bytes));
  return bytes;
}

ByteVector Join(ByteSpan a, ByteSpan b) {
  ByteVector all(a.begin(), a.end());
  AppendBytes(all, b);
  return all;
}

struct FrameOptions {
  bool content_size = true;
  bool checksum = true;
  int window_log = 0;
};

ByteVector Frame(ByteSpan source, FrameOptions options = {}) {
  ZSTD_CCtx* context = ZSTD_createCCtx();
  ZSTD_CCtx_setParameter(context, ZSTD_c_contentSizeFlag, options.content_size ? 1 : 0);
  ZSTD_CCtx_setParameter(context, ZSTD_c_checksumFlag, options.checksum ? 1 : 0);
  if (options.window_log != 0) {
    ZSTD_CCtx_setParameter(context, ZSTD_c_windowLog, options.window_log);
  }
  ByteVector frame(ZSTD_compressBound(source.size()));
  ZSTD_outBuffer out = {frame.data(), frame.size(), 0};
  ZSTD_inBuffer in = {source.data(), source.size(), 0};
  // Streamed, so that the window is the one asked for and not cut to the content.
  if (!options.content_size) {
    ZSTD_inBuffer none = {nullptr, 0, 0};
    EXPECT_EQ(ZSTD_isError(ZSTD_compressStream2(context, &out, &in, ZSTD_e_flush)), 0u);
    EXPECT_EQ(ZSTD_compressStream2(context, &out, &none, ZSTD_e_end), 0u);
  } else {
    EXPECT_EQ(ZSTD_compressStream2(context, &out, &in, ZSTD_e_end), 0u);
  }
  ZSTD_freeCCtx(context);
  frame.resize(out.pos);
  return frame;
}

Status Decode(ByteSpan frame, ByteVector& target, ZstdChecksum checksum = ZstdChecksum::kRequired) {
  ZstdDecompressor zstd;
  return zstd.Decompress(frame, target, checksum);
}

TEST(ZstdTest, RoundTripsAtManySizes) {
  ZstdDecompressor decompressor;
  for (const int level : {1, 3}) {
    ZstdCompressor compressor(level);
    for (const std::size_t size :
         {0, 1, 2, 63, 64, 65, 4095, 4096, 4097, 131071, 131073, 1 << 20}) {
      for (const std::uint64_t values : {1, 3, 256}) {
        for (const ZstdContent content :
             {ZstdContent::kGeneral, ZstdContent::kEntropy, ZstdContent::kRuns}) {
          const ByteVector source = RandomBytes(size, size, values);
          ByteVector packed(ZstdBound(size));
          packed.resize(compressor.Compress(source, packed, content).value());
          ByteVector target(size, std::byte{0xee});
          const Status status = decompressor.Decompress(packed, target, ZstdChecksum::kRequired);
          ASSERT_TRUE(status.ok()) << status.ToString() << " at size " << size;
          ASSERT_EQ(target, source);
        }
      }
    }
  }
}

TEST(ZstdTest, FramesStayWithinTheWindowThatDecodersMustAllow) {
  const ByteVector source = RandomBytes(1, 32 << 20, 2);
  ZstdCompressor compressor(3);
  ByteVector packed(ZstdBound(source.size()));
  packed.resize(compressor.Compress(source, packed).value());
  ZSTD_frameHeader header{};
  ASSERT_EQ(ZSTD_getFrameHeader(&header, packed.data(), packed.size()), 0u);
  EXPECT_LE(header.windowSize, 1ull << limits::kZstdWindowLogMax);
  EXPECT_EQ(header.checksumFlag, 1u);
  EXPECT_EQ(header.frameContentSize, source.size());
}

// case F1
TEST(ZstdTest, DecodesAFrameWithoutContentSize) {
  static_assert(ZSTD_CONTENTSIZE_UNKNOWN == UINT64_MAX);
  static_assert(ZSTD_CONTENTSIZE_ERROR == UINT64_MAX - 1);
  const ByteVector source = RandomBytes(2, 100000, 7);
  const ByteVector frame = Frame(source, {.content_size = false});
  ASSERT_EQ(ZSTD_getFrameContentSize(frame.data(), frame.size()), ZSTD_CONTENTSIZE_UNKNOWN);
  ByteVector target(source.size());
  const Status status = Decode(frame, target);
  ASSERT_TRUE(status.ok()) << status.ToString();
  EXPECT_EQ(target, source);
  for (const std::size_t size : {source.size() - 1, source.size() + 1, std::size_t{0}}) {
    ByteVector wrong(size);
    EXPECT_EQ(Decode(frame, wrong).code(), StatusCode::kCorruption) << size;
  }
}

TEST(ZstdTest, RefusesAStatedSizeThatIsNotTheExpectedOne) {
  const ByteVector source = RandomBytes(3, 1000, 7);
  const ByteVector frame = Frame(source);
  for (const std::size_t size : {999, 1001, 0}) {
    ByteVector target(size, std::byte{0xee});
    const Status status = Decode(frame, target);
    EXPECT_EQ(status.code(), StatusCode::kCorruption);
    EXPECT_THAT(status.message(), HasSubstr("1000"));
    EXPECT_THAT(status.message(), HasSubstr(std::to_string(size)));
    EXPECT_EQ(target, ByteVector(size, std::byte{0xee}));
  }
}

// case F2
TEST(ZstdTest, RefusesAWindowOverTheLimitWithBothNumbers) {
  const ByteVector source = RandomBytes(4, 1000, 7);
  for (const int log : {24, 28}) {
    const ByteVector frame = Frame(source, {.content_size = false, .window_log = log});
    ByteVector target(source.size());
    const Status status = Decode(frame, target);
    EXPECT_EQ(status.code(), StatusCode::kResourceExhausted) << status.ToString();
    EXPECT_THAT(status.message(), HasSubstr(std::to_string(1ull << log)));
    EXPECT_THAT(status.message(), HasSubstr(std::to_string(1ull << 23)));
  }
  const ByteVector frame = Frame(source, {.content_size = false, .window_log = 23});
  ByteVector target(source.size());
  EXPECT_TRUE(Decode(frame, target).ok());
  EXPECT_EQ(target, source);
}

// case F4: the documented rule is that a skippable frame is refused wherever it stands.
TEST(ZstdTest, RefusesSkippableFramesFirstMiddleAndAlone) {
  const ByteVector skippable = FromHexText("502a4d180400000061626364");
  const ByteVector source = RandomBytes(5, 1000, 7);
  const ByteVector frame = Frame(source);
  const ByteVector half = Frame(ByteSpan(source).first(500));
  const ByteVector rest = Frame(ByteSpan(source).subspan(500));
  const ByteVector cases[] = {Join(skippable, frame), Join(frame, skippable),
                              Join(Join(half, skippable), rest), skippable};
  for (const ByteVector& bytes : cases) {
    ByteVector target(source.size());
    EXPECT_EQ(Decode(bytes, target).code(), StatusCode::kCorruption);
    ByteVector nothing;
    EXPECT_EQ(Decode(bytes, nothing).code(), StatusCode::kCorruption);
  }
}

// case F5: refused by comparison with the size that is expected; nothing of the claimed size
// exists.
TEST(ZstdTest, RefusesAHugeClaimedSize) {
  const ByteVector frame = FromHexText("28b52ffde06c06060663636363");
  ASSERT_EQ(ZSTD_getFrameContentSize(frame.data(), frame.size()), 7161677109403190892u);
  ByteVector target(1024);
  const Status status = Decode(frame, target);
  EXPECT_FALSE(status.ok());
  EXPECT_THAT(status.message(), HasSubstr("7161677109403190892"));
}

// case F5: 800 MiB of zeros in a few kilobytes, with its size stated and without.
TEST(ZstdTest, RefusesABombWithoutInflatingIt) {
  const ByteVector piece(1 << 20);
  ZSTD_CCtx* context = ZSTD_createCCtx();
  ByteVector bomb(1 << 20);
  ZSTD_outBuffer out = {bomb.data(), bomb.size(), 0};
  for (int i = 0; i < 800; ++i) {
    ZSTD_inBuffer in = {piece.data(), piece.size(), 0};
    ASSERT_EQ(ZSTD_isError(ZSTD_compressStream2(context, &out, &in, ZSTD_e_continue)), 0u);
  }
  ZSTD_inBuffer none = {nullptr, 0, 0};
  ASSERT_EQ(ZSTD_compressStream2(context, &out, &none, ZSTD_e_end), 0u);
  ZSTD_freeCCtx(context);
  bomb.resize(out.pos);
  ASSERT_LT(bomb.size(), 100000u);
  ByteVector target(4096);
  EXPECT_EQ(Decode(bomb, target, ZstdChecksum::kOptional).code(), StatusCode::kCorruption);
}

TEST(ZstdTest, RefusesTrailingBytesTruncationAndFlips) {
  const ByteVector source = RandomBytes(6, 3000, 7);
  const ByteVector frame = Frame(source);
  ByteVector target(source.size());
  EXPECT_EQ(Decode(Join(frame, ByteVector(1)), target).code(), StatusCode::kCorruption);
  EXPECT_EQ(Decode(Join(frame, frame), target).code(), StatusCode::kCorruption);
  for (std::size_t size = 0; size < frame.size(); ++size) {
    EXPECT_FALSE(Decode(ByteSpan(frame).first(size), target).ok()) << size;
  }
  for (std::size_t i = 0; i < frame.size(); ++i) {
    ByteVector flipped = frame;
    flipped[i] ^= std::byte{0x10};
    const Status status = Decode(flipped, target);
    // A reserved header bit aside, the checksum sees everything; where it does not, the bytes
    // agree.
    if (status.ok()) {
      EXPECT_EQ(target, source) << i;
    }
  }
}

TEST(ZstdTest, AsksForAChecksumWhereTheFormatDoes) {
  const ByteVector source = RandomBytes(7, 3000, 7);
  const ByteVector frame = Frame(source, {.checksum = false});
  ByteVector target(source.size());
  const Status status = Decode(frame, target, ZstdChecksum::kRequired);
  EXPECT_EQ(status.code(), StatusCode::kCorruption);
  EXPECT_THAT(status.message(), HasSubstr("checksum"));
  EXPECT_TRUE(Decode(frame, target, ZstdChecksum::kOptional).ok());
  EXPECT_EQ(target, source);
}

}  // namespace
}  // namespace segue
