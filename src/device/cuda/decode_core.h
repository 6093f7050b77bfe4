// SPDX-License-Identifier: Apache-2.0
//
// What the decoders share, for one warp on one block. Every lane follows the same elements of the
// block; the lanes cut the bytes of each copy among them. Nothing is read outside the source nor
// written outside the target, whatever the block says.
#pragma once

#include "device/cuda/kernel_common.h"

namespace segue::cuda {

SEGUE_KERNEL unsigned LowestBit(std::uint32_t mask) {
#ifdef __CUDA_ARCH__
  return static_cast<unsigned>(__ffs(static_cast<int>(mask)) - 1);
#else
  return static_cast<unsigned>(__builtin_ctz(mask));
#endif
}

// The compressed bytes, and how far they are taken.
template <typename Warp>
class BlockSource {
 public:
  SEGUE_KERNEL BlockSource(const Warp& warp, const DecodeRow& row)
      : warp_(warp), bytes_(row.source), size_(row.source_size) {}

  SEGUE_KERNEL std::uint64_t left() const { return size_ - at_; }
  SEGUE_KERNEL const std::byte* place() const { return bytes_ + at_; }
  SEGUE_KERNEL void Skip(std::uint64_t count) { at_ += count; }
  SEGUE_KERNEL unsigned Byte(std::uint64_t ahead) const {
    return reinterpret_cast<const std::uint8_t*>(bytes_)[at_ + ahead];
  }
  // A little-endian number.
  SEGUE_KERNEL std::uint64_t Number(std::uint64_t ahead, unsigned size) const {
    std::uint64_t value = 0;
    for (unsigned i = 0; i < size; ++i) value |= std::uint64_t{Byte(ahead + i)} << 8 * i;
    return value;
  }

  // How many times the next `size` bytes come again right behind themselves.
  SEGUE_KERNEL std::uint64_t CountRepeats(unsigned size) const {
    if (left() < 2 * size || Byte(0) != Byte(size)) return 0;
    for (std::uint64_t count = 0;; count += kLaneCount) {
      typename Warp::template Lanes<bool> differs;
      warp_.Each([&](unsigned lane) {
        const std::uint64_t ahead = (count + lane + 1) * size;
        bool same = ahead + size <= left();
        for (unsigned i = 0; same && i < size; ++i) same = Byte(i) == Byte(ahead + i);
        differs[lane] = !same;
      });
      const std::uint32_t mask = warp_.Ballot(differs);
      if (mask != 0) return count + LowestBit(mask);
    }
  }

 private:
  const Warp& warp_;
  const std::byte* const bytes_;
  const std::uint64_t size_;
  std::uint64_t at_ = 0;
};

// The decoded bytes. An element that does not fit writes nothing.
template <typename Warp>
class BlockTarget {
 public:
  SEGUE_KERNEL BlockTarget(const Warp& warp, const DecodeRow& row)
      : warp_(warp), bytes_(row.target), size_(row.target_size) {}

  SEGUE_KERNEL std::uint64_t written() const { return written_; }

  // `count` bytes from elsewhere, which the caller knows to be there.
  SEGUE_KERNEL DecodeStatus Append(const std::byte* source, std::uint64_t count) {
    if (count > size_ - written_) return DecodeStatus::kTargetEnds;
    std::byte* const target = bytes_ + written_;
    warp_.Each([&](unsigned lane) {
      for (std::uint64_t i = lane; i < count; i += kLaneCount) target[i] = source[i];
    });
    return Advance(count);
  }

  // `count` bytes from `offset` before the end; where they overlap, those go on that come first.
  SEGUE_KERNEL DecodeStatus Repeat(std::uint64_t offset, std::uint64_t count) {
    if (offset == 0 || offset > written_) return DecodeStatus::kBadOffset;
    if (count > size_ - written_) return DecodeStatus::kTargetEnds;
    if (count >= kLongRun && offset <= 8 && (offset & (offset - 1)) == 0) {
      FillLong(offset, count);
    } else {
      FillBytes(offset, 0, count);
    }
    return Advance(count);
  }

 private:
  static constexpr std::uint64_t kLongRun = 64;

  // Bytes [first, end) of the copy. All are read from before it, so that no lane waits for another.
  SEGUE_KERNEL void FillBytes(std::uint64_t offset, std::uint64_t first, std::uint64_t end) {
    std::byte* const target = bytes_ + written_;
    const std::byte* const source = target - offset;
    warp_.Each([&](unsigned lane) {
      for (std::uint64_t i = first + lane; i < end; i += kLaneCount) {
        target[i] = source[i < offset ? i : i % offset];
      }
    });
  }

  // The offset divides 8, so that the same 8 bytes come again at each multiple of 8.
  SEGUE_KERNEL void FillLong(std::uint64_t offset, std::uint64_t count) {
    std::byte* const target = bytes_ + written_;
    const std::uint64_t first = (8 - reinterpret_cast<std::uintptr_t>(target) % 8) % 8;
    const std::uint64_t words = (count - first) / 8;
    FillBytes(offset, 0, first);
    std::uint64_t word = 0;
    for (std::uint64_t i = 0; i < 8; ++i) {
      const auto* const source = reinterpret_cast<const std::uint8_t*>(target - offset);
      word |= std::uint64_t{source[(first + i) % offset]} << 8 * i;
    }
    warp_.Each([&](unsigned lane) {
      for (std::uint64_t i = lane; i < words; i += kLaneCount) {
        StoreElement<8>(target + first + 8 * i, word);
      }
    });
    FillBytes(offset, first + 8 * words, count);
  }

  SEGUE_KERNEL DecodeStatus Advance(std::uint64_t count) {
    written_ += count;
    warp_.Sync();
    return DecodeStatus::kDecoded;
  }

  const Warp& warp_;
  std::byte* const bytes_;
  const std::uint64_t size_;
  std::uint64_t written_ = 0;
};

// Of a block whose elements have all been taken, or of one that broke a rule.
template <typename Warp>
SEGUE_KERNEL DecodeResult ResultOf(DecodeStatus status, const BlockTarget<Warp>& target,
                                   const DecodeRow& row) {
  if (status == DecodeStatus::kDecoded && target.written() != row.target_size) {
    status = DecodeStatus::kTargetShort;
  }
  return {target.written(), status};
}

}  // namespace segue::cuda
