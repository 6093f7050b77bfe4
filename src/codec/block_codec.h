// SPDX-License-Identifier: Apache-2.0
//
// Block codecs: Snappy, LZ4 and Zstd over whole buffers. Spans in, sizes out; a decoder writes into
// a buffer of exactly the size that the format states, and anything else is Corruption. Sizes
// claimed by the compressed bytes are compared, never trusted (cases F1, F2, F4, F5, F7).
#pragma once

#include <cstddef>
#include <memory>

#include "base/bytes.h"
#include "segue/status.h"

namespace segue {

// Largest possible output for an input of `size` bytes.
std::size_t SnappyBound(std::size_t size);
std::size_t Lz4Bound(std::size_t size);
std::size_t ZstdBound(std::size_t size);

// Return the size written; `target` must hold the bound.
std::size_t SnappyCompress(ByteSpan source, MutableByteSpan target);
std::size_t Lz4Compress(ByteSpan source, MutableByteSpan target);

// Decode to exactly target.size() bytes.
Status SnappyDecompress(ByteSpan source, MutableByteSpan target);
Status Lz4Decompress(ByteSpan source, MutableByteSpan target);

enum class ZstdContent {
  kGeneral,  // Look for matches and entropy.
  kEntropy,  // Symbols without repeats (bit strings, value planes): entropy coding alone, no
             // matches.
  kRuns,     // Nearly always the same symbol: long matches alone.
};

// Holds a context, so that many buffers reuse its memory. Not thread-safe.
class ZstdCompressor {
 public:
  explicit ZstdCompressor(int level = 1);
  ~ZstdCompressor();
  ZstdCompressor(ZstdCompressor&&) noexcept;
  ZstdCompressor& operator=(ZstdCompressor&&) noexcept;

  // One frame with content size and checksum. `target` must hold ZstdBound(source.size()).
  Result<std::size_t> Compress(ByteSpan source, MutableByteSpan target,
                               ZstdContent content = ZstdContent::kGeneral);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

enum class ZstdChecksum { kRequired, kOptional };

// Holds a context. Not thread-safe.
class ZstdDecompressor {
 public:
  ZstdDecompressor();
  ~ZstdDecompressor();
  ZstdDecompressor(ZstdDecompressor&&) noexcept;
  ZstdDecompressor& operator=(ZstdDecompressor&&) noexcept;

  // `source` is exactly one frame that decodes to exactly target.size() bytes. Skippable frames,
  // dictionaries and windows over 2^limits::kZstdWindowLogMax are refused.
  Status Decompress(ByteSpan source, MutableByteSpan target, ZstdChecksum checksum);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace segue
