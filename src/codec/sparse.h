// SPDX-License-Identifier: Apache-2.0
//
// Sparse positions: the Elias-Fano code of docs/format.md, section 6 (P. Elias 1974, R. Fano 1971).
// Ascending positions below N become low bits, packed, and a bit string of high parts in unary,
// from which every position can be found without decoding those before it. Pure functions over
// memory; the kernels of device/host decode the same form in their own loops.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/bytes.h"
#include "segue/status.h"

namespace segue {

inline constexpr unsigned kSparseLowBitsMax = 24;

// What sizes a row's part of the low and high streams.
struct SparseShape {
  std::uint32_t change_count = 0;   // n
  std::uint32_t element_count = 0;  // N
  unsigned low_bits = 0;            // l

  std::uint64_t LowSize() const { return 8 * DivideUp(std::uint64_t{change_count} * low_bits, 64); }
  std::uint64_t HighBits() const {
    return std::uint64_t{change_count} + (std::uint64_t{element_count - 1} >> low_bits);
  }
  std::uint64_t HighSize() const { return 8 * DivideUp(HighBits(), 64); }
};

// The l that this encoder uses. Two below the classical floor(log2(N / n)): the high bits then
// grow, but an entropy coder takes that back and more (measured in docs/performance.md).
unsigned ChooseLowBits(std::uint32_t change_count, std::uint32_t element_count);

// `positions` strictly ascending and below N, as many as change_count. `low` and `high` have the
// shape's sizes and are overwritten.
void EncodePositions(std::span<const std::uint32_t> positions, const SparseShape& shape,
                     MutableByteSpan low, MutableByteSpan high);

// Checks everything the format demands (count of ones, order, bound, padding) and fills
// `positions`, which has change_count places. Corruption with the reason otherwise.
Status DecodePositions(const SparseShape& shape, ByteSpan low, ByteSpan high,
                       std::span<std::uint32_t> positions);

// What can be checked without positions: the count of ones and the padding of both parts. After it
// no decoder reads outside its spans, and every high part is at most (N - 1) >> l.
Status CheckSparse(const SparseShape& shape, ByteSpan low, ByteSpan high);

// The l bits at bit `index * l` of `low`, reading no byte past its end.
inline std::uint32_t LowBitsAt(ByteSpan low, std::uint64_t index, unsigned low_bits) {
  if (low_bits == 0) return 0;
  const std::uint64_t bit = index * low_bits;
  const std::uint64_t word = bit / 64;
  const unsigned shift = bit % 64;
  std::uint64_t value = LoadLittle<std::uint64_t>(low.data() + word * 8) >> shift;
  if (shift + low_bits > 64) {
    value |= LoadLittle<std::uint64_t>(low.data() + word * 8 + 8) << (64 - shift);
  }
  return static_cast<std::uint32_t>(value & ((1ull << low_bits) - 1));
}

}  // namespace segue
