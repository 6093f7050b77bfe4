// SPDX-License-Identifier: Apache-2.0
//
// Edits: the presets that change stored bytes directly, because what they test is not how training
// moves weights: the reference system's proxy, a single bit, and special values in odd patterns.
//
// All are pure functions of a key and a block's number, so blocks may be done in any order.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/bytes.h"

namespace segue::workload {

// The proxy's frame, and the block of the adversarial set.
inline constexpr std::size_t kProxyFrameSize = 1u << 20;
inline constexpr std::size_t kAdversarialBlockSize = 8192;

// In frame number `frame` of a tensor: max(1, round(rate * elements)) distinct elements of
// `element_size` bytes, drawn at random, get the lowest bit of their first byte flipped.
void FlipProxyFrame(std::uint64_t key, std::uint64_t frame, double rate, std::size_t element_size,
                    MutableByteSpan bytes);

// Fills one block with BF16 values of which half are special: NaN with any payload, infinities,
// zeros of both signs, denormals, the largest and the smallest normal.
void FillAdversarialBlock(std::uint64_t key, std::uint64_t block, MutableByteSpan bytes);

// Changes one block of BF16 values in a pattern that its number decides (nothing, the first and the
// last element, few, every other, all), each by an edit that suits its kind: another payload,
// another sign, the next denormal, NaN out of a number and the reverse.
void EditAdversarialBlock(std::uint64_t key, std::uint64_t block, MutableByteSpan bytes);

}  // namespace segue::workload
