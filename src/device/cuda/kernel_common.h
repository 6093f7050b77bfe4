// SPDX-License-Identifier: Apache-2.0
//
// What the kernel cores share: elements in memory, places under a view, digest keys. The scalar
// kernels of device/host are the specification.
#pragma once

#include "base/digest.h"
#include "base/random.h"
#include "device/cuda/kernel_rows.h"
#include "device/cuda/warp.h"

namespace segue::cuda {

inline constexpr std::uint64_t kNotHeld = ~std::uint64_t{0};

// Word keys of both lanes; on a device in shared memory, from multiples of 16 on.
struct WordKeys {
  const std::uint32_t* lane[2];
};

// An element as a little-endian number. Tensors of a checkpoint may begin at any address (case A6).
template <unsigned W>
SEGUE_KERNEL std::uint64_t LoadElement(const std::byte* source) {
  if (reinterpret_cast<std::uintptr_t>(source) % W == 0) {
    if constexpr (W == 1) return *reinterpret_cast<const std::uint8_t*>(source);
    if constexpr (W == 2) return *reinterpret_cast<const std::uint16_t*>(source);
    if constexpr (W == 4) return *reinterpret_cast<const std::uint32_t*>(source);
    if constexpr (W == 8) return *reinterpret_cast<const std::uint64_t*>(source);
  }
  std::uint64_t value = 0;
  for (unsigned i = 0; i < W; ++i) {
    value |= static_cast<std::uint64_t>(reinterpret_cast<const std::uint8_t*>(source)[i]) << 8 * i;
  }
  return value;
}

template <unsigned W>
SEGUE_KERNEL void StoreElement(std::byte* target, std::uint64_t value) {
  if (reinterpret_cast<std::uintptr_t>(target) % W == 0) {
    if constexpr (W == 1) *reinterpret_cast<std::uint8_t*>(target) = value & 0xff;
    if constexpr (W == 2) *reinterpret_cast<std::uint16_t*>(target) = value & 0xffff;
    if constexpr (W == 4) *reinterpret_cast<std::uint32_t*>(target) = value & 0xffffffff;
    if constexpr (W == 8) *reinterpret_cast<std::uint64_t*>(target) = value;
    return;
  }
  for (unsigned i = 0; i < W; ++i) {
    reinterpret_cast<std::uint8_t*>(target)[i] = static_cast<std::uint8_t>(value >> 8 * i);
  }
}

// The byte of an element of the tensor in the buffer, or kNotHeld.
SEGUE_KERNEL std::uint64_t Locate(const KernelView& view, std::uint64_t element) {
  if (element < view.source_offset) return kNotHeld;
  std::uint64_t rest = element - view.source_offset;
  std::uint64_t target = view.target_offset;
  for (std::uint32_t k = 0; k < view.axis_count; ++k) {
    const KernelView::Axis& axis = view.axes[k];
    const std::uint64_t step = axis.shift >= 0 ? rest >> axis.shift : rest / axis.source_stride;
    if (step >= axis.count) return kNotHeld;
    rest -= step * axis.source_stride;
    target += step * axis.target_stride;
  }
  return rest == 0 ? target : kNotHeld;
}

// The same for an element of a chunk.
template <unsigned W>
SEGUE_KERNEL std::uint64_t LocateInChunk(const ChunkPlaceRow& place, std::uint32_t position) {
  if (place.view == nullptr) return std::uint64_t{position} * W;
  return Locate(*place.view, place.first_element + position);
}

// Words of one block times their keys; times the block's key they are what the words add to a
// digest.
struct WordSums {
  std::uint64_t lane[2] = {0, 0};

  SEGUE_KERNEL void Add(std::uint64_t word, unsigned index, const WordKeys& keys) {
    for (unsigned k = 0; k < 2; ++k) lane[k] += word * keys.lane[k][index];
  }
};

SEGUE_KERNEL void MakeBlockKey(const ChunkPlaceRow& place, std::uint64_t block,
                               std::uint64_t key[2]) {
  for (unsigned lane = 0; lane < 2; ++lane) {
    key[lane] = Mix64(place.tensor_key[lane] + place.first_block + block) | 1;
  }
}

// Of the element at byte `offset` of its chunk, all other bytes counting as zero.
template <unsigned W>
SEGUE_KERNEL WordSums SumElement(std::uint64_t value, std::uint64_t offset, const WordKeys& keys) {
  const auto word = static_cast<unsigned>(offset % kDigestBlockSize / 4);
  WordSums sums;
  if constexpr (W == 8) {
    sums.Add(value & 0xffffffff, word, keys);
    sums.Add(value >> 32, word + 1, keys);
  } else {
    sums.Add(value << 8 * (offset & 3), word, keys);
  }
  return sums;
}

}  // namespace segue::cuda
