// SPDX-License-Identifier: Apache-2.0
//
// Counts on input small enough to count by hand.
#include "workload/statistics.h"

#include <gtest/gtest.h>

namespace segue::workload {
namespace {

ByteVector Codes16(std::initializer_list<std::uint16_t> codes) {
  ByteVector bytes;
  for (const std::uint16_t code : codes) AppendLittle(bytes, code);
  return bytes;
}

ByteVector Codes8(std::initializer_list<int> codes) {
  ByteVector bytes;
  for (const int code : codes) bytes.push_back(static_cast<std::byte>(code));
  return bytes;
}

TEST(Statistics, CountsEveryKindOfChange) {
  const ByteVector before = Codes16({0x3f80, 0x3fff, 0x0000, 0x8001, 0x1234, 0x7fc1});
  // One up; carry over the byte; sign of zero; down by one to -0; none; another NaN payload.
  const ByteVector after = Codes16({0x3f81, 0x4000, 0x8000, 0x8000, 0x1234, 0x7fc4});
  ChangeCounter counter(Format::kBf16, before);
  StepCounts counts;
  counter.Count(before, after, {}, counts);
  EXPECT_EQ(counts.elements, 6u);
  EXPECT_EQ(counts.changed, 5u);
  EXPECT_EQ(counts.one_ulp, 3u);
  EXPECT_EQ(counts.multi_bit, 2u);
  EXPECT_EQ(counts.upper_half, 2u);
  EXPECT_EQ(counts.xor_bits[0], 4u);
  EXPECT_EQ(counts.xor_bits[2], 2u);
  EXPECT_EQ(counts.xor_bits[15], 1u);
  EXPECT_EQ(counts.gaps[0], 3u);  // Positions 0, 1, 2, 3: gaps of 1.
  EXPECT_EQ(counts.gaps[1], 1u);  // 3 to 5: a gap of 2.
  EXPECT_EQ(counts.from_base, 5u);
  EXPECT_EQ(counts.repeatable, 0u);
}

TEST(Statistics, RepeatsAreAgainstTheStepBeforeAndAllBefore) {
  const ByteVector base = Codes8({1, 2, 3, 4, 5, 6, 7, 8, 9});
  ByteVector one = base;
  one[0] = one[8] = std::byte{0};
  ByteVector two = one;
  two[0] = std::byte{1};  // Back to the base.
  two[3] = std::byte{0};
  ByteVector three = two;
  three[8] = std::byte{77};
  three[5] = std::byte{77};
  ChangeCounter counter(Format::kFp8, base);
  StepCounts counts[3];
  counter.Count(base, one, {}, counts[0]);
  counter.Count(one, two, {}, counts[1]);
  counter.Count(two, three, {}, counts[2]);
  EXPECT_EQ(counts[1].repeated, 1u);
  EXPECT_EQ(counts[1].repeatable, 2u);
  EXPECT_EQ(counts[1].from_base, 2u);
  EXPECT_EQ(counts[2].repeated, 0u);
  EXPECT_EQ(counts[2].seen, 1u);
  EXPECT_EQ(counts[2].from_base, 3u);
}

TEST(Statistics, FourBitCodesCountOneByOne) {
  const ByteVector before = Codes8({0x10, 0x87, 0x55});
  const ByteVector after = Codes8({0x21, 0x07, 0x55});
  ChangeCounter signs(Format::kNvfp4, before);
  StepCounts counts;
  signs.Count(before, after, {}, counts);
  EXPECT_EQ(counts.elements, 6u);
  EXPECT_EQ(counts.changed, 3u);
  EXPECT_EQ(counts.one_ulp, 2u);  // 1 to 2 and 0 to 1; -0 to 0 is none.
  EXPECT_EQ(counts.upper_half, 1u);
  ChangeCounter numbers(Format::kInt4, before);
  StepCounts plain;
  numbers.Count(before, Codes8({0x10, 0x77, 0x55}), {}, plain);
  EXPECT_EQ(plain.one_ulp, 1u);  // 8 to 7: neighbours where codes are plain numbers.
}

TEST(Statistics, MagnitudesOfChangedAndOfAll) {
  const ByteVector before = Codes16({0x3f80, 0xbf80, 0x4000, 0x0000});
  ByteVector after = before;
  after[0] = std::byte{0x81};
  const float values[] = {1.0f, -1.0f, 2.0f, 0.0f};
  ChangeCounter counter(Format::kBf16, before);
  StepCounts counts;
  counter.Count(before, after, values, counts);
  EXPECT_DOUBLE_EQ(Finish(counts).magnitude_ratio, 1.0);
}

TEST(Statistics, SumsAndShares) {
  StepCounts a;
  a.elements = 10;
  a.changed = 4;
  a.one_ulp = 3;
  a.xor_bits[2] = 1;
  a.gaps[3] = 2;
  a.scales = 5;
  a.scales_changed = 1;
  StepCounts b = a;
  b += a;
  const GeneratedStep step = Finish(b);
  EXPECT_EQ(step.elements, 20u);
  EXPECT_EQ(step.changed, 8u);
  EXPECT_DOUBLE_EQ(step.one_ulp_share, 0.75);
  EXPECT_DOUBLE_EQ(step.xor_bit_share[2], 0.25);
  EXPECT_DOUBLE_EQ(step.gap_share[3], 1.0);
  EXPECT_DOUBLE_EQ(step.scales_changed_share, 0.2);
  EXPECT_DOUBLE_EQ(step.repeat_share, 0.0);
  EXPECT_DOUBLE_EQ(Finish(StepCounts()).one_ulp_share, 0.0);
}

TEST(Statistics, CountDifferentAtEveryWidthAndTail) {
  for (std::size_t size = 1; size < 40; ++size) {
    ByteVector before(size);
    ByteVector after = before;
    after[size - 1] = std::byte{0x11};
    EXPECT_EQ(CountDifferent(4, before, after), 2u);
    EXPECT_EQ(CountDifferent(8, before, after), 1u);
    if (size % 2 == 0) {
      EXPECT_EQ(CountDifferent(16, before, after), 1u);
    }
    if (size % 4 == 0) {
      EXPECT_EQ(CountDifferent(32, before, after), 1u);
    }
  }
  EXPECT_EQ(CountDifferent(8, {}, {}), 0u);
}

}  // namespace
}  // namespace segue::workload
