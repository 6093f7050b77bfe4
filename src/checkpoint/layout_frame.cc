// SPDX-License-Identifier: Apache-2.0
//
// Zstd for layouts: one frame in, one frame out.
#include "checkpoint/layout_frame.h"

#include <zstd.h>

#include <new>
#include <string>

#include "base/limits.h"

namespace segue {
namespace {

constexpr std::uint64_t kWindowSizeMax = 1ull << limits::kZstdWindowLogMax;
// Headers are text with much repetition; higher levels cost seconds for a few per cent.
constexpr int kLayoutLevel = 3;

struct FreeContext {
  void operator()(ZSTD_CCtx* context) const { ZSTD_freeCCtx(context); }
};

// The window that the frame states (RFC 8878, 3.1.1.1.2): its own field, or the content size where
// the frame is a single segment. `content_size` is what ZSTD_getFrameContentSize found.
Result<std::uint64_t> FrameWindowSize(ByteSpan frame, std::uint64_t content_size) {
  constexpr std::size_t kDescriptorOffset = 4;
  if (frame.size() < kDescriptorOffset + 2) return Corruption("layout: the frame is cut short");
  const auto descriptor = std::to_integer<unsigned>(frame[kDescriptorOffset]);
  if ((descriptor & 0x20) != 0) return content_size;
  const auto window = std::to_integer<unsigned>(frame[kDescriptorOffset + 1]);
  const std::uint64_t base = 1ull << (10 + (window >> 3));
  return base + base / 8 * (window & 7);
}

Status CheckFrame(ByteSpan frame, std::uint64_t inner_size) {
  if (frame.size() < 4 || LoadLittle<std::uint32_t>(frame.data()) != ZSTD_MAGICNUMBER) {
    return Corruption("layout: no Zstd frame behind the head");
  }
  const unsigned long long content_size = ZSTD_getFrameContentSize(frame.data(), frame.size());
  if (content_size == ZSTD_CONTENTSIZE_ERROR) return Corruption("layout: broken Zstd frame header");
  if (content_size != ZSTD_CONTENTSIZE_UNKNOWN && content_size != inner_size) {
    return Corruption("layout: the Zstd frame holds " + std::to_string(content_size) +
                      " bytes, expected " + std::to_string(inner_size));
  }
  SEGUE_ASSIGN_OR_RETURN(const std::uint64_t window, FrameWindowSize(frame, content_size));
  if (window > kWindowSizeMax) {
    return Corruption("layout: the Zstd frame's window is " + std::to_string(window) +
                      " bytes, the limit is " + std::to_string(kWindowSizeMax));
  }
  const std::size_t size = ZSTD_findFrameCompressedSize(frame.data(), frame.size());
  if (ZSTD_isError(size)) {
    return Corruption(std::string("layout: broken Zstd frame: ") + ZSTD_getErrorName(size));
  }
  if (size != frame.size()) {
    return Corruption("layout: " + std::to_string(frame.size() - size) +
                      " bytes lie past the Zstd frame");
  }
  return {};
}

Status ZstdFault(std::size_t code) {
  return Internal(std::string("layout: Zstd cannot compress: ") + ZSTD_getErrorName(code));
}

}  // namespace

Result<LayoutBytes> DecodeLayoutFrame(ByteSpan frame, std::uint64_t inner_size) {
  if (inner_size > limits::kLayoutSizeMax) {
    return Corruption("layout: claims " + std::to_string(inner_size) + " bytes, the limit is " +
                      std::to_string(limits::kLayoutSizeMax));
  }
  SEGUE_RETURN_IF_ERROR(CheckFrame(frame, inner_size));
  std::unique_ptr<std::byte[]> data(new (std::nothrow) std::byte[inner_size]);
  if (data == nullptr) {
    return ResourceExhausted("layout: no memory for " + std::to_string(inner_size) + " bytes");
  }
  const std::size_t size = ZSTD_decompress(data.get(), inner_size, frame.data(), frame.size());
  if (ZSTD_isError(size)) {
    return Corruption(std::string("layout: broken Zstd frame: ") + ZSTD_getErrorName(size));
  }
  if (size != inner_size) {
    return Corruption("layout: the Zstd frame decodes to " + std::to_string(size) +
                      " bytes, expected " + std::to_string(inner_size));
  }
  return LayoutBytes(std::move(data), size);
}

Status EncodeLayoutFrame(ByteSpan inner, ByteVector& object) {
  const std::unique_ptr<ZSTD_CCtx, FreeContext> context(ZSTD_createCCtx());
  if (context == nullptr) return ResourceExhausted("layout: no memory for Zstd");
  const std::pair<ZSTD_cParameter, int> parameters[] = {
      {ZSTD_c_compressionLevel, kLayoutLevel},
      {ZSTD_c_windowLog, limits::kZstdWindowLogMax},
      {ZSTD_c_checksumFlag, 1},
  };
  for (const auto& [parameter, value] : parameters) {
    const std::size_t code = ZSTD_CCtx_setParameter(context.get(), parameter, value);
    if (ZSTD_isError(code)) return ZstdFault(code);
  }
  const std::size_t offset = object.size();
  object.resize(offset + ZSTD_compressBound(inner.size()));
  const std::size_t size = ZSTD_compress2(context.get(), object.data() + offset,
                                          object.size() - offset, inner.data(), inner.size());
  if (ZSTD_isError(size)) return ZstdFault(size);
  object.resize(offset + size);
  return {};
}

}  // namespace segue
