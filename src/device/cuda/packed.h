// SPDX-License-Identifier: Apache-2.0
//
// Packed: arrays of plain values within buffers of bytes, which need not be aligned for them.
#pragma once

#include <cstddef>
#include <cstring>

namespace segue::cuda {

template <typename T>
T ReadAt(const std::byte* place, std::size_t index) {
  T value;
  std::memcpy(&value, place + index * sizeof(T), sizeof(T));
  return value;
}

template <typename T>
void WriteAt(std::byte* place, std::size_t index, const T& value) {
  std::memcpy(place + index * sizeof(T), &value, sizeof(T));
}

}  // namespace segue::cuda
