// SPDX-License-Identifier: Apache-2.0
//
// Dtypes: one table, indexed by code. It repeats docs/format.md, "Dtypes"; a row there is a row
// here.
#include "checkpoint/dtype.h"

#include <array>

#include "base/check.h"

namespace segue {
namespace {

struct DtypeRow {
  std::string_view name;
  unsigned bits;
  unsigned width;
};

// Code 0 is no dtype, so that a zeroed byte is never taken for one.
constexpr std::array<DtypeRow, 23> kDtypes = {{
    {"", 0, 0},        {"BOOL", 8, 1},    {"F4", 4, 1},          {"F6_E2M3", 6, 1},
    {"F6_E3M2", 6, 1}, {"U8", 8, 1},      {"I8", 8, 1},          {"F8_E5M2", 8, 1},
    {"F8_E4M3", 8, 1}, {"F8_E8M0", 8, 1}, {"F8_E4M3FNUZ", 8, 1}, {"F8_E5M2FNUZ", 8, 1},
    {"I16", 16, 2},    {"U16", 16, 2},    {"F16", 16, 2},        {"BF16", 16, 2},
    {"I32", 32, 4},    {"U32", 32, 4},    {"F32", 32, 4},        {"C64", 64, 4},
    {"F64", 64, 8},    {"I64", 64, 8},    {"U64", 64, 8},
}};

static_assert(static_cast<std::size_t>(Dtype::kU64) + 1 == kDtypes.size());

const DtypeRow& Row(Dtype dtype) {
  const auto code = static_cast<std::size_t>(dtype);
  SEGUE_CHECK(code > 0 && code < kDtypes.size());
  return kDtypes[code];
}

}  // namespace

std::optional<Dtype> DtypeFromCode(std::uint8_t code) {
  if (code == 0 || code >= kDtypes.size()) return std::nullopt;
  return static_cast<Dtype>(code);
}

std::optional<Dtype> DtypeFromName(std::string_view name) {
  for (std::size_t code = 1; code < kDtypes.size(); ++code) {
    if (kDtypes[code].name == name) return static_cast<Dtype>(code);
  }
  return std::nullopt;
}

std::string_view DtypeName(Dtype dtype) { return Row(dtype).name; }

unsigned DtypeBits(Dtype dtype) { return Row(dtype).bits; }

unsigned DtypeWidth(Dtype dtype) { return Row(dtype).width; }

}  // namespace segue
