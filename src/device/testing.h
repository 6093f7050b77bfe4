// SPDX-License-Identifier: Apache-2.0
//
// What the tests of devices share: sparse rows that are made from positions and masks, and say what
// they mean.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "base/bytes.h"
#include "base/random.h"
#include "codec/sparse.h"
#include "device/host/kernels.h"

namespace segue::host {

// A row with its streams, and what it means.
struct Row {
  std::vector<std::uint32_t> positions;
  ByteVector values;  // Masks, width bytes each.
  ByteVector low;
  ByteVector high;
  std::vector<ByteVector> planes;
  SparseChunk chunk;

  // `low_bits`: as stored; the positions may break the rules of the form.
  void Encode(std::uint32_t element_count, unsigned width, unsigned low_bits) {
    const SparseShape shape = {static_cast<std::uint32_t>(positions.size()), element_count,
                               low_bits};
    low.assign(shape.LowSize() + kStreamSlack, std::byte{0});
    high.assign(shape.HighSize(), std::byte{0});
    EncodePositions(positions, shape, MutableByteSpan(low).first(shape.LowSize()), high);
    chunk = {low.data(), high.data(), {}, 0, shape.change_count, element_count, low_bits, width};
    planes.assign(width, {});
    for (unsigned p = 0; p < width; ++p) SetPlane(p, width);
  }

  void SetPlane(unsigned p, unsigned width) {
    ByteVector& plane = planes[p];
    for (std::size_t i = p; i < values.size(); i += width) plane.push_back(values[i]);
    if (std::all_of(plane.begin(), plane.end(), [&](std::byte b) { return b == plane[0]; })) {
      chunk.constants |= std::to_integer<std::uint64_t>(plane[0]) << (8 * p);
    } else {
      chunk.plane[p] = plane.data();
    }
  }
};

// About `share` of the elements, at least one; planes of `constant_planes` hold one value.
inline Row RandomRow(Random& random, std::uint32_t element_count, unsigned width, double share,
                     unsigned constant_planes) {
  Row row;
  const std::uint64_t always = random.Below(element_count);
  for (std::uint32_t i = 0; i < element_count; ++i) {
    if (i == always || random.Uniform() < share) row.positions.push_back(i);
  }
  for (std::size_t i = 0; i < row.positions.size(); ++i) {
    for (unsigned p = 0; p < width; ++p) {
      const bool constant = (constant_planes >> p & 1) != 0;
      row.values.push_back(static_cast<std::byte>(constant ? 0x5a : 1 + random.Below(255)));
    }
  }
  const auto count = static_cast<std::uint32_t>(row.positions.size());
  row.Encode(element_count, width, ChooseLowBits(count, element_count));
  return row;
}

inline ByteVector RandomBytes(Random& random, std::size_t size) {
  ByteVector bytes(size);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random.Next());
  return bytes;
}

}  // namespace segue::host
