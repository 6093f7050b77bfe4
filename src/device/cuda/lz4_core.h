// SPDX-License-Identifier: Apache-2.0
//
// LZ4 core: one LZ4 block without frame (docs/format.md, section 6), by one warp. What a block
// decodes to is what the library of the processor says; LZ4's rules for the last bytes are not
// checked, and an offset of 0, which that library does not look for, is refused.
#pragma once

#include "device/cuda/decode_core.h"

namespace segue::cuda {

template <typename Warp>
class Lz4Walk {
 public:
  SEGUE_KERNEL Lz4Walk(const Warp& warp, const DecodeRow& row)
      : row_(row), source_(warp, row), target_(warp, row) {}

  SEGUE_KERNEL DecodeResult Run() {
    DecodeStatus status = DecodeStatus::kDecoded;
    bool is_last = false;
    while (status == DecodeStatus::kDecoded && !is_last) status = TakeSequence(is_last);
    return ResultOf(status, target_, row_);
  }

 private:
  static constexpr unsigned kMatchMin = 4;

  // Literals and a match; the last one ends behind its literals.
  SEGUE_KERNEL DecodeStatus TakeSequence(bool& is_last) {
    if (source_.left() == 0) return DecodeStatus::kSourceEnds;
    const unsigned token = source_.Byte(0);
    source_.Skip(1);
    std::uint64_t count = token >> 4;
    if (!TakeLength(count) || source_.left() < count) return DecodeStatus::kSourceEnds;
    const DecodeStatus status = target_.Append(source_.place(), count);
    if (status != DecodeStatus::kDecoded) return status;
    source_.Skip(count);
    is_last = source_.left() == 0;
    return is_last ? DecodeStatus::kDecoded : TakeMatch(token & 0xf);
  }

  SEGUE_KERNEL DecodeStatus TakeMatch(std::uint64_t count) {
    if (source_.left() < 2) return DecodeStatus::kSourceEnds;
    const std::uint64_t offset = source_.Number(0, 2);
    source_.Skip(2);
    if (!TakeLength(count)) return DecodeStatus::kSourceEnds;
    return target_.Repeat(offset, count + kMatchMin);
  }

  // Adds what follows a nibble of 15: bytes of 255, and one that is less.
  SEGUE_KERNEL bool TakeLength(std::uint64_t& count) {
    if (count != 15) return true;
    if (source_.left() == 0) return false;
    if (source_.Byte(0) == 255) {
      const std::uint64_t times = 1 + source_.CountRepeats(1);
      count += 255 * times;
      source_.Skip(times);
      if (source_.left() == 0) return false;
    }
    count += source_.Byte(0);
    source_.Skip(1);
    return true;
  }

  const DecodeRow& row_;
  BlockSource<Warp> source_;
  BlockTarget<Warp> target_;
};

template <typename Warp>
SEGUE_KERNEL DecodeResult RunLz4Row(const Warp& warp, const DecodeRow& row) {
  return Lz4Walk<Warp>(warp, row).Run();
}

}  // namespace segue::cuda
