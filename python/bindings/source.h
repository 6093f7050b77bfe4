// SPDX-License-Identifier: Apache-2.0
//
// Source: a tensor as python/segue/tensors.py describes it: (name, dtype, shape, address, bytes).
// The address is None for a tensor that another owner has. Who passes it keeps the memory alive
// until the call returns.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "segue/publisher.h"

namespace segue::python {

using Source = std::tuple<std::string, std::string, std::vector<std::uint64_t>,
                          std::optional<std::uint64_t>, std::uint64_t>;

// What stands for the address of a tensor without bytes.
inline std::byte no_bytes{};

inline std::byte* AddressOf(std::uint64_t address, std::uint64_t size) {
  // NOLINTNEXTLINE(performance-no-int-to-ptr): Python has addresses as numbers.
  return size == 0 ? &no_bytes : reinterpret_cast<std::byte*>(address);
}

inline SourceTensor MakeSource(Source&& source) {
  auto& [name, dtype, shape, address, size] = source;
  const std::byte* const data = address ? AddressOf(*address, size) : nullptr;
  return {std::move(name), std::move(dtype), std::move(shape), data, size};
}

inline std::vector<SourceTensor> MakeSources(std::vector<Source>&& sources) {
  std::vector<SourceTensor> made;
  made.reserve(sources.size());
  for (Source& source : sources) made.push_back(MakeSource(std::move(source)));
  return made;
}

}  // namespace segue::python
