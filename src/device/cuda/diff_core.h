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
  static constexpr unsigned kUnitPieces = kPieceElements >= 8 ? 1 : 8 / kPieceElements;
  static constexpr unsigned kUnitSize = kUnitPieces * kPieceSize;
  static constexpr unsigned kUnitBytes = kUnitSize / W / 8;  // Of the bits: 1 or 2.

  // Sums over the words of one block, before its key.
  struct UnitSums {
    WordSums before;
    WordSums after;
    std::uint64_t touched = 0;
  };

  SEGUE_KERNEL void TakeBlock(std::uint64_t block) {
    std::uint64_t block_key[2];
    MakeBlockKey(row_.place, block, block_key);
    warp_.Each([&](unsigned lane) {
      UnitSums sums;
      for (unsigned unit = lane; unit < kDigestBlockSize / kUnitSize; unit += kLaneCount) {
        TakeUnit(lane, block * (kDigestBlockSize / kUnitSize) + unit, sums);
      }
      for (unsigned k = 0; k < 2; ++k) {
        before_[k][lane] += sums.before.lane[k] * block_key[k];
        after_[k][lane] += sums.after.lane[k] * block_key[k];
      }
      touched_[lane] += sums.touched * block_key[0];
    });
  }

  SEGUE_KERNEL void TakeUnit(unsigned lane, std::uint64_t unit, UnitSums& sums) {
    std::uint32_t bits = 0;
    for (unsigned i = 0; i < kUnitPieces; ++i) {
      bits |= TakePiece(lane, unit * kUnitSize + i * kPieceSize, sums) << i * kPieceElements;
    }
    StoreElement<kUnitBytes>(row_.bits + unit * kUnitBytes, bits);
  }

  // Returns the bits of its elements. Behind the end both sides count as zeros.
  SEGUE_KERNEL std::uint32_t TakePiece(unsigned lane, std::uint64_t offset, UnitSums& sums) {
    const std::uint64_t size = row_.place.size;
    const std::uint64_t left = offset < size ? size - offset : 0;
    const Piece old_words = Piece::Load(row_.place.live + offset, left);
    const Piece new_words = Piece::Load(row_.target + offset, left);
    const auto index = static_cast<unsigned>(offset % kDigestBlockSize / 4);
    std::uint32_t differing = 0;
    for (unsigned i = 0; i < kPieceWords; ++i) {
      sums.before.Add(old_words.word[i], index + i, keys_);
      sums.after.Add(new_words.word[i], index + i, keys_);
      differing |= old_words.word[i] ^ new_words.word[i];
    }
    return differing == 0 ? 0 : TakeChanges(lane, old_words, new_words, offset, sums);
  }

  SEGUE_KERNEL std::uint32_t TakeChanges(unsigned lane, const Piece& old_words,
                                         const Piece& new_words, std::uint64_t offset,
                                         UnitSums& sums) {
    std::uint32_t bits = 0;
    for (unsigned i = 0; i < kPieceElements; ++i) {
      const std::uint64_t old_value = ElementOf(old_words, i);
      const std::uint64_t mask = old_value ^ ElementOf(new_words, i);
      if (mask == 0) continue;
      bits |= 1u << i;
      mask_ones_[lane] |= mask;
      mask_zeros_[lane] |= ~mask;
      ++count_[lane];
      sums.touched += SumElement<W>(old_value, offset + i * W, keys_).lane[0];
    }
    return bits;
  }

  SEGUE_KERNEL static std::uint64_t ElementOf(const Piece& piece, unsigned i) {
    if constexpr (W == 8) {
      return piece.word[2 * i] | static_cast<std::uint64_t>(piece.word[2 * i + 1]) << 32;
    } else {
      constexpr std::uint32_t kOnes = ~0u >> (32 - 8 * W);
      return piece.word[i * W / 4] >> 8 * (i * W % 4) & kOnes;
    }
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
