// SPDX-License-Identifier: Apache-2.0
//
// Patterns and kinds are drawn by hash; the tables that map a draw to a kind are the switches
// below.
#include "workload/edits.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/check.h"
#include "workload/noise.h"
#include "workload/quantise.h"

namespace segue::workload {
namespace {

constexpr std::uint16_t kSign = 0x8000;
constexpr std::uint16_t kInfinity = 0x7f80;
constexpr std::uint16_t kPayload = 0x007f;
constexpr std::uint16_t kLargest = 0x7f7f;
constexpr std::uint16_t kSmallestNormal = 0x0080;

std::uint16_t Bits16(std::uint64_t bits) { return static_cast<std::uint16_t>(bits); }

std::uint16_t Payload(std::uint64_t bits) {
  return static_cast<std::uint16_t>(1 + bits % kPayload);  // 1 to 127.
}

std::uint16_t SpecialValue(std::uint64_t bits) {
  const std::uint16_t sign = Bits16(bits >> 60 << 15) & kSign;
  switch (bits % 16) {
    case 0:
    case 1: return sign | kInfinity | Payload(bits >> 8);
    case 2: return sign | kInfinity;
    case 3:
    case 4: return sign;
    case 5: return sign | Payload(bits >> 8);  // Denormal.
    case 6: return sign | kLargest;
    case 7: return sign | kSmallestNormal;
    default:
      return Bf16FromFloat(0.02f *
                           NormalTable::Get().FromBits(static_cast<std::uint32_t>(bits >> 8)));
  }
}

std::uint16_t EditedValue(std::uint16_t value, std::uint64_t bits) {
  const std::uint16_t magnitude = value & static_cast<std::uint16_t>(~kSign);
  // 1 to 126 more, modulo 127: never the same payload, never none.
  const std::uint64_t other = (magnitude & kPayload) - 1u + 1 + (bits >> 8) % 126;
  const std::uint16_t payload = static_cast<std::uint16_t>(1 + other % kPayload);
  const auto upper = static_cast<std::uint16_t>(value & ~kPayload);
  if (magnitude > kInfinity) {
    return bits % 4 == 0 ? Bf16FromFloat(0.02f) : static_cast<std::uint16_t>(upper | payload);
  }
  if (magnitude == kInfinity && bits % 2 == 0) return value | Payload(bits >> 8);
  if (magnitude == kInfinity || magnitude == 0) return value ^ kSign;
  if (magnitude < kSmallestNormal) return static_cast<std::uint16_t>(upper | payload);
  switch (bits % 4) {
    case 0: return value ^ kSign;
    case 1: return (value & kSign) | kInfinity | Payload(bits >> 8);
    case 2: return value & kSign;
    default: return value ^ Payload(bits >> 8);
  }
}

// Whether the block's pattern touches the element.
bool Touches(std::uint64_t pattern, std::size_t index, std::size_t count, std::uint64_t bits) {
  switch (pattern) {
    case 0: return index == 0 || index + 1 == count;
    case 1: return index % 2 == 0;
    case 2: return true;
    case 3:
    case 4: return bits >> 40 & 1;
    case 5:
    case 6:
    case 7: return (bits >> 40) % 128 == 0;
    default: return false;
  }
}

}  // namespace

void FlipProxyFrame(std::uint64_t key, std::uint64_t frame, double rate, std::size_t element_size,
                    MutableByteSpan bytes) {
  const std::size_t elements = bytes.size() / element_size;
  if (elements == 0) return;
  const double wanted = std::max(1.0, std::round(rate * static_cast<double>(elements)));
  const auto flips = std::min(elements, static_cast<std::size_t>(wanted));
  Random random(SubKey(key, frame));
  std::vector<bool> flipped(elements, false);
  for (std::size_t flip = 0; flip < flips;) {
    const std::size_t element = random.Below(elements);
    if (flipped[element]) continue;
    flipped[element] = true;
    bytes[element * element_size] ^= std::byte{1};
    ++flip;
  }
}

void FillAdversarialBlock(std::uint64_t key, std::uint64_t block, MutableByteSpan bytes) {
  const std::uint64_t block_key = SubKey(key, block);
  for (std::size_t i = 0; i < bytes.size() / 2; ++i) {
    StoreLittle(bytes.data() + 2 * i, SpecialValue(HashAt(block_key, i)));
  }
}

void EditAdversarialBlock(std::uint64_t key, std::uint64_t block, MutableByteSpan bytes) {
  const std::uint64_t block_key = SubKey(key, block);
  const std::uint64_t pattern = block_key >> 32 & 15;
  const std::size_t count = bytes.size() / 2;
  for (std::size_t i = 0; i < count; ++i) {
    const std::uint64_t bits = HashAt(block_key, i);
    if (!Touches(pattern, i, count, bits)) continue;
    std::byte* const element = bytes.data() + 2 * i;
    StoreLittle(element, EditedValue(LoadLittle<std::uint16_t>(element), bits));
  }
}

}  // namespace segue::workload
