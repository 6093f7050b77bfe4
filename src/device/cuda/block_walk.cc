// SPDX-License-Identifier: Apache-2.0
//
// Elements, one after the other; every count is held against what is left before it is used.
#include "device/cuda/block_walk.h"

namespace segue::cuda {
namespace {

// Takes elements off a block and adds up what they state. False: a rule is broken.
class Walk {
 public:
  Walk(ByteSpan block, std::uint64_t size) : block_(block), left_(size) {}

  bool at_end() const { return place_ == block_.size(); }
  bool is_filled() const { return left_ == 0; }
  bool Number(unsigned size, std::uint64_t& value) {
    if (block_.size() - place_ < size) return false;
    value = 0;
    for (unsigned i = 0; i < size; ++i) {
      value |= std::to_integer<std::uint64_t>(block_[place_ + i]) << 8 * i;
    }
    place_ += size;
    return true;
  }
  bool Literal(std::uint64_t count) {
    if (block_.size() - place_ < count || left_ < count) return false;
    place_ += count;
    Write(count);
    return true;
  }
  bool Copy(std::uint64_t offset, std::uint64_t count) {
    if (offset == 0 || offset > written_ || left_ < count) return false;
    Write(count);
    return true;
  }

 private:
  void Write(std::uint64_t count) {
    written_ += count;
    left_ -= count;
  }

  const ByteSpan block_;
  std::uint64_t place_ = 0;
  std::uint64_t written_ = 0;
  std::uint64_t left_;
};

bool TakeSnappyElement(Walk& walk) {
  std::uint64_t tag = 0;
  std::uint64_t number = 0;
  if (!walk.Number(1, tag)) return false;
  const std::uint64_t count = (tag >> 2) + 1;
  switch (tag & 3) {
    case 0:
      if (count <= 60) return walk.Literal(count);
      return walk.Number(static_cast<unsigned>(count - 60), number) && walk.Literal(number + 1);
    case 1: return walk.Number(1, number) && walk.Copy(number | tag >> 5 << 8, 4 + (tag >> 2 & 7));
    case 2: return walk.Number(2, number) && walk.Copy(number, count);
    default: return walk.Number(4, number) && walk.Copy(number, count);
  }
}

// Adds what follows a nibble of 15: bytes of 255, and one that is less. A block's length bounds it.
bool TakeLz4Length(Walk& walk, std::uint64_t& count) {
  if (count != 15) return true;
  std::uint64_t byte = 255;
  while (byte == 255) {
    if (!walk.Number(1, byte)) return false;
    count += byte;
  }
  return true;
}

}  // namespace

bool SnappyBodyFills(ByteSpan body, std::uint64_t size) {
  Walk walk(body, size);
  while (!walk.at_end()) {
    if (!TakeSnappyElement(walk)) return false;
  }
  return walk.is_filled();
}

bool Lz4BlockFills(ByteSpan block, std::uint64_t size) {
  Walk walk(block, size);
  while (true) {
    std::uint64_t token = 0;
    if (!walk.Number(1, token)) return false;
    std::uint64_t literals = token >> 4;
    if (!TakeLz4Length(walk, literals) || !walk.Literal(literals)) return false;
    if (walk.at_end()) return walk.is_filled();
    std::uint64_t offset = 0;
    std::uint64_t match = token & 15;
    if (!walk.Number(2, offset) || !TakeLz4Length(walk, match)) return false;
    if (!walk.Copy(offset, match + 4)) return false;
  }
}

}  // namespace segue::cuda
