// SPDX-License-Identifier: Apache-2.0
//
// Changes are few, so the loops below compare eight bytes at a time and look closer only where they
// differ.
#include "workload/statistics.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdlib>

#include "base/check.h"

namespace segue::workload {
namespace {

constexpr float kMagnitudeUnit = 0x1.0p24f;

// Element `index` of a word of elements.
template <unsigned kBits>
std::uint32_t Element(std::uint64_t word, unsigned index) {
  return static_cast<std::uint32_t>(word >> (index * kBits) & ((1ull << kBits) - 1));
}

std::uint64_t LoadUpTo8(ByteSpan bytes, std::size_t offset) {
  std::uint64_t word = 0;
  std::memcpy(&word, bytes.data() + offset, std::min<std::size_t>(8, bytes.size() - offset));
  return word;
}

// Calls visit(position, before, after) for every element that differs, in ascending order.
template <unsigned kBits, typename Visit>
void ForEachDifference(ByteSpan before, ByteSpan after, Visit visit) {
  SEGUE_CHECK(before.size() == after.size() && before.size() % ((kBits + 7) / 8) == 0);
  for (std::size_t offset = 0; offset < before.size(); offset += 8) {
    const std::uint64_t a = LoadUpTo8(before, offset);
    const std::uint64_t b = LoadUpTo8(after, offset);
    if (a == b) continue;
    for (unsigned i = 0; i < 64 / kBits; ++i) {
      const std::uint32_t x = Element<kBits>(a, i);
      const std::uint32_t y = Element<kBits>(b, i);
      if (x != y) visit(offset * 8 / kBits + i, x, y);
    }
  }
}

template <typename Visit>
void ForEachDifference(unsigned bits, ByteSpan before, ByteSpan after, Visit visit) {
  switch (bits) {
    case 4: return ForEachDifference<4>(before, after, visit);
    case 8: return ForEachDifference<8>(before, after, visit);
    case 16: return ForEachDifference<16>(before, after, visit);
    default: SEGUE_CHECK(bits == 32); return ForEachDifference<32>(before, after, visit);
  }
}

// Place of a code in the order of values; neighbours are 1 apart.
int Order(const FormatInfo& info, std::uint32_t code) {
  const std::uint32_t sign = 1u << (info.bits - 1);
  if (!info.sign_magnitude || (code & sign) == 0) return static_cast<int>(code);
  return -static_cast<int>(code & (sign - 1));
}

double Share(std::uint64_t part, std::uint64_t whole) {
  return whole == 0 ? 0.0 : static_cast<double>(part) / static_cast<double>(whole);
}

// abs(w) in units; weights are finite, and far below the limit.
std::int32_t Magnitude(float value) {
  return static_cast<std::int32_t>(std::min(std::fabs(value), 100.0f) * kMagnitudeUnit);
}

}  // namespace

StepCounts& StepCounts::operator+=(const StepCounts& other) {
  elements += other.elements;
  changed += other.changed;
  one_ulp += other.one_ulp;
  multi_bit += other.multi_bit;
  upper_half += other.upper_half;
  repeated += other.repeated;
  seen += other.seen;
  repeatable += other.repeatable;
  from_base += other.from_base;
  for (std::size_t i = 0; i < xor_bits.size(); ++i) xor_bits[i] += other.xor_bits[i];
  for (std::size_t i = 0; i < gaps.size(); ++i) gaps[i] += other.gaps[i];
  magnitudes += other.magnitudes;
  magnitudes_changed += other.magnitudes_changed;
  magnitude_count += other.magnitude_count;
  magnitude_count_changed += other.magnitude_count_changed;
  scales += other.scales;
  scales_changed += other.scales_changed;
  rest += other.rest;
  rest_changed += other.rest_changed;
  return *this;
}

GeneratedStep Finish(const StepCounts& counts) {
  GeneratedStep step;
  step.elements = counts.elements;
  step.changed = counts.changed;
  step.one_ulp_share = Share(counts.one_ulp, counts.changed);
  step.multi_bit_share = Share(counts.multi_bit, counts.changed);
  step.upper_half_share = Share(counts.upper_half, counts.changed);
  step.repeat_share = Share(counts.repeated, counts.repeatable);
  step.seen_share = Share(counts.seen, counts.repeatable);
  step.from_base_share = Share(counts.from_base, counts.elements);
  for (std::size_t i = 0; i < counts.xor_bits.size(); ++i) {
    step.xor_bit_share[i] = Share(counts.xor_bits[i], counts.changed);
  }
  std::uint64_t gaps = 0;
  for (const std::uint64_t count : counts.gaps) gaps += count;
  for (std::size_t i = 0; i < counts.gaps.size(); ++i) {
    step.gap_share[i] = Share(counts.gaps[i], gaps);
  }
  const double mean = Share(counts.magnitudes, counts.magnitude_count);
  const double mean_changed = Share(counts.magnitudes_changed, counts.magnitude_count_changed);
  step.magnitude_ratio = mean == 0 ? 0 : mean_changed / mean;
  step.scales = counts.scales;
  step.scales_changed_share = Share(counts.scales_changed, counts.scales);
  step.rest_elements = counts.rest;
  step.rest_changed = counts.rest_changed;
  return step;
}

std::uint64_t CountDifferent(unsigned bits, ByteSpan before, ByteSpan after) {
  std::uint64_t count = 0;
  ForEachDifference(bits, before, after,
                    [&](std::size_t, std::uint32_t, std::uint32_t) { ++count; });
  return count;
}

ChangeCounter::ChangeCounter(Format format, ByteSpan base)
    : format_(format),
      base_(base.begin(), base.end()),
      seen_(base.size() * 8 / Info(format).bits, false) {}

void ChangeCounter::Count(ByteSpan before, ByteSpan after, std::span<const float> values,
                          StepCounts& counts) {
  const unsigned bits = Info(format_).bits;
  positions_.clear();
  ForEachDifference(bits, before, after,
                    [&](std::size_t position, std::uint32_t old_code, std::uint32_t new_code) {
                      CountOne(static_cast<std::uint32_t>(position), old_code, new_code, counts);
                    });
  counts.elements += seen_.size();
  counts.changed += positions_.size();
  counts.from_base += CountDifferent(bits, base_, after);
  SEGUE_CHECK(values.empty() || values.size() == seen_.size());
  if (!values.empty()) {
    std::int64_t sum = 0;
    for (const float value : values) sum += Magnitude(value);
    counts.magnitudes += static_cast<std::uint64_t>(sum);
    for (const std::uint32_t position : positions_) {
      counts.magnitudes_changed += static_cast<std::uint64_t>(Magnitude(values[position]));
    }
    counts.magnitude_count += values.size();
    counts.magnitude_count_changed += positions_.size();
  }
  CountRepeats(counts);
}

void ChangeCounter::CountOne(std::uint32_t position, std::uint32_t before, std::uint32_t after,
                             StepCounts& counts) {
  const FormatInfo& info = Info(format_);
  const std::uint32_t difference = before ^ after;
  counts.one_ulp += std::abs(Order(info, before) - Order(info, after)) == 1;
  counts.multi_bit += !std::has_single_bit(difference);
  counts.upper_half += difference >> (info.bits / 2) != 0;
  for (unsigned bit = 0; bit < info.bits; ++bit) counts.xor_bits[bit] += difference >> bit & 1;
  if (!positions_.empty()) {
    const auto bucket = static_cast<std::size_t>(std::bit_width(position - positions_.back()) - 1);
    ++counts.gaps[std::min(bucket, kGapBuckets - 1)];
  }
  positions_.push_back(position);
}

void ChangeCounter::CountRepeats(StepCounts& counts) {
  if (has_step_before_) {
    counts.repeatable += positions_.size();
    std::size_t other = 0;
    for (const std::uint32_t position : positions_) {
      while (other < positions_before_.size() && positions_before_[other] < position) ++other;
      counts.repeated += other < positions_before_.size() && positions_before_[other] == position;
      counts.seen += seen_[position];
    }
  }
  for (const std::uint32_t position : positions_) seen_[position] = true;
  positions_before_.swap(positions_);
  has_step_before_ = true;
}

}  // namespace segue::workload
