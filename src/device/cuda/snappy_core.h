// SPDX-License-Identifier: Apache-2.0
//
// Snappy core: one raw Snappy block with its length in front (docs/format.md, section 6), by one
// warp. Takes and refuses exactly what the library that the processor uses does. A run of one
// value, which masks are full of, is written as the same copy of 64 bytes over and over: those are
// found 32 at a time and made at once.
#pragma once

#include "device/cuda/decode_core.h"

namespace segue::cuda {

template <typename Warp>
class SnappyWalk {
 public:
  SEGUE_KERNEL SnappyWalk(const Warp& warp, const DecodeRow& row)
      : row_(row), source_(warp, row), target_(warp, row) {}

  SEGUE_KERNEL DecodeResult Run() {
    DecodeStatus status = TakeLength();
    while (status == DecodeStatus::kDecoded && source_.left() != 0) status = TakeElement();
    return ResultOf(status, target_, row_);
  }

 private:
  // Seven bits a byte, the lowest first; at most 32 bits.
  SEGUE_KERNEL DecodeStatus TakeLength() {
    std::uint64_t length = 0;
    for (unsigned shift = 0; shift < 32; shift += 7) {
      if (source_.left() == 0) return DecodeStatus::kWrongLength;
      const unsigned byte = source_.Byte(0);
      source_.Skip(1);
      length |= std::uint64_t{byte & 0x7f} << shift;
      if (byte < 0x80) {
        return length == row_.target_size ? DecodeStatus::kDecoded : DecodeStatus::kWrongLength;
      }
    }
    return DecodeStatus::kWrongLength;
  }

  SEGUE_KERNEL DecodeStatus TakeElement() {
    const unsigned tag = source_.Byte(0);
    switch (tag & 3) {
      case 0: return TakeLiteral(tag);
      case 1: return TakeCopy(2, 4 + (tag >> 2 & 7), tag >> 5 << 8);
      case 2: return TakeCopy(3, 1 + (tag >> 2), 0);
      default: return TakeCopy(5, 1 + (tag >> 2), 0);
    }
  }

  SEGUE_KERNEL DecodeStatus TakeLiteral(unsigned tag) {
    std::uint64_t count = (tag >> 2) + 1;
    unsigned head = 1;
    if (count > 60) {
      const auto size = static_cast<unsigned>(count - 60);
      head += size;
      if (source_.left() < head) return DecodeStatus::kSourceEnds;
      count = source_.Number(1, size) + 1;
    }
    if (source_.left() - head < count) return DecodeStatus::kSourceEnds;
    source_.Skip(head);
    const DecodeStatus status = target_.Append(source_.place(), count);
    source_.Skip(count);
    return status;
  }

  // `head`: bytes of the element, the offset's among them; `offset`: its bits above those.
  SEGUE_KERNEL DecodeStatus TakeCopy(unsigned head, std::uint64_t count, std::uint64_t offset) {
    if (source_.left() < head) return DecodeStatus::kSourceEnds;
    offset |= source_.Number(1, head - 1);
    const std::uint64_t times = 1 + source_.CountRepeats(head);
    source_.Skip(times * head);
    return target_.Repeat(offset, times * count);
  }

  const DecodeRow& row_;
  BlockSource<Warp> source_;
  BlockTarget<Warp> target_;
};

template <typename Warp>
SEGUE_KERNEL DecodeResult RunSnappyRow(const Warp& warp, const DecodeRow& row) {
  return SnappyWalk<Warp>(warp, row).Run();
}

}  // namespace segue::cuda
