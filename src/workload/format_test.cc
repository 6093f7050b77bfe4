// SPDX-License-Identifier: Apache-2.0
//
// Sizes of every format, and that each reaches its quantiser.
#include "workload/format.h"

#include <gtest/gtest.h>

namespace segue::workload {
namespace {

constexpr Format kAll[] = {Format::kBf16,  Format::kFp16,  Format::kFp8,
                           Format::kNvfp4, Format::kMxfp4, Format::kInt4};

TEST(Format, Sizes) {
  EXPECT_EQ(CodesSize(Format::kBf16, 3, 10), 60u);
  EXPECT_EQ(ScalesSize(Format::kBf16, 3, 10), 0u);
  EXPECT_EQ(CodesSize(Format::kFp8, 129, 130), 129u * 130);
  EXPECT_EQ(ScalesSize(Format::kFp8, 129, 130), 2u * 2 * 4);
  EXPECT_EQ(CodesSize(Format::kNvfp4, 2, 64), 64u);
  EXPECT_EQ(ScalesSize(Format::kNvfp4, 2, 64), 8u);
  EXPECT_EQ(ScalesSize(Format::kMxfp4, 2, 64), 4u);
  EXPECT_EQ(ScalesSize(Format::kInt4, 2, 130), 8u);
}

// Goal: no format falls through to another's code. Method: one row of ones with a known encoding.
TEST(Format, EncodesOnesInEveryFormat) {
  constexpr std::size_t kColumns = 128;
  const std::vector<float> ones(kColumns, 1.0f);
  constexpr unsigned kFirstByte[] = {0x80, 0x00, 0x7e, 0x77, 0x66, 0xff};
  Encoder encoder;
  for (const Format format : kAll) {
    ByteVector codes(CodesSize(format, 1, kColumns));
    ByteVector scales(ScalesSize(format, 1, kColumns));
    EncodeOptions options{.format = format, .tensor_scale = Nvfp4TensorScale(1.0f)};
    encoder.Encode(options, {ones, kColumns}, {codes, scales});
    const auto index = static_cast<std::size_t>(format);
    EXPECT_EQ(std::to_integer<unsigned>(codes[0]), kFirstByte[index]) << Info(format).name;
  }
}

TEST(Format, QuantisesTheCastOrTheMaster) {
  // The cast takes 1.00390625 (a tie) to 1.0; the scale shows which of the two was quantised.
  const std::vector<float> values(128, 1.00390625f);
  ByteVector codes(128);
  ByteVector scales(4);
  Encoder encoder;
  encoder.Encode({.format = Format::kFp8}, {values, 128}, {codes, scales});
  EXPECT_EQ(LoadLittle<float>(scales.data()), 1.0f / 448);
  encoder.Encode({.format = Format::kFp8, .from = QuantiseFrom::kMaster}, {values, 128},
                 {codes, scales});
  EXPECT_EQ(LoadLittle<float>(scales.data()), 1.00390625f / 448);
}

}  // namespace
}  // namespace segue::workload
