// SPDX-License-Identifier: Apache-2.0
//
// Elias-Fano encoding and the checked, scalar decoding that is its specification in code.
#include "codec/sparse.h"

#include <algorithm>
#include <cstring>
#include <string>

#include "base/check.h"

namespace segue {
namespace {

// Bits [bit_count, 8 * size) of `bytes` are all zero. `bytes` has whole 64-bit words.
bool PaddingIsZero(ByteSpan bytes, std::uint64_t bit_count) {
  if (bit_count == bytes.size() * 8) return true;
  const std::uint64_t last = LoadLittle<std::uint64_t>(bytes.data() + bytes.size() - 8);
  return bit_count % 64 != 0 && last >> (bit_count % 64) == 0;
}

void PackLowBits(std::span<const std::uint32_t> positions, unsigned low_bits, std::byte* target) {
  const std::uint32_t mask = (1u << low_bits) - 1;
  std::uint64_t pending = 0;
  unsigned filled = 0;
  for (const std::uint32_t position : positions) {
    const std::uint64_t value = position & mask;
    pending |= value << filled;
    filled += low_bits;
    if (filled < 64) continue;
    StoreLittle(target, pending);
    target += 8;
    filled -= 64;
    pending = filled == 0 ? 0 : value >> (low_bits - filled);
  }
  if (filled != 0) StoreLittle(target, pending);
}

}  // namespace

unsigned ChooseLowBits(std::uint32_t change_count, std::uint32_t element_count) {
  SEGUE_CHECK(change_count >= 1 && change_count <= element_count);
  const auto classical = static_cast<unsigned>(std::bit_width(element_count / change_count)) - 1;
  return classical >= 2 ? classical - 2 : 0;
}

void EncodePositions(std::span<const std::uint32_t> positions, const SparseShape& shape,
                     MutableByteSpan low, MutableByteSpan high) {
  SEGUE_CHECK(positions.size() == shape.change_count && shape.low_bits <= kSparseLowBitsMax);
  SEGUE_CHECK(low.size() == shape.LowSize() && high.size() == shape.HighSize());
  if (shape.low_bits != 0) PackLowBits(positions, shape.low_bits, low.data());
  std::memset(high.data(), 0, high.size());
  std::uint64_t word_index = 0;
  std::uint64_t word = 0;
  for (std::size_t i = 0; i < positions.size(); ++i) {
    const std::uint64_t bit = (positions[i] >> shape.low_bits) + i;
    if (bit / 64 != word_index) {
      StoreLittle(high.data() + word_index * 8, word);
      word_index = bit / 64;
      word = 0;
    }
    word |= 1ull << (bit % 64);
  }
  StoreLittle(high.data() + word_index * 8, word);
}

Status CheckSparse(const SparseShape& shape, ByteSpan low, ByteSpan high) {
  SEGUE_CHECK(low.size() == shape.LowSize() && high.size() == shape.HighSize());
  std::uint64_t ones = 0;
  for (std::size_t offset = 0; offset < high.size(); offset += 8) {
    ones += static_cast<unsigned>(std::popcount(LoadLittle<std::uint64_t>(high.data() + offset)));
  }
  if (ones != shape.change_count) {
    return Corruption("high bits hold " + std::to_string(ones) + " positions, expected " +
                      std::to_string(shape.change_count));
  }
  if (!PaddingIsZero(high, shape.HighBits()) ||
      !PaddingIsZero(low, std::uint64_t{shape.change_count} * shape.low_bits)) {
    return Corruption("padding bits of a sparse chunk are not zero");
  }
  return {};
}

Status DecodePositions(const SparseShape& shape, ByteSpan low, ByteSpan high,
                       std::span<std::uint32_t> positions) {
  SEGUE_CHECK(positions.size() == shape.change_count);
  SEGUE_RETURN_IF_ERROR(CheckSparse(shape, low, high));
  std::uint64_t i = 0;
  for (std::uint64_t base = 0; base < high.size() * 8; base += 64) {
    std::uint64_t word = LoadLittle<std::uint64_t>(high.data() + base / 8);
    for (; word != 0; word &= word - 1, ++i) {
      const std::uint64_t part = base + static_cast<unsigned>(std::countr_zero(word)) - i;
      const std::uint64_t position = part << shape.low_bits | LowBitsAt(low, i, shape.low_bits);
      if (position >= shape.element_count || (i > 0 && position <= positions[i - 1])) {
        return Corruption("position " + std::to_string(position) +
                          " of a sparse chunk is out of order "
                          "or not below " +
                          std::to_string(shape.element_count));
      }
      positions[i] = static_cast<std::uint32_t>(position);
    }
  }
  return {};
}

}  // namespace segue
