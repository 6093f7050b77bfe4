// SPDX-License-Identifier: Apache-2.0
//
// Sparse core: preflight and apply of one `sparse` row by one warp. The row's Elias-Fano positions
// are read as they were staged: 32 words of the high bits at a time, a count of ones for each lane,
// and every change finds its own word and bit from these counts (select by rank), so nothing is
// decoded one after the other. Preflight is the same walk without the store.
#pragma once

#include "device/cuda/kernel_common.h"

namespace segue::cuda {

SEGUE_KERNEL unsigned CountOnes(std::uint32_t word) {
#ifdef __CUDA_ARCH__
  return static_cast<unsigned>(__popc(word));
#else
  return static_cast<unsigned>(__builtin_popcount(word));
#endif
}

// Place of the one of rank `rank` (from 0) in `word`, which has more ones than that.
SEGUE_KERNEL unsigned SelectOne(std::uint32_t word, unsigned rank) {
  unsigned place = 0;
  for (unsigned half = 16; half != 0; half /= 2) {
    const std::uint32_t low = word & ((1u << half) - 1);
    const unsigned ones = CountOnes(low);
    if (rank >= ones) {
      rank -= ones;
      word >>= half;
      place += half;
    } else {
      word = low;
    }
  }
  return place;
}

// The low bits of change `index`.
SEGUE_KERNEL std::uint32_t LowBits(const SparseRow& row, std::uint32_t index) {
  if (row.low_bits == 0) return 0;
  const std::uint64_t bit = std::uint64_t{index} * row.low_bits;
  const unsigned shift = bit % 64;
  std::uint64_t value = row.low[bit / 64] >> shift;
  if (shift + row.low_bits > 64) value |= row.low[bit / 64 + 1] << (64 - shift);
  return static_cast<std::uint32_t>(value) & ((1u << row.low_bits) - 1);
}

SEGUE_KERNEL std::uint64_t MaskOf(const SparseRow& row, std::uint32_t index) {
  std::uint64_t mask = row.constants;
  for (unsigned p = 0; p < row.place.width; ++p) {
    if (row.plane[p] == nullptr) continue;
    const auto byte = reinterpret_cast<const std::uint8_t*>(row.plane[p])[index];
    mask |= static_cast<std::uint64_t>(byte) << 8 * p;
  }
  return mask;
}

// 32 words of a bit string, and how many ones lie before each of them.
template <typename Warp>
struct OnesTile {
  typename Warp::template Lanes<std::uint32_t> words;
  typename Warp::template Lanes<std::uint32_t> ones_before;
  std::uint32_t ones = 0;

  SEGUE_KERNEL OnesTile(const Warp& warp, const std::uint32_t* all, std::uint32_t first_word,
                        std::uint32_t word_count) {
    typename Warp::template Lanes<std::uint32_t> counts;
    warp.Each([&](unsigned lane) {
      const std::uint32_t word = first_word + lane;
      words[lane] = word < word_count ? all[word] : 0;
      counts[lane] = CountOnes(words[lane]);
    });
    ones_before = warp.SumBefore(counts, ones);
  }

  // For each lane the bit, counted from the tile's first, of the one of rank first + lane. Lanes
  // beyond the last one get anything.
  SEGUE_KERNEL typename Warp::template Lanes<std::uint32_t> Select(const Warp& warp,
                                                                   std::uint32_t first) const {
    typename Warp::template Lanes<unsigned> word;
    typename Warp::template Lanes<unsigned> tried;
    warp.Each([&](unsigned lane) { word[lane] = 0; });
    for (unsigned step = kLaneCount / 2; step != 0; step /= 2) {
      warp.Each([&](unsigned lane) { tried[lane] = word[lane] + step; });
      const auto before = warp.Shuffle(ones_before, tried);
      warp.Each([&](unsigned lane) {
        if (before[lane] <= first + lane) word[lane] = tried[lane];
      });
    }
    const auto bits = warp.Shuffle(words, word);
    const auto before = warp.Shuffle(ones_before, word);
    typename Warp::template Lanes<std::uint32_t> result;
    warp.Each([&](unsigned lane) {
      result[lane] = word[lane] * 32 + SelectOne(bits[lane], first + lane - before[lane]);
    });
    return result;
  }
};

// One warp on one row.
template <typename Warp, unsigned W, bool kWrite>
class SparseWalk {
 public:
  SEGUE_KERNEL SparseWalk(const Warp& warp, const SparseRow& row, const WordKeys& keys)
      : warp_(warp), row_(row), keys_(keys) {}

  SEGUE_KERNEL RowSums Run() {
    const std::uint32_t word_count =
        (row_.change_count + ((row_.element_count - 1) >> row_.low_bits) + 31) / 32;
    for (std::uint32_t word = 0; word < word_count && valid_; word += kLaneCount) {
      const OnesTile<Warp> tile(warp_, row_.high, word, word_count);
      for (std::uint32_t first = 0; first < tile.ones && valid_; first += kLaneCount) {
        TakeRound(word * 32, tile, first);
      }
      index_ += tile.ones;
    }
    RowSums result = {};
    for (unsigned k = 0; k < 2; ++k) result.difference[k] = warp_.Sum(difference_[k]);
    if constexpr (!kWrite) result.touched = warp_.Sum(touched_);
    result.is_valid = valid_ ? 1 : 0;
    return result;
  }

 private:
  template <typename T>
  using Lanes = typename Warp::template Lanes<T>;

  // Changes index_ + first + lane.
  SEGUE_KERNEL void TakeRound(std::uint32_t first_bit, const OnesTile<Warp>& tile,
                              std::uint32_t first) {
    const Lanes<std::uint32_t> bit = tile.Select(warp_, first);
    Lanes<std::uint32_t> position = {};  // Of lanes that are not active too: others look at it.
    Lanes<std::uint64_t> mask = {};
    Lanes<bool> active;
    const std::uint32_t left = tile.ones - first;
    const std::uint32_t count = left < kLaneCount ? left : kLaneCount;
    warp_.Each([&](unsigned lane) {
      const std::uint32_t index = index_ + first + lane;
      active[lane] = lane < count;
      if (!active[lane]) return;
      position[lane] = (first_bit + bit[lane] - index) << row_.low_bits | LowBits(row_, index);
      mask[lane] = MaskOf(row_, index);
    });
    if constexpr (!kWrite) CheckRound(position, mask, active, count);
    if (!valid_) return;
    warp_.Each([&](unsigned lane) {
      if (active[lane]) Change(lane, position[lane], mask[lane]);
    });
  }

  // Order, bound and masks. Nothing is read where one of them is broken.
  SEGUE_KERNEL void CheckRound(const Lanes<std::uint32_t>& position,
                               const Lanes<std::uint64_t>& mask, const Lanes<bool>& active,
                               std::uint32_t active_count) {
    const Lanes<std::uint32_t> previous = warp_.ShiftUp(position, last_);
    Lanes<bool> broken;
    Lanes<unsigned> end;  // The last lane that is active.
    warp_.Each([&](unsigned lane) {
      end[lane] = active_count - 1;
      const bool ordered = (lane == 0 && is_first_) || position[lane] > previous[lane];
      broken[lane] =
          active[lane] && (!ordered || position[lane] >= row_.element_count || mask[lane] == 0);
    });
    valid_ = !warp_.Any(broken);
    last_ = warp_.Last(warp_.Shuffle(position, end));
    is_first_ = false;
  }

  SEGUE_KERNEL void Change(unsigned lane, std::uint32_t position, std::uint64_t mask) {
    const std::uint64_t target = LocateInChunk<W>(row_.place, position);
    if (target == kNotHeld) return;
    std::byte* const live = row_.place.live + target;
    const std::uint64_t old_value = LoadElement<W>(live);
    const std::uint64_t new_value = old_value ^ mask;
    if constexpr (kWrite) StoreElement<W>(live, new_value);
    const std::uint64_t offset = std::uint64_t{position} * W;
    std::uint64_t block_key[2];
    MakeBlockKey(row_.place, offset / kDigestBlockSize, block_key);
    const WordSums before = SumElement<W>(old_value, offset, keys_);
    const WordSums after = SumElement<W>(new_value, offset, keys_);
    for (unsigned k = 0; k < 2; ++k) {
      difference_[k][lane] += (after.lane[k] - before.lane[k]) * block_key[k];
    }
    if constexpr (!kWrite) touched_[lane] += before.lane[0] * block_key[0];
  }

  const Warp& warp_;
  const SparseRow& row_;
  const WordKeys& keys_;
  std::uint32_t index_ = 0;  // Of the tile's first change.
  std::uint32_t last_ = 0;   // Position before this round's.
  bool is_first_ = true;
  bool valid_ = true;
  Lanes<std::uint64_t> difference_[2] = {};
  Lanes<std::uint64_t> touched_ = {};
};

template <typename Warp, bool kWrite>
SEGUE_KERNEL RowSums RunSparseRow(const Warp& warp, const SparseRow& row, const WordKeys& keys) {
  switch (row.place.width) {
    case 1: return SparseWalk<Warp, 1, kWrite>(warp, row, keys).Run();
    case 2: return SparseWalk<Warp, 2, kWrite>(warp, row, keys).Run();
    case 4: return SparseWalk<Warp, 4, kWrite>(warp, row, keys).Run();
    default: return SparseWalk<Warp, 8, kWrite>(warp, row, keys).Run();
  }
}

}  // namespace segue::cuda
