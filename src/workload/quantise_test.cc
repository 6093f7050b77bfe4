// SPDX-License-Identifier: Apache-2.0
//
// Known values of every format, from the formats' definitions; ties, signs and special values; and
// blocks worked out by hand.
#include "workload/quantise.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <vector>

namespace segue::workload {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

float FromBits(std::uint32_t bits) { return std::bit_cast<float>(bits); }

std::vector<unsigned> Bytes(ByteSpan bytes) {
  std::vector<unsigned> numbers;
  for (const std::byte byte : bytes) numbers.push_back(std::to_integer<unsigned>(byte));
  return numbers;
}

TEST(Quantise, Bf16KnownValues) {
  EXPECT_EQ(Bf16FromFloat(0.0f), 0x0000);
  EXPECT_EQ(Bf16FromFloat(-0.0f), 0x8000);
  EXPECT_EQ(Bf16FromFloat(1.0f), 0x3f80);
  EXPECT_EQ(Bf16FromFloat(-2.0f), 0xc000);
  EXPECT_EQ(Bf16FromFloat(0.02f), 0x3ca4);
  EXPECT_EQ(Bf16FromFloat(kInfinity), 0x7f80);
  EXPECT_EQ(Bf16FromFloat(-kInfinity), 0xff80);
  EXPECT_EQ(Bf16FromFloat(std::numeric_limits<float>::max()), 0x7f80);
  EXPECT_EQ(Bf16FromFloat(FromBits(0x00010000)), 0x0001);  // A denormal.
}

TEST(Quantise, Bf16RoundsTiesToEven) {
  EXPECT_EQ(Bf16FromFloat(FromBits(0x3f808000)), 0x3f80);  // Tie, even below.
  EXPECT_EQ(Bf16FromFloat(FromBits(0x3f818000)), 0x3f82);  // Tie, even above.
  EXPECT_EQ(Bf16FromFloat(FromBits(0x3f808001)), 0x3f81);
  EXPECT_EQ(Bf16FromFloat(FromBits(0x3f817fff)), 0x3f81);
  EXPECT_EQ(Bf16FromFloat(FromBits(0xbf818000)), 0xbf82);
  EXPECT_EQ(Bf16FromFloat(FromBits(0x3fff8000)), 0x4000);  // Into the next binade.
}

// Rounding a NaN as a number could make it infinity, or carry into the sign.
TEST(Quantise, Bf16NaNStaysNaN) {
  EXPECT_EQ(Bf16FromFloat(FromBits(0x7f800001)), 0x7fc0);
  EXPECT_EQ(Bf16FromFloat(FromBits(0x7fffffff)), 0x7fff);
  EXPECT_EQ(Bf16FromFloat(FromBits(0xffffffff)), 0xffff);
  EXPECT_EQ(Bf16FromFloat(FromBits(0xff912345)), 0xffd1);
}

TEST(Quantise, Bf16RoundTripsEveryCode) {
  for (std::uint32_t code = 0; code < 65536; ++code) {
    const bool is_nan = (code & 0x7fff) > 0x7f80;
    const std::uint32_t expected = is_nan ? code | 0x40 : code;
    const float value = FloatFromBf16(static_cast<std::uint16_t>(code));
    ASSERT_EQ(Bf16FromFloat(value), expected) << code;
  }
}

TEST(Quantise, Fp16KnownValues) {
  EXPECT_EQ(Fp16FromFloat(1.0f), 0x3c00);
  EXPECT_EQ(Fp16FromFloat(-0.0f), 0x8000);
  EXPECT_EQ(Fp16FromFloat(65504.0f), 0x7bff);
  EXPECT_EQ(Fp16FromFloat(65519.0f), 0x7bff);
  EXPECT_EQ(Fp16FromFloat(65520.0f), 0x7c00);  // Tie at the edge: infinity.
  EXPECT_EQ(Fp16FromFloat(1e10f), 0x7c00);
  EXPECT_EQ(Fp16FromFloat(-kInfinity), 0xfc00);
  EXPECT_EQ(Fp16FromFloat(FromBits(0x7f800001)), 0x7e00);
  EXPECT_EQ(Fp16FromFloat(FromBits(0xffc02000)), 0xfe01);
  EXPECT_EQ(Fp16FromFloat(1.0f + 0x1.0p-11f), 0x3c00);        // Tie, even below.
  EXPECT_EQ(Fp16FromFloat(1.0f + 3 * 0x1.0p-11f), 0x3c02);    // Tie, even above.
  EXPECT_EQ(Fp16FromFloat(0x1.0p-24f), 0x0001);               // Smallest denormal.
  EXPECT_EQ(Fp16FromFloat(0x1.0p-25f), 0x0000);               // Tie to zero.
  EXPECT_EQ(Fp16FromFloat(0x1.8p-25f), 0x0001);               //
  EXPECT_EQ(Fp16FromFloat(-0x1.8p-24f), 0x8002);              // Tie, even above.
  EXPECT_EQ(Fp16FromFloat(0x1.0p-14f - 0x1.0p-26f), 0x0400);  // Denormal up to a normal.
  EXPECT_EQ(Fp16FromFloat(FromBits(0x00000001)), 0x0000);
}

TEST(Quantise, Fp16RoundTripsEveryCode) {
  for (std::uint32_t code = 0; code < 65536; ++code) {
    const bool is_nan = (code & 0x7fff) > 0x7c00;
    const std::uint32_t expected = is_nan ? code | 0x200 : code;
    const float value = FloatFromFp16(static_cast<std::uint16_t>(code));
    ASSERT_EQ(Fp16FromFloat(value), expected) << code;
  }
}

TEST(Quantise, E4m3KnownValues) {
  EXPECT_EQ(E4m3FromFloat(1.0f), 0x38);
  EXPECT_EQ(E4m3FromFloat(-0.0f), 0x80);
  EXPECT_EQ(E4m3FromFloat(448.0f), 0x7e);
  EXPECT_EQ(E4m3FromFloat(1e9f), 0x7e);
  EXPECT_EQ(E4m3FromFloat(-kInfinity), 0xfe);
  EXPECT_EQ(E4m3FromFloat(FromBits(0xffc00000)), 0xff);
  EXPECT_EQ(E4m3FromFloat(1.0625f), 0x38);    // Tie, even below.
  EXPECT_EQ(E4m3FromFloat(1.1875f), 0x3a);    // Tie, even above.
  EXPECT_EQ(E4m3FromFloat(0x1.0p-6f), 0x08);  // Smallest normal.
  EXPECT_EQ(E4m3FromFloat(0x1.0p-9f), 0x01);  // Smallest denormal.
  EXPECT_EQ(E4m3FromFloat(0x1.0p-10f), 0x00);
  EXPECT_EQ(E4m3FromFloat(0x1.8p-9f), 0x02);
  EXPECT_EQ(E4m3FromFloat(0x1.fp-7f), 0x08);  // Tie between the largest denormal and a normal.
}

TEST(Quantise, E4m3RoundTripsEveryFiniteCode) {
  for (unsigned code = 0; code < 256; ++code) {
    ASSERT_EQ(E4m3FromFloat(FloatFromE4m3(static_cast<std::uint8_t>(code))), code);
  }
  EXPECT_TRUE(std::isnan(FloatFromE4m3(0x7f)));
}

TEST(Quantise, E2m1Table) {
  constexpr float kValues[] = {0.0f, 0.5f, 1.0f, 1.5f, 2.0f, 3.0f, 4.0f, 6.0f};
  for (std::uint8_t code = 0; code < 8; ++code) {
    EXPECT_EQ(FloatFromE2m1(code), kValues[code]);
    EXPECT_EQ(E2m1FromFloat(kValues[code]), code);
    EXPECT_EQ(E2m1FromFloat(-kValues[code]), code | 8);
  }
  constexpr float kTies[] = {0.25f, 0.75f, 1.25f, 1.75f, 2.5f, 3.5f, 5.0f};
  constexpr std::uint8_t kEven[] = {0, 2, 2, 4, 4, 6, 6};
  for (std::size_t i = 0; i < 7; ++i) {
    EXPECT_EQ(E2m1FromFloat(kTies[i]), kEven[i]) << kTies[i];
    EXPECT_EQ(E2m1FromFloat(std::nextafter(kTies[i], 0.0f)), i);
    EXPECT_EQ(E2m1FromFloat(std::nextafter(kTies[i], 9.0f)), i + 1);
  }
  EXPECT_EQ(E2m1FromFloat(-kInfinity), 15);
}

TEST(Quantise, E8m0IsTwoBelowTheMaximumsExponent) {
  EXPECT_EQ(E8m0FromMaximum(4.0f), 127);
  EXPECT_EQ(E8m0FromMaximum(7.99f), 127);
  EXPECT_EQ(E8m0FromMaximum(8.0f), 128);
  EXPECT_EQ(E8m0FromMaximum(0.0f), 0);
  EXPECT_EQ(E8m0FromMaximum(std::numeric_limits<float>::max()), 252);
  EXPECT_EQ(FloatFromE8m0(127), 1.0f);
  EXPECT_EQ(FloatFromE8m0(130), 8.0f);
  EXPECT_EQ(FloatFromE8m0(0), 0x1.0p-127f);
}

// 130 x 130 is four blocks, three of them partial, each with its own maximum.
TEST(Quantise, Fp8BlocksHaveTheirOwnScales) {
  constexpr std::size_t kSide = 130;
  std::vector<float> values(kSide * kSide, 0.0f);
  values[0] = -448.0f;
  values[1] = 1.0f;
  values[129] = 224.0f;             // Upper right.
  values[128] = 1.0f;               // Beside it: 2 in units of its block's scale.
  values[129 * kSide + 5] = 4.48f;  // Lower left; lower right stays zero.
  ByteVector codes(values.size());
  ByteVector scales(16);
  QuantiseFp8({values, kSide}, {codes, scales});
  EXPECT_EQ(LoadLittle<float>(scales.data()), 1.0f);
  EXPECT_EQ(LoadLittle<float>(scales.data() + 4), 0.5f);
  EXPECT_EQ(LoadLittle<float>(scales.data() + 8), 4.48f / 448.0f);
  EXPECT_EQ(LoadLittle<float>(scales.data() + 12), 1.0f);
  EXPECT_EQ(codes[0], std::byte{0xfe});
  EXPECT_EQ(codes[1], std::byte{0x38});
  EXPECT_EQ(codes[129], std::byte{0x7e});
  EXPECT_EQ(codes[128], std::byte{0x40});
  EXPECT_EQ(codes[2], std::byte{0});
}

TEST(Quantise, Nvfp4Block) {
  std::vector<float> values(32, 0.0f);
  values[0] = 6.0f;
  values[1] = -0.5f;
  values[2] = 2.5f;   // Tie to 2.
  values[16] = 3.0f;  // Scale 0.5: codes are of twice the values.
  values[17] = 1.0f;
  ByteVector codes(16);
  ByteVector scales(2);
  QuantiseNvfp4({values, 32}, 1.0f, {codes, scales});
  EXPECT_EQ(Bytes(scales), (std::vector<unsigned>{0x38, 0x30}));
  EXPECT_EQ(codes[0], std::byte{0x97});  // Low half: 7 (6.0). High half: 9 (-0.5).
  EXPECT_EQ(codes[1], std::byte{0x04});
  EXPECT_EQ(codes[8], std::byte{0x47});
  EXPECT_EQ(Nvfp4TensorScale(2688.0f), 1.0f);
  EXPECT_EQ(Nvfp4TensorScale(0.0f), 1.0f);
}

TEST(Quantise, Nvfp4ScaleIsNeverZero) {
  std::vector<float> values(16, 0.0f);
  ByteVector codes(8);
  ByteVector scales(1);
  QuantiseNvfp4({values, 16}, 1.0f, {codes, scales});
  EXPECT_EQ(scales[0], std::byte{1});
  EXPECT_EQ(Bytes(codes), std::vector<unsigned>(8, 0));
}

TEST(Quantise, Mxfp4Block) {
  std::vector<float> values(34, 0.0f);  // A whole block and a partial one.
  values[0] = 7.5f;                     // Scale 1; saturates at 6.
  values[1] = -3.0f;
  values[33] = 0.5f;  // Scale 1/8: code of 4.
  ByteVector codes(17);
  ByteVector scales(2);
  QuantiseMxfp4({values, 34}, {codes, scales});
  EXPECT_EQ(Bytes(scales), (std::vector<unsigned>{127, 124}));
  EXPECT_EQ(codes[0], std::byte{0xd7});
  EXPECT_EQ(codes[16], std::byte{0x60});
}

TEST(Quantise, Int4Group) {
  std::vector<float> values(130, 0.0f);
  values[0] = -7.0f;  // Scale 1.
  values[1] = 2.5f;   // Tie to 2.
  values[2] = 3.5f;   // Tie to 4.
  values[129] = 14.0f;
  values[128] = -3.0f;  // Scale 2: -1.5, tie to -2.
  ByteVector codes(65);
  ByteVector scales(4);
  QuantiseInt4({values, 130}, {codes, scales});
  EXPECT_EQ(LoadLittle<std::uint16_t>(scales.data()), 0x3f80);
  EXPECT_EQ(LoadLittle<std::uint16_t>(scales.data() + 2), 0x4000);
  EXPECT_EQ(codes[0], std::byte{0xa1});
  EXPECT_EQ(codes[1], std::byte{0x8c});
  EXPECT_EQ(codes[2], std::byte{0x88});
  EXPECT_EQ(codes[64], std::byte{0xf6});
}

}  // namespace
}  // namespace segue::workload
