// SPDX-License-Identifier: Apache-2.0
//
// Zstd in pieces: the same content as at once, whatever the size; frames that lie are refused by
// their header or while they are decoded, and never give more than was asked for.
#define ZSTD_STATIC_LINKING_ONLY
#include <gtest/gtest.h>
#include <zstd.h>

#include "base/random.h"
#include "codec/zstd_frame.h"

namespace segue {
namespace {

ByteVector RandomBytes(std::uint64_t seed, std::size_t size, std::uint64_t values) {
  Random random(seed);
  ByteVector bytes(size);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random.Below(values));
  return bytes;
}

// As a streaming writer makes it: without a content size, flushed now and then.
ByteVector StreamedFrame(ByteSpan source) {
  ZSTD_CCtx* context = ZSTD_createCCtx();
  ByteVector frame(ZSTD_compressBound(source.size()) + 4096);
  ZSTD_outBuffer out = {frame.data(), frame.size(), 0};
  for (std::size_t offset = 0; offset < source.size(); offset += 300'000) {
    ZSTD_inBuffer in = {source.data(), std::min(offset + 300'000, source.size()), offset};
    EXPECT_EQ(ZSTD_compressStream2(context, &out, &in, ZSTD_e_flush), 0u);
  }
  ZSTD_inBuffer end = {source.data(), 0, 0};
  EXPECT_EQ(ZSTD_compressStream2(context, &out, &end, ZSTD_e_end), 0u);
  ZSTD_freeCCtx(context);
  frame.resize(out.pos);
  return frame;
}

ByteVector WholeFrame(ByteSpan source) {
  ByteVector frame(ZstdBound(source.size()));
  frame.resize(ZstdCompressor().Compress(source, frame).value());
  return frame;
}

Result<ByteVector> DecodeAll(ZstdPieceDecoder& decoder, ByteSpan frame, std::uint64_t size) {
  SEGUE_RETURN_IF_ERROR(decoder.Start(frame, size));
  ByteVector all;
  for (;;) {
    SEGUE_ASSIGN_OR_RETURN(const ByteSpan piece, decoder.Next());
    if (piece.empty()) return all;
    AppendBytes(all, piece);
    EXPECT_LE(all.size(), size);
  }
}

TEST(ZstdPiecesTest, SameContentAsAtOnce) {
  ZstdPieceDecoder decoder;
  for (const std::size_t size : {0, 1, 1000, 524'287, 524'288, 524'289, 1'048'576, 3'000'000}) {
    for (const std::uint64_t values : {1, 3, 256}) {
      const ByteVector content = RandomBytes(size + values, size, values);
      EXPECT_EQ(DecodeAll(decoder, WholeFrame(content), size).value(), content) << size;
      EXPECT_EQ(DecodeAll(decoder, StreamedFrame(content), size).value(), content) << size;
    }
  }
}

TEST(ZstdPiecesTest, ContentSize) {
  const ByteVector content = RandomBytes(1, 5000, 4);
  EXPECT_EQ(ZstdContentSize(WholeFrame(content)), 5000u);
  EXPECT_EQ(ZstdContentSize(WholeFrame({})), 0u);
  EXPECT_EQ(ZstdContentSize(StreamedFrame(content)), std::nullopt);
  EXPECT_EQ(ZstdContentSize({}), std::nullopt);
  EXPECT_EQ(ZstdContentSize(content), std::nullopt);
}

TEST(ZstdPiecesTest, AnotherSizeThanAsked) {
  ZstdPieceDecoder decoder;
  const ByteVector content = RandomBytes(2, 700'000, 9);
  for (const ByteVector& frame : {WholeFrame(content), StreamedFrame(content)}) {
    for (const std::uint64_t size : {0, 1, 699'999, 700'001, 5'000'000}) {
      const auto decoded = DecodeAll(decoder, frame, size);
      EXPECT_EQ(decoded.status().code(), StatusCode::kCorruption) << size;
    }
    EXPECT_EQ(DecodeAll(decoder, frame, content.size()).value(), content);
  }
}

// Case F1: gigabytes of zeros in a few kilobytes.
TEST(ZstdPiecesTest, BombEndsAtTheSizeAskedFor) {
  ZstdPieceDecoder decoder;
  const ByteVector bomb = StreamedFrame(ByteVector(200'000'000));
  ASSERT_LT(bomb.size(), 100'000u);
  EXPECT_EQ(DecodeAll(decoder, bomb, 1'000'000).status().code(), StatusCode::kCorruption);
}

TEST(ZstdPiecesTest, CutOrDamaged) {
  ZstdPieceDecoder decoder;
  const ByteVector content = RandomBytes(3, 700'000, 9);
  const ByteVector frame = WholeFrame(content);
  for (std::size_t size = 0; size < frame.size(); size += 4999) {
    EXPECT_FALSE(DecodeAll(decoder, ByteSpan(frame).first(size), content.size()).ok()) << size;
  }
  ByteVector longer = frame;
  longer.push_back(std::byte{0});
  EXPECT_FALSE(DecodeAll(decoder, longer, content.size()).ok());
  for (std::size_t i = 0; i < frame.size(); i += 4999) {
    ByteVector damaged = frame;
    damaged[i] ^= std::byte{0x20};
    const auto decoded = DecodeAll(decoder, damaged, content.size());
    EXPECT_TRUE(!decoded.ok() || decoded.value() == content) << i;
  }
}

}  // namespace
}  // namespace segue
