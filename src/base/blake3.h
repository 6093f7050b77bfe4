// SPDX-License-Identifier: Apache-2.0
//
// BLAKE3 (its published specification, hash mode without key, 256 bits): one of the checksums of
// disk deltas (docs/format.md, section 10). Portable; no package of both Debian 12 and 13 has it.
// Nothing of Segue's own formats rests on it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "base/bytes.h"

namespace segue {

using Blake3 = std::array<std::byte, 32>;

// Incremental; Finish() may be called once.
class Blake3Hasher {
 public:
  void Add(ByteSpan bytes);
  Blake3 Finish();

  // What the tree is made of: a chaining value, and the sixteen words of a block.
  using Chain = std::array<std::uint32_t, 8>;
  using Block = std::array<std::uint32_t, 16>;

 private:
  static constexpr std::size_t kBlockSize = 64;
  static constexpr std::size_t kChunkSize = 1024;
  // Subtrees of 2^k chunks, at most one for each k below 54: 2^64 bytes are 2^54 chunks.
  static constexpr std::size_t kDepthMax = 54;

  ByteSpan AddWholeChunks(ByteSpan bytes);
  void FillChunk(ByteSpan bytes);
  void EndBlock();
  void Push(Chain chain);

  std::array<std::byte, kBlockSize> block_{};
  std::size_t block_size_ = 0;     // Bytes in block_.
  std::size_t chunk_size_ = 0;     // Bytes of the chunk, those in block_ included.
  std::uint64_t chunk_count_ = 0;  // Chunks that are pushed.
  Chain chain_{};                  // Of the chunk, up to block_; as of its first block.
  std::array<Chain, kDepthMax> stack_{};
  std::size_t depth_ = 0;
};

Blake3 HashBlake3(ByteSpan bytes);

}  // namespace segue
