// SPDX-License-Identifier: Apache-2.0
//
// Diff core: the encoder's side of a `sparse` row, in two passes of one warp a segment. Find reads
// base and target once, sums up both and writes one bit for each element that differs. Pack walks
// these bits as the apply walks a row's high bits: each change finds its own place by counting
// ones, so no change waits for another, and puts its low bits, its one and its mask where the
// chunk's row has them. It reads the changed elements again and sums up what it wrote, so that a
// buffer that somebody changes in between is found out.
#pragma once

#include "device/cuda/dense_core.h"
#include "device/cuda/diff_rows.h"
#include "device/cuda/sparse_core.h"

namespace segue::cuda {

template <typename Warp, unsigned W>
class FindWalk {
 public:
  SEGUE_KERNEL FindWalk(const Warp& warp, const FindRow& row, const WordKeys& keys)
      : warp_(warp), row_(row), keys_(keys) {}

  SEGUE_KERNEL FindSums Run() {
    for (std::uint64_t block = 0; block * kDigestBlockSize < row_.place.size; ++block) {
      TakeBlock(block);
    }
    FindSums result = {};
    for (unsigned k = 0; k < 2; ++k) {
      result.before[k] = warp_.Sum(before_[k]);
      result.after[k] = warp_.Sum(after_[k]);
    }
    result.touched = warp_.Sum(touched_);
    result.mask_ones = warp_.Or(mask_ones_);
    result.mask_zeros = warp_.Or(mask_zeros_);
    result.change_count = warp_.Sum(count_);
    return result;
  }

 private:
  template <typename T>
  using Lanes = typename Warp::template Lanes<T>;

  // What a lane takes at a time: a piece, or as many as make a whole byte of bits.
  static constexpr unsigned kPieceElements = kPieceSize / W;
  static constexpr unsigned kWordElements = W < 4 ? 4 / W : 1;
  static constexpr unsigned kUnitPieces = kPieceElements >= 8 ? 1 : 8 / kPieceElements;
  static constexpr unsigned kUnitSize = kUnitPieces * kPieceSize;
  static constexpr unsigned kUnitBytes = kUnitSize / W / 8;  // Of the bits: 1 or 2.

  // Sums over the words of one block, before its key.
  struct UnitSums {
    WordSums before;
    WordSums after;
    std::uint64_t touched = 0;
  };

  // Pieces of each side that a lane has on their way together, and their units.
  static constexpr unsigned kBatch = 4;
  static constexpr unsigned kBatchUnits = kBatch / kUnitPieces;
  static constexpr unsigned kBlockUnits = kDigestBlockSize / kUnitSize;
  static_assert(kBatch % kUnitPieces == 0 && kBlockUnits % (kBatchUnits * kLaneCount) == 0);

  SEGUE_KERNEL void TakeBlock(std::uint64_t block) {
    const bool is_whole = row_.place.size - block * kDigestBlockSize >= kDigestBlockSize &&
                          IsPieceAligned(row_.place.live) && IsPieceAligned(row_.target);
    std::uint64_t block_key[2];
    MakeBlockKey(row_.place, block, block_key);
    warp_.Each([&](unsigned lane) {
      UnitSums sums;
      for (unsigned unit = lane; unit < kBlockUnits; unit += kBatchUnits * kLaneCount) {
        TakeBatch(lane, block * kBlockUnits + unit, is_whole, sums);
      }
      for (unsigned k = 0; k < 2; ++k) {
        before_[k][lane] += sums.before.lane[k] * block_key[k];
        after_[k][lane] += sums.after.lane[k] * block_key[k];
      }
      touched_[lane] += sums.touched * block_key[0];
    });
  }

  // Byte of piece `j` of a batch that begins with unit `first`.
  SEGUE_KERNEL static std::uint64_t OffsetOf(std::uint64_t first, unsigned j) {
    return (first + j / kUnitPieces * kLaneCount) * kUnitSize + j % kUnitPieces * kPieceSize;
  }

  // Unit `first`, and those that follow it a warp's width apart. Behind the end both sides count as
  // zeros.
  SEGUE_KERNEL void TakeBatch(unsigned lane, std::uint64_t first, bool is_whole, UnitSums& sums) {
    Piece old_words[kBatch];
    Piece new_words[kBatch];
    if (is_whole) {
      SEGUE_UNROLL
      for (unsigned j = 0; j < kBatch; ++j) {
        old_words[j] = Piece::LoadWhole(row_.place.live + OffsetOf(first, j));
        new_words[j] = Piece::LoadWhole(row_.target + OffsetOf(first, j));
      }
    } else {
      SEGUE_UNROLL
      for (unsigned j = 0; j < kBatch; ++j) {
        const std::uint64_t offset = OffsetOf(first, j);
        const std::uint64_t left = offset < row_.place.size ? row_.place.size - offset : 0;
        old_words[j] = Piece::Load(row_.place.live + offset, left);
        new_words[j] = Piece::Load(row_.target + offset, left);
      }
    }
    SEGUE_UNROLL
    for (unsigned u = 0; u < kBatchUnits; ++u) {
      std::uint32_t bits = 0;
      SEGUE_UNROLL
      for (unsigned i = 0; i < kUnitPieces; ++i) {
        const unsigned j = u * kUnitPieces + i;
        bits |= TakePiece(lane, OffsetOf(first, j), old_words[j], new_words[j], sums)
                << i * kPieceElements;
      }
      const std::uint64_t unit = first + u * kLaneCount;
      StoreElement<kUnitBytes>(row_.bits + unit * kUnitBytes, bits);
    }
  }

  // Returns the bits of its elements.
  SEGUE_KERNEL std::uint32_t TakePiece(unsigned lane, std::uint64_t offset, const Piece& old_words,
                                       const Piece& new_words, UnitSums& sums) {
    const PieceKeys keys =
        PieceKeys::Load(keys_, static_cast<unsigned>(offset % kDigestBlockSize / 4));
    AddPiece(sums.before, old_words, keys);
    AddPiece(sums.after, new_words, keys);
    constexpr unsigned kWords = W == 8 ? 2 : 1;  // Of an element that has several.
    std::uint32_t bits = 0;
    SEGUE_UNROLL
    for (unsigned i = 0; i < kPieceWords; i += kWords) {
      std::uint64_t old_value = old_words.word[i];
      std::uint64_t mask = old_words.word[i] ^ new_words.word[i];
      if constexpr (W == 8) {
        old_value |= std::uint64_t{old_words.word[i + 1]} << 32;
        mask |= std::uint64_t{old_words.word[i + 1] ^ new_words.word[i + 1]} << 32;
      }
      if (mask == 0) continue;
      bits |= TakeChanges(lane, offset + i * 4, old_value, mask, sums)
              << i / kWords * kWordElements;
    }
    return bits;
  }

  // Of the elements of one word, or of the one of two; returns their bits. Most words have none.
  SEGUE_KERNEL std::uint32_t TakeChanges(unsigned lane, std::uint64_t offset,
                                         std::uint64_t old_values, std::uint64_t masks,
                                         UnitSums& sums) {
    constexpr std::uint64_t kOnes = ~std::uint64_t{0} >> (64 - 8 * W);
    std::uint32_t bits = 0;
    for (unsigned i = 0; i < kWordElements; ++i) {
      const std::uint64_t mask = masks >> 8 * W * i % 64 & kOnes;
      if (mask == 0) continue;
      bits |= 1u << i;
      mask_ones_[lane] |= mask;
      mask_zeros_[lane] |= ~mask;
      ++count_[lane];
      const std::uint64_t old_value = old_values >> 8 * W * i % 64 & kOnes;
      sums.touched += SumElement<W>(old_value, offset + i * W, keys_).lane[0];
    }
    return bits;
  }

  const Warp& warp_;
  const FindRow& row_;
  const WordKeys& keys_;
  Lanes<std::uint64_t> before_[2] = {};
  Lanes<std::uint64_t> after_[2] = {};
  Lanes<std::uint64_t> touched_ = {};
  Lanes<std::uint64_t> mask_ones_ = {};
  Lanes<std::uint64_t> mask_zeros_ = {};
  Lanes<std::uint64_t> count_ = {};
};

// Other lanes, and other warps, may put bits into the same word.
SEGUE_KERNEL void PutBits(std::uint32_t* word, std::uint32_t bits) {
#ifdef __CUDA_ARCH__
  atomicOr(word, bits);
#else
  *word |= bits;
#endif
}

template <typename Warp, unsigned W>
class PackWalk {
 public:
  SEGUE_KERNEL PackWalk(const Warp& warp, const PackRow& row, const WordKeys& keys)
      : warp_(warp), row_(row), keys_(keys), index_(row.first_change) {}

  SEGUE_KERNEL PackSums Run() {
    const auto word_count = static_cast<std::uint32_t>(BitsSize(row_.place.size, W) / 4);
    for (std::uint32_t word = 0; word < word_count; word += kLaneCount) {
      const OnesTile<Warp> tile(warp_, row_.bits, word, word_count);
      for (std::uint32_t first = 0; first < tile.ones; first += kLaneCount) {
        TakeRound(word * 32, tile, first);
      }
      index_ += tile.ones;
    }
    PackSums result = {};
    for (unsigned k = 0; k < 2; ++k) result.difference[k] = warp_.Sum(difference_[k]);
    result.change_count = index_ - row_.first_change;
    return result;
  }

 private:
  template <typename T>
  using Lanes = typename Warp::template Lanes<T>;

  // Changes index_ + first + lane of the chunk.
  SEGUE_KERNEL void TakeRound(std::uint32_t first_bit, const OnesTile<Warp>& tile,
                              std::uint32_t first) {
    const Lanes<std::uint32_t> bit = tile.Select(warp_, first);
    warp_.Each([&](unsigned lane) {
      if (first + lane < tile.ones) Put(lane, index_ + first + lane, first_bit + bit[lane]);
    });
  }

  SEGUE_KERNEL void Put(unsigned lane, std::uint32_t index, std::uint32_t element) {
    const std::uint64_t offset = std::uint64_t{element} * W;
    const std::uint64_t old_value = LoadElement<W>(row_.place.live + offset);
    const std::uint64_t new_value = LoadElement<W>(row_.target + offset);
    PutPosition(index, row_.first_element + element);
    PutMask(index, old_value ^ new_value);
    std::uint64_t block_key[2];
    MakeBlockKey(row_.place, offset / kDigestBlockSize, block_key);
    const WordSums before = SumElement<W>(old_value, offset, keys_);
    const WordSums after = SumElement<W>(new_value, offset, keys_);
    for (unsigned k = 0; k < 2; ++k) {
      difference_[k][lane] += (after.lane[k] - before.lane[k]) * block_key[k];
    }
  }

  SEGUE_KERNEL void PutPosition(std::uint32_t index, std::uint32_t position) {
    const std::uint32_t one = (position >> row_.low_bits) + index;
    PutBits(row_.high + one / 32, 1u << one % 32);
    if (row_.low_bits == 0) return;
    const std::uint32_t value = position & ((1u << row_.low_bits) - 1);
    const std::uint64_t bit = std::uint64_t{index} * row_.low_bits;
    const unsigned shift = bit % 32;
    PutBits(row_.low + bit / 32, value << shift);
    if (shift + row_.low_bits > 32) PutBits(row_.low + bit / 32 + 1, value >> (32 - shift));
  }

  SEGUE_KERNEL void PutMask(std::uint32_t index, std::uint64_t mask) {
    for (unsigned p = 0; p < W; ++p) {
      if (row_.plane[p] == nullptr) continue;
      reinterpret_cast<std::uint8_t*>(row_.plane[p])[index] =
          static_cast<std::uint8_t>(mask >> 8 * p);
    }
  }

  const Warp& warp_;
  const PackRow& row_;
  const WordKeys& keys_;
  std::uint32_t index_;  // In the chunk, of the tile's first change.
  Lanes<std::uint64_t> difference_[2] = {};
};

template <typename Warp>
SEGUE_KERNEL FindSums RunFindRow(const Warp& warp, const FindRow& row, const WordKeys& keys) {
  switch (row.place.width) {
    case 1: return FindWalk<Warp, 1>(warp, row, keys).Run();
    case 2: return FindWalk<Warp, 2>(warp, row, keys).Run();
    case 4: return FindWalk<Warp, 4>(warp, row, keys).Run();
    default: return FindWalk<Warp, 8>(warp, row, keys).Run();
  }
}

template <typename Warp>
SEGUE_KERNEL PackSums RunPackRow(const Warp& warp, const PackRow& row, const WordKeys& keys) {
  switch (row.place.width) {
    case 1: return PackWalk<Warp, 1>(warp, row, keys).Run();
    case 2: return PackWalk<Warp, 2>(warp, row, keys).Run();
    case 4: return PackWalk<Warp, 4>(warp, row, keys).Run();
    default: return PackWalk<Warp, 8>(warp, row, keys).Run();
  }
}

}  // namespace segue::cuda
