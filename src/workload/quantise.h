// SPDX-License-Identifier: Apache-2.0
//
// Quantise: FP32 to the formats that checkpoints store. Rounding is to nearest even on the integer
// view of FP32, so that every rounding which makes a stored bit is visible and the same on every
// machine. tools/trace/quantise.py is the same in numpy.
//
// What must hold: the sign bit is kept, so -0.0 stays -0.0; NaN stays NaN in BF16 and FP16 (with
// its upper payload bits, made quiet) and in E4M3. E2M1 and INT4 have no NaN, and a block scale of
// non-finite weights means nothing: the block quantisers require finite values.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/bytes.h"

namespace segue::workload {

// BF16's are inline because every weight of every version passes through them.
inline std::uint16_t Bf16FromFloat(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t quiet_nan = bits >> 16 | 0x40u;
  const std::uint32_t rounded = (bits + 0x7fffu + (bits >> 16 & 1)) >> 16;
  const bool is_nan = (bits & 0x7fffffffu) > 0x7f800000u;
  return static_cast<std::uint16_t>(is_nan ? quiet_nan : rounded);
}
inline float FloatFromBf16(std::uint16_t code) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(code) << 16);
}
// Beyond the largest finite value: infinity.
std::uint16_t Fp16FromFloat(float value);
float FloatFromFp16(std::uint16_t code);
// The finite "fn" variant; beyond +-448 (and infinity) it saturates.
std::uint8_t E4m3FromFloat(float value);
float FloatFromE4m3(std::uint8_t code);
// Codes 0 to 15, bit 3 is the sign; beyond +-6 it saturates. Not for NaN.
std::uint8_t E2m1FromFloat(float value);
float FloatFromE2m1(std::uint8_t code);
// The scale of an MX block whose largest magnitude is `maximum`: 2^(floor(log2 maximum) - 2), so
// that the block's largest code is in E2M1's top binade (OCP MX 1.0, 6.3). 0 for a block of zeros.
std::uint8_t E8m0FromMaximum(float maximum);
float FloatFromE8m0(std::uint8_t code);

inline constexpr std::size_t kFp8Block = 128;  // Both ways.
inline constexpr std::size_t kNvfp4Block = 16;
inline constexpr std::size_t kMxfp4Block = 32;
inline constexpr std::size_t kInt4Group = 128;
inline constexpr float kE4m3Max = 448.0f;
inline constexpr float kE2m1Max = 6.0f;
inline constexpr float kInt4Max = 7.0f;

// Whole rows of a matrix in row-major order; values.size() is a multiple of columns.
struct Rows {
  std::span<const float> values;
  std::size_t columns = 0;

  std::size_t count() const { return values.size() / columns; }
};

// Where a block quantiser writes. Blocks at the right and lower edge may be partial. Sizes must
// fit: codes as the format says, scales one a block, in row-major order of blocks.
struct BlockOutput {
  MutableByteSpan codes;
  MutableByteSpan scales;
};

// E4M3 codes, a byte each; FP32 scale (block maximum / 448, or 1 for zeros) a 128 x 128 block:
// weight = code * scale.
void QuantiseFp8(const Rows& rows, const BlockOutput& output);

// The tensor's FP32 scale: maximum / (6 * 448), or 1 for zeros.
float Nvfp4TensorScale(float maximum);
// Packed E2M1 codes, the even column in the low half; E4M3 scale a 16-block, in units of the tensor
// scale, never zero: weight = code * scale * tensor_scale. Columns: a multiple of 2.
void QuantiseNvfp4(const Rows& rows, float tensor_scale, const BlockOutput& output);

// Packed E2M1 codes as above; E8M0 scale a 32-block: weight = code * scale.
void QuantiseMxfp4(const Rows& rows, const BlockOutput& output);

// Packed codes of value + 8, -8 to 7, the even column in the low half; BF16 scale (group maximum
// / 7, or 1 for zeros) a group of 128: weight = (code - 8) * scale. Columns: a multiple of 2.
void QuantiseInt4(const Rows& rows, const BlockOutput& output);

}  // namespace segue::workload
