// SPDX-License-Identifier: Apache-2.0
//
// Format: how a preset stores its matrices, as data (element bits, scale blocks, dtypes, tensor
// names), and the one function that turns FP32 rows into stored bytes. Everything that depends on a
// format asks here, so that a new one is one row of a table and one case of Encode.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "checkpoint/dtype.h"
#include "workload/quantise.h"

namespace segue::workload {

enum class Format : std::uint8_t { kBf16, kFp16, kFp8, kNvfp4, kMxfp4, kInt4 };

struct FormatInfo {
  std::string_view name;
  unsigned bits;           // Of an element: 4, 8 or 16.
  bool sign_magnitude;     // Codes order by sign and magnitude; otherwise as plain numbers.
  Dtype dtype;             // Of the codes' tensor; 4-bit codes lie two to a U8.
  std::size_t block_rows;  // Of a scale block; 0 where the format has no scales.
  std::size_t block_columns;
  Dtype scale_dtype;
  std::string_view scale_suffix;         // After the name of the codes' tensor.
  std::string_view tensor_scale_suffix;  // Empty where there is none.
};

const FormatInfo& Info(Format format);

// Sizes in bytes of the codes and of the block scales of whole rows. `rows` must begin at a block's
// first row for the scales to be those blocks.
std::size_t CodesSize(Format format, std::size_t rows, std::size_t columns);
std::size_t ScalesSize(Format format, std::size_t rows, std::size_t columns);

// What block formats quantise: the weights as cast to BF16 (what a trainer hands over), or the FP32
// master. Codes and scales alike.
enum class QuantiseFrom : std::uint8_t { kBf16, kMaster };

struct EncodeOptions {
  Format format = Format::kBf16;
  QuantiseFrom from = QuantiseFrom::kBf16;
  float tensor_scale = 1;  // NVFP4 alone.
};

// Stores `rows` into `output`, whose sizes are those above. Keeps a buffer for the cast: one object
// a thread.
class Encoder {
 public:
  void Encode(const EncodeOptions& options, const Rows& rows, const BlockOutput& output);

 private:
  Rows CastToBf16(const Rows& rows);
  std::vector<float> cast_;
};

}  // namespace segue::workload
