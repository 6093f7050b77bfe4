// SPDX-License-Identifier: Apache-2.0
//
// Dense core: everything that reads a whole chunk, by one warp. Digest alone (scan), digests of
// what is there and of what would come (preflight), and the store of it (apply): XOR of a mask, or
// replacement bytes. A lane takes 16 bytes at a time, and of a whole block at an aligned address
// several such pieces, so that their loads are on their way together; under a view it takes single
// elements. No kernel may go through local memory (test_kernels_usage.py): a piece's words are
// indexed by numbers that are known when it is compiled.
#pragma once

#include "device/cuda/kernel_common.h"

namespace segue::cuda {

enum class DensePass { kScan, kPreflight, kApply };

inline constexpr unsigned kPieceWords = 4;
inline constexpr unsigned kPieceSize = 4 * kPieceWords;

// Up to 16 bytes as little-endian words, zeros behind the end.
struct Piece {
  std::uint32_t word[kPieceWords] = {};

  // All 16 bytes, from a multiple of 16 on: one load of a device.
  SEGUE_KERNEL static Piece LoadWhole(const std::byte* source) {
    Piece piece;
#ifdef __CUDA_ARCH__
    const uint4 all = *reinterpret_cast<const uint4*>(source);
    piece.word[0] = all.x;
    piece.word[1] = all.y;
    piece.word[2] = all.z;
    piece.word[3] = all.w;
#else
    LoadWords(source, piece);
#endif
    return piece;
  }

  SEGUE_KERNEL void StoreWhole(std::byte* target) const {
#ifdef __CUDA_ARCH__
    *reinterpret_cast<uint4*>(target) = make_uint4(word[0], word[1], word[2], word[3]);
#else
    StoreWords(target, *this);
#endif
  }

  SEGUE_KERNEL static Piece Load(const std::byte* source, std::uint64_t left) {
    Piece piece;
    if (left >= kPieceSize && reinterpret_cast<std::uintptr_t>(source) % 4 == 0) {
      LoadWords(source, piece);
      return piece;
    }
    SEGUE_UNROLL
    for (unsigned i = 0; i < kPieceSize; ++i) {
      const std::uint32_t byte = i < left ? reinterpret_cast<const std::uint8_t*>(source)[i] : 0;
      piece.word[i / 4] |= byte << 8 * (i % 4);
    }
    return piece;
  }

  SEGUE_KERNEL void Store(std::byte* target, std::uint64_t left) const {
    if (left >= kPieceSize && reinterpret_cast<std::uintptr_t>(target) % 4 == 0) {
      return StoreWords(target, *this);
    }
    SEGUE_UNROLL
    for (unsigned i = 0; i < kPieceSize; ++i) {
      if (i >= left) continue;
      reinterpret_cast<std::uint8_t*>(target)[i] =
          static_cast<std::uint8_t>(word[i / 4] >> 8 * (i % 4));
    }
  }

 private:
  SEGUE_KERNEL static void LoadWords(const std::byte* source, Piece& piece) {
    SEGUE_UNROLL
    for (unsigned i = 0; i < kPieceWords; ++i) {
      piece.word[i] = reinterpret_cast<const std::uint32_t*>(source)[i];
    }
  }
  SEGUE_KERNEL static void StoreWords(std::byte* target, const Piece& piece) {
    SEGUE_UNROLL
    for (unsigned i = 0; i < kPieceWords; ++i) {
      reinterpret_cast<std::uint32_t*>(target)[i] = piece.word[i];
    }
  }
};

SEGUE_KERNEL bool IsPieceAligned(const std::byte* address) {
  return reinterpret_cast<std::uintptr_t>(address) % kPieceSize == 0;
}

// Keys of a piece's words, of both lanes.
struct PieceKeys {
  std::uint32_t lane[2][kPieceWords];

  // `index`: of the first word in its block. A lane of the warp reads 16 bytes at once: word by
  // word, four lanes would meet in each bank of shared memory.
  SEGUE_KERNEL static PieceKeys Load(const WordKeys& keys, unsigned index) {
    PieceKeys result;
    SEGUE_UNROLL
    for (unsigned k = 0; k < 2; ++k) {
      const auto* const words = reinterpret_cast<const std::byte*>(keys.lane[k] + index);
      const Piece piece = Piece::LoadWhole(words);
      SEGUE_UNROLL
      for (unsigned i = 0; i < kPieceWords; ++i) result.lane[k][i] = piece.word[i];
    }
    return result;
  }
};

SEGUE_KERNEL void AddPiece(WordSums& sums, const Piece& piece, const PieceKeys& keys) {
  SEGUE_UNROLL
  for (unsigned k = 0; k < 2; ++k) {
    SEGUE_UNROLL
    for (unsigned i = 0; i < kPieceWords; ++i) {
      sums.lane[k] += std::uint64_t{piece.word[i]} * keys.lane[k][i];
    }
  }
}

// One warp on one chunk.
template <typename Warp, DensePass kPass>
class DenseWalk {
 public:
  SEGUE_KERNEL DenseWalk(const Warp& warp, const DenseRow& row, const WordKeys& keys)
      : warp_(warp), row_(row), keys_(keys) {}

  SEGUE_KERNEL RowSums Run() {
    const ChunkPlaceRow& place = row_.place;
    if (place.view == nullptr) {
      for (std::uint64_t block = 0; block * kDigestBlockSize < place.size; ++block) {
        TakeBlock(block);
      }
    } else {
      switch (place.width) {
        case 1: TakeElements<1>(); break;
        case 2: TakeElements<2>(); break;
        case 4: TakeElements<4>(); break;
        default: TakeElements<8>(); break;
      }
    }
    RowSums result = {};
    for (unsigned k = 0; k < 2; ++k) {
      result.before[k] = warp_.Sum(before_[k]);
      if constexpr (kPass != DensePass::kScan) {
        result.difference[k] = warp_.Sum(after_[k]) - result.before[k];
      }
    }
    result.is_valid = 1;
    return result;
  }

 private:
  template <typename T>
  using Lanes = typename Warp::template Lanes<T>;

  // Pieces of each side that a lane has on their way together: with both sides as many loads.
  static constexpr unsigned kBatch = kPass == DensePass::kScan ? 8 : 4;
  static constexpr unsigned kLaneStep = kLaneCount * kPieceSize;
  static_assert(kDigestBlockSize % (kBatch * kLaneStep) == 0);

  // The block's key is multiplied in once a lane, not once a word.
  SEGUE_KERNEL void TakeBlock(std::uint64_t block) {
    const std::uint64_t first = block * kDigestBlockSize;
    const bool is_whole = row_.place.size - first >= kDigestBlockSize &&
                          IsPieceAligned(row_.place.live) &&
                          (kPass == DensePass::kScan || IsPieceAligned(row_.bytes));
    std::uint64_t block_key[2];
    MakeBlockKey(row_.place, block, block_key);
    warp_.Each([&](unsigned lane) {
      WordSums before;
      WordSums after;
      if (is_whole) {
        for (unsigned at = 0; at < kDigestBlockSize; at += kBatch * kLaneStep) {
          TakeBatch(first, at + lane * kPieceSize, before, after);
        }
      } else {
        for (unsigned at = lane * kPieceSize; at < kDigestBlockSize; at += kLaneStep) {
          if (first + at < row_.place.size) TakePiece(first + at, at / 4, before, after);
        }
      }
      AddTo(before_, lane, before, block_key);
      AddTo(after_, lane, after, block_key);
    });
  }

  // Of the block at `first` the pieces at byte `at` and at each step behind it.
  SEGUE_KERNEL void TakeBatch(std::uint64_t first, unsigned at, WordSums& before, WordSums& after) {
    std::byte* const live = row_.place.live + first + at;
    Piece old_words[kBatch];
    Piece words[kBatch];
    SEGUE_UNROLL
    for (unsigned j = 0; j < kBatch; ++j) {
      old_words[j] = Piece::LoadWhole(live + j * kLaneStep);
      if constexpr (kPass != DensePass::kScan) {
        words[j] = Piece::LoadWhole(row_.bytes + first + at + j * kLaneStep);
      }
    }
    SEGUE_UNROLL
    for (unsigned j = 0; j < kBatch; ++j) {
      TakeWords((at + j * kLaneStep) / 4, old_words[j], words[j], before, after);
    }
    if constexpr (kPass == DensePass::kApply) {
      SEGUE_UNROLL
      for (unsigned j = 0; j < kBatch; ++j) words[j].StoreWhole(live + j * kLaneStep);
    }
  }

  SEGUE_KERNEL void TakePiece(std::uint64_t offset, unsigned index, WordSums& before,
                              WordSums& after) {
    const std::uint64_t left = row_.place.size - offset;
    std::byte* const live = row_.place.live + offset;
    const Piece old_words = Piece::Load(live, left);
    Piece words;
    if constexpr (kPass != DensePass::kScan) words = Piece::Load(row_.bytes + offset, left);
    TakeWords(index, old_words, words, before, after);
    if constexpr (kPass == DensePass::kApply) words.Store(live, left);
  }

  // Sums up; `words` become those of the target.
  SEGUE_KERNEL void TakeWords(unsigned index, const Piece& old_words, Piece& words,
                              WordSums& before, WordSums& after) {
    const PieceKeys keys = PieceKeys::Load(keys_, index);
    AddPiece(before, old_words, keys);
    if constexpr (kPass != DensePass::kScan) {
      SEGUE_UNROLL
      for (unsigned i = 0; i < kPieceWords; ++i) {
        if (!row_.replaces) words.word[i] ^= old_words.word[i];
      }
      AddPiece(after, words, keys);
    }
  }

  template <unsigned W>
  SEGUE_KERNEL void TakeElements() {
    const std::uint64_t count = row_.place.size / W;
    for (std::uint64_t first = 0; first < count; first += kLaneCount) {
      warp_.Each([&](unsigned lane) {
        if (first + lane < count) TakeElement<W>(lane, static_cast<std::uint32_t>(first + lane));
      });
    }
  }

  template <unsigned W>
  SEGUE_KERNEL void TakeElement(unsigned lane, std::uint32_t position) {
    const std::uint64_t target = LocateInChunk<W>(row_.place, position);
    if (target == kNotHeld) return;
    const std::uint64_t offset = std::uint64_t{position} * W;
    std::uint64_t block_key[2];
    MakeBlockKey(row_.place, offset / kDigestBlockSize, block_key);
    std::byte* const live = row_.place.live + target;
    const std::uint64_t old_value = LoadElement<W>(live);
    AddTo(before_, lane, SumElement<W>(old_value, offset, keys_), block_key);
    if constexpr (kPass != DensePass::kScan) {
      std::uint64_t new_value = LoadElement<W>(row_.bytes + offset);
      if (!row_.replaces) new_value ^= old_value;
      AddTo(after_, lane, SumElement<W>(new_value, offset, keys_), block_key);
      if constexpr (kPass == DensePass::kApply) StoreElement<W>(live, new_value);
    }
  }

  SEGUE_KERNEL static void AddTo(Lanes<std::uint64_t> (&lanes)[2], unsigned lane,
                                 const WordSums& sums, const std::uint64_t block_key[2]) {
    for (unsigned k = 0; k < 2; ++k) lanes[k][lane] += sums.lane[k] * block_key[k];
  }

  const Warp& warp_;
  const DenseRow& row_;
  const WordKeys& keys_;
  Lanes<std::uint64_t> before_[2] = {};
  Lanes<std::uint64_t> after_[2] = {};
};

template <typename Warp, DensePass kPass>
SEGUE_KERNEL RowSums RunDenseRow(const Warp& warp, const DenseRow& row, const WordKeys& keys) {
  return DenseWalk<Warp, kPass>(warp, row, keys).Run();
}

}  // namespace segue::cuda
