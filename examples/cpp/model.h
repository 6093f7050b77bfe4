// SPDX-License-Identifier: Apache-2.0
//
// The model that trainer.cc and sampler.cc both start from: three BF16 tensors with fixed values,
// which stand for the checkpoint that both would load.
#pragma once

#include <charconv>
#include <cstddef>
#include <cstdint>
#include <map>
#include <numeric>
#include <string>
#include <string_view>
#include <vector>

struct Tensor {
  std::vector<std::uint64_t> shape;
  std::vector<std::uint16_t> values;  // BF16, as bits.

  std::byte* bytes() { return reinterpret_cast<std::byte*>(values.data()); }
  std::uint64_t size() const { return values.size() * sizeof(std::uint16_t); }
};

using Model = std::map<std::string, Tensor>;

inline Model InitialModel() {
  Model model;
  for (const std::string name : {"embed.weight", "layer.0.weight", "layer.1.weight"}) {
    Tensor& tensor = model[name];
    tensor.shape = {512, 1024};
    tensor.values.resize(512 * 1024);
    std::iota(tensor.values.begin(), tensor.values.end(), std::uint16_t{0x3c00});
  }
  return model;
}

// What a forward step computes here: depends on every value.
inline std::uint64_t Forward(const std::uint16_t* values, std::size_t count) {
  return std::accumulate(values, values + count, std::uint64_t{0},
                         [](std::uint64_t sum, std::uint16_t value) { return sum * 31 + value; });
}

inline std::uint64_t Forward(const Model& model) {
  std::uint64_t sum = 0;
  for (const auto& [name, tensor] : model)
    sum ^= Forward(tensor.values.data(), tensor.values.size());
  return sum;
}

// An argument of the command line; 0 for what is no number.
inline std::uint64_t Number(std::string_view text) {
  std::uint64_t value = 0;
  std::from_chars(text.data(), text.data() + text.size(), value);
  return value;
}
