// SPDX-License-Identifier: Apache-2.0
//
// Dense core: everything that reads a whole chunk, by one warp. Digest alone (scan), digests of
// what is there and of what would come (preflight), and the store of it (apply): XOR of a mask, or
// replacement bytes. A lane takes 16 bytes at a time; under a view it takes single elements.
#pragma once

#include "device/cuda/kernel_common.h"

namespace segue::cuda {

enum class DensePass { kScan, kPreflight, kApply };

inline constexpr unsigned kPieceWords = 4;
inline constexpr unsigned kPieceSize = 4 * kPieceWords;

// Up to 16 bytes as little-endian words, zeros behind the end.
struct Piece {
  std::uint32_t word[kPieceWords] = {};

  SEGUE_KERNEL static Piece Load(const std::byte* source, std::uint64_t left) {
    Piece piece;
    if (left >= kPieceSize && reinterpret_cast<std::uintptr_t>(source) % 4 == 0) {
      LoadWords(source, piece);
      return piece;
    }
    const std::uint64_t size = left < kPieceSize ? left : kPieceSize;
    for (std::uint64_t i = 0; i < size; ++i) {
      const auto byte = reinterpret_cast<const std::uint8_t*>(source)[i];
      piece.word[i / 4] |= static_cast<std::uint32_t>(byte) << 8 * (i % 4);
    }
    return piece;
  }

  SEGUE_KERNEL void Store(std::byte* target, std::uint64_t left) const {
    if (left >= kPieceSize && reinterpret_cast<std::uintptr_t>(target) % 4 == 0) {
      return StoreWords(target, *this);
    }
    const std::uint64_t size = left < kPieceSize ? left : kPieceSize;
    for (std::uint64_t i = 0; i < size; ++i) {
      reinterpret_cast<std::uint8_t*>(target)[i] =
          static_cast<std::uint8_t>(word[i / 4] >> 8 * (i % 4));
    }
  }

 private:
  SEGUE_KERNEL static void LoadWords(const std::byte* source, Piece& piece) {
#ifdef __CUDA_ARCH__
    if (reinterpret_cast<std::uintptr_t>(source) % kPieceSize == 0) {
      const uint4 all = *reinterpret_cast<const uint4*>(source);
      piece.word[0] = all.x;
      piece.word[1] = all.y;
      piece.word[2] = all.z;
      piece.word[3] = all.w;
      return;
    }
#endif
    for (unsigned i = 0; i < kPieceWords; ++i) {
      piece.word[i] = reinterpret_cast<const std::uint32_t*>(source)[i];
    }
  }
  SEGUE_KERNEL static void StoreWords(std::byte* target, const Piece& piece) {
#ifdef __CUDA_ARCH__
    if (reinterpret_cast<std::uintptr_t>(target) % kPieceSize == 0) {
      *reinterpret_cast<uint4*>(target) =
          make_uint4(piece.word[0], piece.word[1], piece.word[2], piece.word[3]);
      return;
    }
#endif
    for (unsigned i = 0; i < kPieceWords; ++i) {
      reinterpret_cast<std::uint32_t*>(target)[i] = piece.word[i];
    }
  }
};

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

  // The block's key is multiplied in once a lane, not once a word.
  SEGUE_KERNEL void TakeBlock(std::uint64_t block) {
    std::uint64_t block_key[2];
    MakeBlockKey(row_.place, block, block_key);
    warp_.Each([&](unsigned lane) {
      WordSums before;
      WordSums after;
      for (unsigned index = lane * kPieceWords; index < kDigestBlockWords;
           index += kLaneCount * kPieceWords) {
        const std::uint64_t offset = block * kDigestBlockSize + std::uint64_t{index} * 4;
        if (offset < row_.place.size) TakePiece(offset, index, before, after);
      }
      AddTo(before_, lane, before, block_key);
      AddTo(after_, lane, after, block_key);
    });
  }

  SEGUE_KERNEL void TakePiece(std::uint64_t offset, unsigned index, WordSums& before,
                              WordSums& after) {
    const std::uint64_t left = row_.place.size - offset;
    std::byte* const live = row_.place.live + offset;
    const Piece old_words = Piece::Load(live, left);
    for (unsigned i = 0; i < kPieceWords; ++i) {
      before.Add(old_words.word[i], index + i, keys_);
    }
    if constexpr (kPass != DensePass::kScan) {
      Piece words = Piece::Load(row_.bytes + offset, left);
      for (unsigned i = 0; i < kPieceWords; ++i) {
        if (!row_.replaces) words.word[i] ^= old_words.word[i];
        after.Add(words.word[i], index + i, keys_);
      }
      if constexpr (kPass == DensePass::kApply) words.Store(live, left);
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
