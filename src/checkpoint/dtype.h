// SPDX-License-Identifier: Apache-2.0
//
// Dtypes of safetensors: codes, names, sizes. docs/format.md, "Dtypes", is normative. Values are
// opaque bytes everywhere in Segue; a dtype gives a size in bits and the width of an element.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace segue {

enum class Dtype : std::uint8_t {
  kBool = 1,
  kF4,
  kF6E2M3,
  kF6E3M2,
  kU8,
  kI8,
  kF8E5M2,
  kF8E4M3,
  kF8E8M0,
  kF8E4M3Fnuz,
  kF8E5M2Fnuz,
  kI16,
  kU16,
  kF16,
  kBF16,
  kI32,
  kU32,
  kF32,
  kC64,
  kF64,
  kI64,
  kU64,
};

std::optional<Dtype> DtypeFromCode(std::uint8_t code);
std::optional<Dtype> DtypeFromName(std::string_view name);
std::string_view DtypeName(Dtype dtype);
unsigned DtypeBits(Dtype dtype);
// Bytes of one element in the sense of docs/format.md: 1, 2, 4 or 8.
unsigned DtypeWidth(Dtype dtype);

}  // namespace segue
