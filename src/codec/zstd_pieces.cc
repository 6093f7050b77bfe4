// SPDX-License-Identifier: Apache-2.0
//
// Zstd in pieces: the streaming decoder over a frame that is whole in memory.
#include <zstd.h>
#include <zstd_errors.h>

#include <algorithm>
#include <string>

#include "base/allocated.h"
#include "base/limits.h"
#include "codec/zstd_frame.h"

namespace segue {
namespace {

// Stays in the cache between decoding and use.
constexpr std::size_t kPieceSize = 512u << 10;

}  // namespace

struct ZstdPieceDecoder::State {
  ZSTD_DCtx* context = Allocated(ZSTD_createDCtx());
  ByteVector piece = ByteVector(kPieceSize);
  ByteSpan source;
  std::size_t offset = 0;
  std::uint64_t left = 0;  // Bytes of content to come.
  bool ended = false;      // The decoder has seen the frame's end.
  ~State() { ZSTD_freeDCtx(context); }
};

ZstdPieceDecoder::ZstdPieceDecoder() : state_(std::make_unique<State>()) {}
ZstdPieceDecoder::~ZstdPieceDecoder() = default;
ZstdPieceDecoder::ZstdPieceDecoder(ZstdPieceDecoder&&) noexcept = default;
ZstdPieceDecoder& ZstdPieceDecoder::operator=(ZstdPieceDecoder&&) noexcept = default;

Status ZstdPieceDecoder::Start(ByteSpan source, std::uint64_t size) {
  SEGUE_RETURN_IF_ERROR(CheckZstdFrame(source, size, ZstdChecksum::kOptional));
  State& state = *state_;
  ZSTD_DCtx_reset(state.context, ZSTD_reset_session_and_parameters);
  ZSTD_DCtx_setParameter(state.context, ZSTD_d_windowLogMax, limits::kZstdWindowLogMax);
  state.source = source;
  state.offset = 0;
  state.left = size;
  state.ended = false;
  return {};
}

Result<ByteSpan> ZstdPieceDecoder::Next() {
  State& state = *state_;
  ZSTD_outBuffer output = {state.piece.data(), state.piece.size(), 0};
  while (output.pos < output.size && !state.ended) {
    ZSTD_inBuffer input = {state.source.data(), state.source.size(), state.offset};
    const std::size_t before = output.pos;
    const std::size_t hint = ZSTD_decompressStream(state.context, &output, &input);
    if (ZSTD_isError(hint) != 0) {
      if (ZSTD_getErrorCode(hint) == ZSTD_error_memory_allocation) {
        return ResourceExhausted("Zstd has no memory to decode a frame");
      }
      return Corruption("Zstd frame of " + std::to_string(state.source.size()) +
                        " bytes does not decode: " + ZSTD_getErrorName(hint));
    }
    const bool moved = input.pos != state.offset || output.pos != before;
    state.offset = input.pos;
    state.ended = hint == 0;
    if (!moved && !state.ended) return Corruption("Zstd frame ends in the middle");
  }
  if (output.pos > state.left) {
    return Corruption("Zstd frame decodes to more bytes than expected");
  }
  state.left -= output.pos;
  if (state.ended && state.left != 0) {
    return Corruption("Zstd frame decodes to " + std::to_string(state.left) +
                      " bytes fewer than expected");
  }
  return ByteSpan(state.piece.data(), output.pos);
}

}  // namespace segue
