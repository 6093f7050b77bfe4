// SPDX-License-Identifier: Apache-2.0
//
// The table of formats and the dispatch of format.h.
#include "workload/format.h"

#include <array>

#include "base/bytes.h"
#include "base/check.h"

namespace segue::workload {
namespace {

// In the order of the enumeration. Names of scale tensors as Hugging Face checkpoints have them.
constexpr std::array<FormatInfo, 6> kFormats = {{
    {"bf16", 16, true, Dtype::kBF16, 0, 0, Dtype::kU8, "", ""},
    {"fp16", 16, true, Dtype::kF16, 0, 0, Dtype::kU8, "", ""},
    {"fp8", 8, true, Dtype::kF8E4M3, kFp8Block, kFp8Block, Dtype::kF32, "_scale_inv", ""},
    {"nvfp4", 4, true, Dtype::kU8, 1, kNvfp4Block, Dtype::kF8E4M3, "_scale", "_scale_2"},
    {"mxfp4", 4, true, Dtype::kU8, 1, kMxfp4Block, Dtype::kF8E8M0, "_scale", ""},
    {"int4", 4, false, Dtype::kU8, 1, kInt4Group, Dtype::kBF16, "_scale", ""},
}};

template <std::uint16_t (*kCast)(float)>
void StoreCast(std::span<const float> values, MutableByteSpan codes) {
  SEGUE_CHECK(codes.size() == 2 * values.size());
  for (std::size_t i = 0; i < values.size(); ++i) {
    StoreLittle(codes.data() + 2 * i, kCast(values[i]));
  }
}

}  // namespace

const FormatInfo& Info(Format format) { return kFormats[static_cast<std::size_t>(format)]; }

std::size_t CodesSize(Format format, std::size_t rows, std::size_t columns) {
  return rows * columns * Info(format).bits / 8;
}

std::size_t ScalesSize(Format format, std::size_t rows, std::size_t columns) {
  const FormatInfo& info = Info(format);
  if (info.block_rows == 0) return 0;
  const std::size_t blocks =
      DivideUp(rows, info.block_rows) * DivideUp(columns, info.block_columns);
  return blocks * DtypeBits(info.scale_dtype) / 8;
}

Rows Encoder::CastToBf16(const Rows& rows) {
  cast_.resize(rows.values.size());
  for (std::size_t i = 0; i < cast_.size(); ++i) {
    cast_[i] = FloatFromBf16(Bf16FromFloat(rows.values[i]));
  }
  return {cast_, rows.columns};
}

void Encoder::Encode(const EncodeOptions& options, const Rows& rows, const BlockOutput& output) {
  SEGUE_CHECK(output.scales.size() == ScalesSize(options.format, rows.count(), rows.columns));
  if (options.format == Format::kBf16) return StoreCast<Bf16FromFloat>(rows.values, output.codes);
  if (options.format == Format::kFp16) return StoreCast<Fp16FromFloat>(rows.values, output.codes);
  const Rows source = options.from == QuantiseFrom::kMaster ? rows : CastToBf16(rows);
  switch (options.format) {
    case Format::kFp8: return QuantiseFp8(source, output);
    case Format::kNvfp4: return QuantiseNvfp4(source, options.tensor_scale, output);
    case Format::kMxfp4: return QuantiseMxfp4(source, output);
    default: return QuantiseInt4(source, output);
  }
}

}  // namespace segue::workload
