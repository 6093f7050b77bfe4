// SPDX-License-Identifier: Apache-2.0
//
// Zstd's streaming interface, used as its manual says.
#include "bench/zstd_stream.h"

#include <zstd.h>

#include <algorithm>
#include <memory>
#include <string>

#include "device/host/kernels.h"

namespace segue::bench {
namespace {

constexpr std::size_t kPieceSize = 1ull << 18;

Status Failed(std::string_view what, std::size_t code) {
  return Internal(std::string(what) + ": " + ZSTD_getErrorName(code));
}

}  // namespace

Result<ByteVector> CompressMask(ByteSpan a, ByteSpan b) {
  const std::unique_ptr<ZSTD_CCtx, decltype(&ZSTD_freeCCtx)> context(ZSTD_createCCtx(),
                                                                     &ZSTD_freeCCtx);
  ZSTD_CCtx_setParameter(context.get(), ZSTD_c_compressionLevel, 1);
  ZSTD_CCtx_setPledgedSrcSize(context.get(), a.size());
  ByteVector mask(kPieceSize);
  ByteVector piece(ZSTD_CStreamOutSize());
  ByteVector frame;
  std::size_t offset = 0;
  do {
    const std::size_t size = std::min(kPieceSize, a.size() - offset);
    host::ActiveKernels().xor_bytes(a.data() + offset, b.data() + offset, mask.data(), size);
    offset += size;
    const bool last = offset == a.size();
    ZSTD_inBuffer input = {mask.data(), size, 0};
    std::size_t left = 0;
    do {
      ZSTD_outBuffer output = {piece.data(), piece.size(), 0};
      left =
          ZSTD_compressStream2(context.get(), &output, &input, last ? ZSTD_e_end : ZSTD_e_continue);
      if (ZSTD_isError(left) != 0) return Failed("compress", left);
      AppendBytes(frame, ByteSpan(piece).first(output.pos));
    } while (last ? left != 0 : input.pos < input.size);
  } while (offset < a.size());
  return frame;
}

Status ApplyMask(ByteSpan frame, MutableByteSpan live) {
  const std::unique_ptr<ZSTD_DCtx, decltype(&ZSTD_freeDCtx)> context(ZSTD_createDCtx(),
                                                                     &ZSTD_freeDCtx);
  ByteVector mask(kPieceSize);
  ZSTD_inBuffer input = {frame.data(), frame.size(), 0};
  std::size_t offset = 0;
  while (offset < live.size()) {
    ZSTD_outBuffer output = {mask.data(), std::min(kPieceSize, live.size() - offset), 0};
    while (output.pos < output.size) {
      const std::size_t before = output.pos;
      const std::size_t left = ZSTD_decompressStream(context.get(), &output, &input);
      if (ZSTD_isError(left) != 0) return Failed("decompress", left);
      if (output.pos == before && input.pos == input.size) return Corruption("mask ends early");
    }
    std::byte* place = live.data() + offset;
    host::ActiveKernels().xor_bytes(place, mask.data(), place, output.pos);
    offset += output.pos;
  }
  return {};
}

}  // namespace segue::bench
