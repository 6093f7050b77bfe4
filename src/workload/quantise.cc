// SPDX-License-Identifier: Apache-2.0
//
// See quantise.h. Loops are written so that the compiler can vectorise them for the baseline CPU:
// tables of several gigabytes pass through here.
#include "workload/quantise.h"

#include <algorithm>
#include <array>
#include <bit>

#include "base/check.h"

namespace segue::workload {
namespace {

constexpr std::uint32_t kMagnitudeMask = 0x7fffffffu;
constexpr std::uint32_t kInfinityBits = 0x7f800000u;

std::uint32_t BitsOf(float value) { return std::bit_cast<std::uint32_t>(value); }

// `bits` without its lowest `dropped` bits, to nearest even. 0 < dropped < 32.
std::uint32_t DropBits(std::uint32_t bits, unsigned dropped) {
  const std::uint32_t half_less_one = (1u << (dropped - 1)) - 1;
  return (bits + half_less_one + ((bits >> dropped) & 1)) >> dropped;
}

// Sign-less code of a finite magnitude (as FP32 bits) in a small float format. A result above the
// format's largest code is returned as it is: the caller saturates or makes it infinity.
template <int kBias, unsigned kMantissaBits>
std::uint32_t SmallFloatCode(std::uint32_t magnitude) {
  constexpr std::uint32_t kSmallestNormal = static_cast<std::uint32_t>(128 - kBias) << 23;
  constexpr unsigned kDropped = 23 - kMantissaBits;
  if (magnitude >= kSmallestNormal) {
    return DropBits(magnitude, kDropped) -
           (static_cast<std::uint32_t>(127 - kBias) << kMantissaBits);
  }
  // Below the smallest normal the format is fixed-point: shift the full significand into place.
  const unsigned dropped = kDropped + static_cast<unsigned>(128 - kBias) - (magnitude >> 23);
  if (dropped > 24) return 0;
  const std::uint32_t significand = (magnitude & 0x7fffffu) | 0x800000u;
  return DropBits(significand, dropped);
}

// Value of a sign-less code; the inverse of SmallFloatCode for finite codes.
template <int kBias, unsigned kMantissaBits>
float SmallFloatValue(std::uint32_t code) {
  const std::uint32_t exponent = code >> kMantissaBits;
  const std::uint32_t mantissa = code & ((1u << kMantissaBits) - 1);
  if (exponent == 0) {
    constexpr std::uint32_t kUnit = static_cast<std::uint32_t>(128 - kBias - kMantissaBits) << 23;
    return static_cast<float>(mantissa) * std::bit_cast<float>(kUnit);
  }
  return std::bit_cast<float>((exponent + 127 - kBias) << 23 | mantissa << (23 - kMantissaBits));
}

float WithSign(float magnitude, bool negative) { return negative ? -magnitude : magnitude; }

// A block of zeros takes scale 1, so that nothing divides by zero.
float OneIfZero(float scale) { return scale == 0 ? 1.0f : scale; }

// Integer comparison, because the compiler may not reorder a maximum of floats.
float MaximumMagnitude(const float* values, std::size_t count) {
  std::uint32_t maximum = 0;
  for (std::size_t i = 0; i < count; ++i) {
    maximum = std::max(maximum, BitsOf(values[i]) & kMagnitudeMask);
  }
  return std::bit_cast<float>(maximum);
}

// E2M1 code without branches: how many rounding thresholds lie below. Ties go to the even code.
std::uint32_t E2m1Code(float value) {
  const std::uint32_t bits = BitsOf(value);
  const float x = std::bit_cast<float>(bits & kMagnitudeMask);
  const int code = (x > 0.25f) + (x >= 0.75f) + (x > 1.25f) + (x >= 1.75f) + (x > 2.5f) +
                   (x >= 3.5f) + (x > 5.0f);
  return (bits >> 31) << 3 | static_cast<std::uint32_t>(code);
}

// INT4 code (value + 8) of a quotient, to nearest even: adding 1.5 * 2^23 leaves the integer in the
// lowest bits of the sum.
std::uint32_t Int4Code(float quotient) {
  const float clamped = std::min(std::max(quotient, -8.0f), 7.0f);
  return (BitsOf(clamped + 0x1.8p23f) + 8) & 15;
}

// Codes of up to 128 values that share a divisor, two a byte. `count` is even.
template <std::uint32_t (*kCode)(float)>
void PackCodes(const float* values, std::size_t count, float divisor, std::byte* target) {
  std::array<std::uint32_t, kInt4Group> codes;
  for (std::size_t i = 0; i < count; ++i) codes[i] = kCode(values[i] / divisor);
  for (std::size_t i = 0; i < count / 2; ++i) {
    target[i] = static_cast<std::byte>(codes[2 * i] | codes[2 * i + 1] << 4);
  }
}

// Calls block(values, count, block_index, codes) for every block along the rows of a 4-bit format.
template <typename Block>
void ForEachRowBlock(const Rows& rows, std::size_t block_size, MutableByteSpan codes, Block block) {
  SEGUE_CHECK(rows.columns % 2 == 0 && codes.size() == rows.values.size() / 2);
  std::size_t index = 0;
  for (std::size_t row = 0; row < rows.count(); ++row) {
    for (std::size_t column = 0; column < rows.columns; column += block_size) {
      const std::size_t offset = row * rows.columns + column;
      const std::size_t count = std::min(block_size, rows.columns - column);
      block(rows.values.data() + offset, count, index++, codes.data() + offset / 2);
    }
  }
}

float Fp8BlockMaximum(const Rows& rows, std::size_t first_row, std::size_t first_column) {
  const std::size_t last_row = std::min(first_row + kFp8Block, rows.count());
  const std::size_t width = std::min(kFp8Block, rows.columns - first_column);
  float maximum = 0;
  for (std::size_t row = first_row; row < last_row; ++row) {
    maximum = std::max(
        maximum, MaximumMagnitude(rows.values.data() + row * rows.columns + first_column, width));
  }
  return maximum;
}

void Fp8BlockCodes(const Rows& rows, std::size_t first_row, std::size_t first_column, float scale,
                   MutableByteSpan codes) {
  const std::size_t last_row = std::min(first_row + kFp8Block, rows.count());
  const std::size_t last_column = std::min(first_column + kFp8Block, rows.columns);
  for (std::size_t row = first_row; row < last_row; ++row) {
    for (std::size_t column = first_column; column < last_column; ++column) {
      const std::size_t at = row * rows.columns + column;
      codes[at] = static_cast<std::byte>(E4m3FromFloat(rows.values[at] / scale));
    }
  }
}

}  // namespace

std::uint16_t Fp16FromFloat(float value) {
  const std::uint32_t bits = BitsOf(value);
  const std::uint32_t magnitude = bits & kMagnitudeMask;
  const std::uint32_t sign = bits >> 31 << 15;
  constexpr std::uint32_t kInfinity = 0x7c00;
  if (magnitude > kInfinityBits) {
    return static_cast<std::uint16_t>(sign | kInfinity | 0x200u | (magnitude >> 13 & 0x3ffu));
  }
  const std::uint32_t code = magnitude == kInfinityBits
                                 ? kInfinity
                                 : std::min(SmallFloatCode<15, 10>(magnitude), kInfinity);
  return static_cast<std::uint16_t>(sign | code);
}

float FloatFromFp16(std::uint16_t code) {
  const std::uint32_t magnitude = code & 0x7fffu;
  const bool negative = code >> 15 != 0;
  if (magnitude < 0x7c00u) return WithSign(SmallFloatValue<15, 10>(magnitude), negative);
  const std::uint32_t sign = negative ? 0x80000000u : 0;
  return std::bit_cast<float>(sign | kInfinityBits | (magnitude & 0x3ffu) << 13);
}

std::uint8_t E4m3FromFloat(float value) {
  const std::uint32_t bits = BitsOf(value);
  const std::uint32_t magnitude = bits & kMagnitudeMask;
  const std::uint32_t sign = bits >> 31 << 7;
  if (magnitude > kInfinityBits) return static_cast<std::uint8_t>(sign | 0x7fu);
  return static_cast<std::uint8_t>(sign | std::min(SmallFloatCode<7, 3>(magnitude), 0x7eu));
}

float FloatFromE4m3(std::uint8_t code) {
  const std::uint32_t magnitude = code & 0x7fu;
  if (magnitude == 0x7f) return WithSign(std::bit_cast<float>(0x7fc00000u), code >> 7 != 0);
  return WithSign(SmallFloatValue<7, 3>(magnitude), code >> 7 != 0);
}

std::uint8_t E2m1FromFloat(float value) { return static_cast<std::uint8_t>(E2m1Code(value)); }

float FloatFromE2m1(std::uint8_t code) {
  return WithSign(SmallFloatValue<1, 1>(code & 7u), (code & 8) != 0);
}

std::uint8_t E8m0FromMaximum(float maximum) {
  const std::uint32_t exponent = BitsOf(maximum) >> 23 & 0xffu;
  return static_cast<std::uint8_t>(exponent > 2 ? exponent - 2 : 0);
}

float FloatFromE8m0(std::uint8_t code) {
  // Code 0 is 2^-127, a subnormal of FP32.
  return std::bit_cast<float>(code == 0 ? 0x400000u : static_cast<std::uint32_t>(code) << 23);
}

void QuantiseFp8(const Rows& rows, const BlockOutput& output) {
  SEGUE_CHECK(output.codes.size() == rows.values.size());
  std::size_t block = 0;
  for (std::size_t row = 0; row < rows.count(); row += kFp8Block) {
    for (std::size_t column = 0; column < rows.columns; column += kFp8Block) {
      const float scale = OneIfZero(Fp8BlockMaximum(rows, row, column) / kE4m3Max);
      StoreLittle(output.scales.subspan(4 * block++, 4).data(), scale);
      Fp8BlockCodes(rows, row, column, scale, output.codes);
    }
  }
}

float Nvfp4TensorScale(float maximum) { return OneIfZero(maximum / (kE2m1Max * kE4m3Max)); }

void QuantiseNvfp4(const Rows& rows, float tensor_scale, const BlockOutput& output) {
  const auto block = [&](const float* values, std::size_t count, std::size_t index,
                         std::byte* codes) {
    const float scale = MaximumMagnitude(values, count) / (kE2m1Max * tensor_scale);
    const std::uint8_t code = std::max<std::uint8_t>(E4m3FromFloat(scale), 1);
    output.scales[index] = static_cast<std::byte>(code);
    PackCodes<E2m1Code>(values, count, FloatFromE4m3(code) * tensor_scale, codes);
  };
  ForEachRowBlock(rows, kNvfp4Block, output.codes, block);
}

void QuantiseMxfp4(const Rows& rows, const BlockOutput& output) {
  const auto block = [&](const float* values, std::size_t count, std::size_t index,
                         std::byte* codes) {
    const std::uint8_t code = E8m0FromMaximum(MaximumMagnitude(values, count));
    output.scales[index] = static_cast<std::byte>(code);
    PackCodes<E2m1Code>(values, count, FloatFromE8m0(code), codes);
  };
  ForEachRowBlock(rows, kMxfp4Block, output.codes, block);
}

void QuantiseInt4(const Rows& rows, const BlockOutput& output) {
  const auto block = [&](const float* values, std::size_t count, std::size_t index,
                         std::byte* codes) {
    const std::uint16_t rounded = Bf16FromFloat(MaximumMagnitude(values, count) / kInt4Max);
    const float scale = OneIfZero(FloatFromBf16(rounded));
    StoreLittle(output.scales.subspan(2 * index, 2).data(), Bf16FromFloat(scale));
    PackCodes<Int4Code>(values, count, scale, codes);
  };
  ForEachRowBlock(rows, kInt4Group, output.codes, block);
}

}  // namespace segue::workload
