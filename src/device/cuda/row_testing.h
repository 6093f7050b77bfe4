// SPDX-License-Identifier: Apache-2.0
//
// Rows as kernels take them, in memory of the host, of what the host's own kernels take.
#pragma once

#include <algorithm>
#include <iterator>
#include <vector>

#include "base/digest.h"
#include "base/random.h"
#include "codec/sparse.h"
#include "device/cuda/kernel_rows.h"
#include "device/host/kernels.h"

namespace segue::cuda {

inline constexpr host::ChunkKey kKey = {3, 256};

inline ChunkPlaceRow Place(std::byte* live, std::uint64_t size, unsigned width) {
  ChunkPlaceRow place = {};
  place.live = live;
  place.first_element = kKey.first_block * kDigestBlockSize / width;
  place.size = size;
  for (unsigned lane = 0; lane < 2; ++lane) place.tensor_key[lane] = Mix64(kKey.tensor << 1 | lane);
  place.first_block = kKey.first_block;
  place.width = width;
  return place;
}

// The streams in words of their own, as on a device.
struct SparseInput {
  std::vector<std::uint64_t> low;
  std::vector<std::uint32_t> high;
  SparseRow row = {};

  SparseInput(const host::SparseChunk& chunk, std::byte* live) {
    const SparseShape shape = {chunk.change_count, chunk.element_count, chunk.low_bits};
    low.resize(shape.LowSize() / 8);
    std::copy_n(chunk.low, shape.LowSize(), reinterpret_cast<std::byte*>(low.data()));
    high.resize(shape.HighSize() / 4);
    std::copy_n(chunk.high, shape.HighSize(), reinterpret_cast<std::byte*>(high.data()));
    row.place = Place(live, std::uint64_t{chunk.element_count} * chunk.width, chunk.width);
    row.low = low.data();
    row.high = high.data();
    std::copy(std::begin(chunk.plane), std::end(chunk.plane), row.plane);
    row.constants = chunk.constants;
    row.change_count = chunk.change_count;
    row.element_count = chunk.element_count;
    row.low_bits = chunk.low_bits;
  }
};

}  // namespace segue::cuda
