// SPDX-License-Identifier: Apache-2.0
//
// BLAKE3: chunks of 1024 bytes are the leaves of a binary tree whose left subtrees are full. The
// last chunk is kept back until it is known that it is the last, since the root is finished by
// another flag. Four whole chunks are compressed side by side, one in each lane of a vector.
#include "base/blake3.h"

#include <algorithm>
#include <bit>
#include <cstring>

namespace segue {
namespace {

using Chain = Blake3Hasher::Chain;
using Block = Blake3Hasher::Block;

constexpr Chain kStart = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                          0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
constexpr std::size_t kRoundCount = 7;

// Which message word stands where in each round: the same permutation of the round before.
using Order = std::array<std::array<std::size_t, 16>, kRoundCount>;
constexpr Order kOrder = [] {
  constexpr std::size_t kNext[16] = {2, 6, 3, 10, 7, 0, 4, 13, 1, 11, 12, 5, 9, 14, 15, 8};
  Order order{};
  for (std::size_t i = 0; i < 16; ++i) order[0][i] = i;
  for (std::size_t round = 1; round < kRoundCount; ++round) {
    for (std::size_t i = 0; i < 16; ++i) order[round][i] = order[round - 1][kNext[i]];
  }
  return order;
}();

constexpr std::uint32_t kChunkStart = 1;
constexpr std::uint32_t kChunkEnd = 2;
constexpr std::uint32_t kParent = 4;
constexpr std::uint32_t kRoot = 8;

// Four words, one of each of four chunks: what every x86-64 and ARM64 has in a register.
constexpr std::size_t kLanes = 4;
using Lanes __attribute__((vector_size(4 * kLanes))) = std::uint32_t;

template <typename Word>
Word RotateRight(Word value, int count) {
  return (value >> count) | (value << (32 - count));
}

template <typename Word>
void Mix(Word* state, unsigned a, unsigned b, unsigned c, unsigned d, const Word& x,
         const Word& y) {
  state[a] = state[a] + state[b] + x;
  state[d] = RotateRight<Word>(state[d] ^ state[a], 16);
  state[c] = state[c] + state[d];
  state[b] = RotateRight<Word>(state[b] ^ state[c], 12);
  state[a] = state[a] + state[b] + y;
  state[d] = RotateRight<Word>(state[d] ^ state[a], 8);
  state[c] = state[c] + state[d];
  state[b] = RotateRight<Word>(state[b] ^ state[c], 7);
}

// All rounds over `state`.
template <typename Word>
void MixRounds(Word* state, const Word* block) {
  for (const auto& order : kOrder) {
    const auto word = [&](std::size_t i) -> const Word& { return block[order[i]]; };
    Mix(state, 0, 4, 8, 12, word(0), word(1));
    Mix(state, 1, 5, 9, 13, word(2), word(3));
    Mix(state, 2, 6, 10, 14, word(4), word(5));
    Mix(state, 3, 7, 11, 15, word(6), word(7));
    Mix(state, 0, 5, 10, 15, word(8), word(9));
    Mix(state, 1, 6, 11, 12, word(10), word(11));
    Mix(state, 2, 7, 8, 13, word(12), word(13));
    Mix(state, 3, 4, 9, 14, word(14), word(15));
  }
}

// The chaining value that follows from a block; of a root the first half of the output.
Chain Compress(const Chain& chain, const Block& block, std::uint64_t counter, std::size_t size,
               std::uint32_t flags) {
  std::uint32_t state[16];
  std::copy(chain.begin(), chain.end(), state);
  std::copy(kStart.begin(), kStart.begin() + 4, state + 8);
  state[12] = static_cast<std::uint32_t>(counter);
  state[13] = static_cast<std::uint32_t>(counter >> 32);
  state[14] = static_cast<std::uint32_t>(size);
  state[15] = flags;
  MixRounds(state, block.data());
  Chain next;
  for (std::size_t i = 0; i < 8; ++i) next[i] = state[i] ^ state[i + 8];
  return next;
}

Block Words(const std::byte* bytes) {
  Block words;
  std::memcpy(words.data(), bytes, sizeof(words));
  return words;
}

Block Join(const Chain& left, const Chain& right) {
  Block words;
  std::copy(left.begin(), left.end(), words.begin());
  std::copy(right.begin(), right.end(), words.begin() + 8);
  return words;
}

// Chaining values of kLanes whole chunks that lie one after the other.
std::array<Chain, kLanes> CompressChunks(const std::byte* bytes, std::uint64_t first) {
  Lanes chain[8];
  for (std::size_t i = 0; i < 8; ++i) chain[i] = Lanes{} + kStart[i];
  for (std::size_t block = 0; block < 16; ++block) {
    Lanes words[16];
    Lanes low;
    Lanes high;
    for (std::size_t lane = 0; lane < kLanes; ++lane) {
      const Block own = Words(bytes + lane * 1024 + block * 64);
      for (std::size_t i = 0; i < 16; ++i) words[i][lane] = own[i];
      low[lane] = static_cast<std::uint32_t>(first + lane);
      high[lane] = static_cast<std::uint32_t>((first + lane) >> 32);
    }
    Lanes state[16];
    std::copy(std::begin(chain), std::end(chain), state);
    for (std::size_t i = 0; i < 4; ++i) state[8 + i] = Lanes{} + kStart[i];
    state[12] = low;
    state[13] = high;
    state[14] = Lanes{} + 64u;
    state[15] = Lanes{} + ((block == 0 ? kChunkStart : 0u) | (block == 15 ? kChunkEnd : 0u));
    MixRounds(state, words);
    for (std::size_t i = 0; i < 8; ++i) chain[i] = state[i] ^ state[i + 8];
  }
  std::array<Chain, kLanes> chains;
  for (std::size_t lane = 0; lane < kLanes; ++lane) {
    for (std::size_t i = 0; i < 8; ++i) chains[lane][i] = chain[i][lane];
  }
  return chains;
}

}  // namespace

// A chunk is whole; with the subtrees on the left that it completes it becomes a larger one.
void Blake3Hasher::Push(Chain chain) {
  ++chunk_count_;
  for (std::uint64_t count = chunk_count_; (count & 1) == 0; count >>= 1) {
    chain = Compress(kStart, Join(stack_[--depth_], chain), 0, kBlockSize, kParent);
  }
  stack_[depth_++] = chain;
}

// A block that is not the chunk's last one.
void Blake3Hasher::EndBlock() {
  const bool first = chunk_size_ <= kBlockSize;
  chain_ = Compress(first ? kStart : chain_, Words(block_.data()), chunk_count_, kBlockSize,
                    first ? kChunkStart : 0);
  block_size_ = 0;
  block_ = {};
}

// Within one chunk.
void Blake3Hasher::FillChunk(ByteSpan bytes) {
  while (!bytes.empty()) {
    if (block_size_ == kBlockSize) EndBlock();
    const std::size_t size = std::min(kBlockSize - block_size_, bytes.size());
    std::memcpy(block_.data() + block_size_, bytes.data(), size);
    block_size_ += size;
    chunk_size_ += size;
    bytes = bytes.subspan(size);
  }
}

// From a chunk's beginning; at least a byte is left over.
ByteSpan Blake3Hasher::AddWholeChunks(ByteSpan bytes) {
  while (bytes.size() > kLanes * kChunkSize) {
    for (const Chain& chain : CompressChunks(bytes.data(), chunk_count_)) Push(chain);
    bytes = bytes.subspan(kLanes * kChunkSize);
  }
  return bytes;
}

void Blake3Hasher::Add(ByteSpan bytes) {
  while (!bytes.empty()) {
    if (chunk_size_ == kChunkSize) {
      Push(Compress(chain_, Words(block_.data()), chunk_count_, block_size_, kChunkEnd));
      chunk_size_ = 0;
      block_size_ = 0;
      block_ = {};
    }
    if (chunk_size_ == 0) bytes = AddWholeChunks(bytes);
    const std::size_t size = std::min(kChunkSize - chunk_size_, bytes.size());
    FillChunk(bytes.first(size));
    bytes = bytes.subspan(size);
  }
}

Blake3 Blake3Hasher::Finish() {
  const bool one_block = chunk_size_ <= kBlockSize;
  std::uint32_t flags = kChunkEnd | (one_block ? kChunkStart : 0u);
  Chain chain = one_block ? kStart : chain_;
  Block block = Words(block_.data());
  std::uint64_t counter = chunk_count_;
  std::size_t size = block_size_;
  // Every subtree on the left joins what has come out so far; the last one is the root.
  while (depth_ > 0) {
    const Chain right = Compress(chain, block, counter, size, flags);
    block = Join(stack_[--depth_], right);
    chain = kStart;
    counter = 0;
    size = kBlockSize;
    flags = kParent;
  }
  const Chain root = Compress(chain, block, counter, size, flags | kRoot);
  Blake3 hash;
  std::memcpy(hash.data(), root.data(), hash.size());
  return hash;
}

Blake3 HashBlake3(ByteSpan bytes) {
  Blake3Hasher hasher;
  hasher.Add(bytes);
  return hasher.Finish();
}

}  // namespace segue
