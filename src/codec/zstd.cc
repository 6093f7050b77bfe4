// SPDX-License-Identifier: Apache-2.0
//
// Zstd frames. The static-only part of its interface is used for two things alone: reading a
// frame's header before anything is decoded, and forcing Huffman coding of literals.
#define ZSTD_STATIC_LINKING_ONLY
#include <zstd.h>
#include <zstd_errors.h>

#include <string>

#include "base/allocated.h"
#include "base/check.h"
#include "base/limits.h"
#include "codec/block_codec.h"
#include "codec/zstd_frame.h"

namespace segue {
namespace {

constexpr std::uint64_t kWindowSizeMax = 1ull << limits::kZstdWindowLogMax;

}  // namespace

Status CheckZstdFrame(ByteSpan source, std::uint64_t size, ZstdChecksum checksum) {
  ZSTD_frameHeader header{};
  if (ZSTD_getFrameHeader(&header, source.data(), source.size()) != 0) {
    return Corruption("Zstd frame of " + std::to_string(source.size()) +
                      " bytes has no readable header");
  }
  if (header.frameType == ZSTD_skippableFrame) {
    return Corruption("Zstd frame is a skippable frame, which the format does not allow");
  }
  if (header.windowSize > kWindowSizeMax) {
    return ResourceExhausted("Zstd frame needs a window of " + std::to_string(header.windowSize) +
                             " bytes, the limit is " + std::to_string(kWindowSizeMax));
  }
  if (header.dictID != 0) return Corruption("Zstd frame needs a dictionary");
  if (checksum == ZstdChecksum::kRequired && header.checksumFlag == 0) {
    return Corruption("Zstd frame has no checksum");
  }
  if (header.frameContentSize != ZSTD_CONTENTSIZE_UNKNOWN && header.frameContentSize != size) {
    return Corruption("Zstd frame states " + std::to_string(header.frameContentSize) +
                      " bytes, expected " + std::to_string(size));
  }
  const std::size_t frame_size = ZSTD_findFrameCompressedSize(source.data(), source.size());
  if (ZSTD_isError(frame_size) != 0) {
    return Corruption("Zstd frame is malformed: " + std::string(ZSTD_getErrorName(frame_size)));
  }
  if (frame_size != source.size()) {
    return Corruption("Zstd frame has " + std::to_string(frame_size) + " bytes, expected " +
                      std::to_string(source.size()));
  }
  return {};
}

std::optional<std::uint64_t> ZstdContentSize(ByteSpan source) {
  const unsigned long long size = ZSTD_getFrameContentSize(source.data(), source.size());
  if (size == ZSTD_CONTENTSIZE_UNKNOWN || size == ZSTD_CONTENTSIZE_ERROR) return std::nullopt;
  return size;
}

std::size_t ZstdBound(std::size_t size) { return ZSTD_compressBound(size); }

struct ZstdCompressor::State {
  ZSTD_CCtx* context = Allocated(ZSTD_createCCtx());
  int level = 1;
  ~State() { ZSTD_freeCCtx(context); }

  void Set(ZSTD_cParameter parameter, int value) {
    SEGUE_CHECK(ZSTD_isError(ZSTD_CCtx_setParameter(context, parameter, value)) == 0);
  }
};

ZstdCompressor::ZstdCompressor(int level) : state_(std::make_unique<State>()) {
  state_->level = level;
}
ZstdCompressor::~ZstdCompressor() = default;
ZstdCompressor::ZstdCompressor(ZstdCompressor&&) noexcept = default;
ZstdCompressor& ZstdCompressor::operator=(ZstdCompressor&&) noexcept = default;

Result<std::size_t> ZstdCompressor::Compress(ByteSpan source, MutableByteSpan target,
                                             ZstdContent content) {
  SEGUE_CHECK(target.size() >= ZstdBound(source.size()));
  State& state = *state_;
  ZSTD_CCtx_reset(state.context, ZSTD_reset_session_and_parameters);
  state.Set(ZSTD_c_compressionLevel, state.level);
  state.Set(ZSTD_c_checksumFlag, 1);
  if (content != ZstdContent::kGeneral) {
    // Shorter matches are chance in such data, and a sequence costs more than the literals it
    // saves.
    state.Set(ZSTD_c_strategy, ZSTD_fast);
    state.Set(ZSTD_c_minMatch, 7);
    state.Set(ZSTD_c_hashLog, 6);
    state.Set(ZSTD_c_literalCompressionMode, ZSTD_ps_enable);
  }
  if (content == ZstdContent::kEntropy) {
    // A step so wide that nothing is looked for: 3 % smaller on value planes, and twice as fast.
    // The window bounds the block: fewer rare symbols in one weigh less on Zstd's codes of at most
    // 11 bits.
    state.Set(ZSTD_c_targetLength, 1 << 16);
    state.Set(ZSTD_c_windowLog, 15);
  }
  const std::size_t written =
      ZSTD_compress2(state.context, target.data(), target.size(), source.data(), source.size());
  if (ZSTD_isError(written) != 0) {
    return ResourceExhausted("Zstd cannot compress " + std::to_string(source.size()) +
                             " bytes: " + ZSTD_getErrorName(written));
  }
  return written;
}

struct ZstdDecompressor::State {
  ZSTD_DCtx* context = Allocated(ZSTD_createDCtx());
  ~State() { ZSTD_freeDCtx(context); }
};

ZstdDecompressor::ZstdDecompressor() : state_(std::make_unique<State>()) {}
ZstdDecompressor::~ZstdDecompressor() = default;
ZstdDecompressor::ZstdDecompressor(ZstdDecompressor&&) noexcept = default;
ZstdDecompressor& ZstdDecompressor::operator=(ZstdDecompressor&&) noexcept = default;

Status ZstdDecompressor::Decompress(ByteSpan source, MutableByteSpan target,
                                    ZstdChecksum checksum) {
  SEGUE_RETURN_IF_ERROR(CheckZstdFrame(source, target.size(), checksum));
  const std::size_t written = ZSTD_decompressDCtx(state_->context, target.data(), target.size(),
                                                  source.data(), source.size());
  if (ZSTD_isError(written) != 0 && ZSTD_getErrorCode(written) == ZSTD_error_memory_allocation) {
    return ResourceExhausted("Zstd has no memory to decode a frame");
  }
  if (ZSTD_isError(written) != 0) {
    return Corruption("Zstd frame of " + std::to_string(source.size()) +
                      " bytes does not decode: " + ZSTD_getErrorName(written));
  }
  if (written != target.size()) {
    return Corruption("Zstd frame decodes to " + std::to_string(written) + " bytes, expected " +
                      std::to_string(target.size()));
  }
  return {};
}

}  // namespace segue
