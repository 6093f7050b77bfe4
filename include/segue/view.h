// SPDX-License-Identifier: Apache-2.0
//
// View: how the elements of a checkpoint tensor, or of a part of it, lie in an engine's memory.
// Engines slice tensors among ranks, fuse them, transpose, pad and reorder them; each of these is
// an affine map from the element's place in the tensor to its place in a buffer.
//
// An element is what docs/format.md, section 1, calls so: `width` bytes, 2 for BF16, 1 for F8 and
// for packed 4-bit types (two values together). Shapes given here count elements: the last
// dimension of a tensor of 4-bit values is half of its safetensors shape.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "segue/status.h"

namespace segue {

// Steps of `count` elements, each `source_stride` elements further in the tensor and
// `target_stride` bytes further in the buffer.
struct ViewAxis {
  std::uint64_t count = 1;
  std::uint64_t source_stride = 1;
  std::uint64_t target_stride = 1;

  bool operator==(const ViewAxis&) const = default;
};

// Element source_offset + sum(i[k] * source_stride[k]) lies at byte target_offset + sum(i[k] *
// target_stride[k]) for all 0 <= i[k] < count[k]. Strides nest in the tensor and in the buffer: a
// step is longer than all that the shorter steps reach together, so that no element and no byte is
// named twice.
struct View {
  std::uint64_t source_offset = 0;  // Elements.
  std::uint64_t target_offset = 0;  // Bytes.
  std::vector<ViewAxis> axes = {};  // None: one element.

  bool operator==(const View&) const = default;
};

// A box of a tensor that is read as `shape`: `count[k]` steps from `begin[k]` on in dimension k,
// which lie `target_strides[k]` bytes apart. All four have the same length. InvalidArgument where
// the box leaves the shape.
Result<View> BoxView(std::span<const std::uint64_t> shape, std::span<const std::uint64_t> begin,
                     std::span<const std::uint64_t> count,
                     std::span<const std::uint64_t> target_strides,
                     std::uint64_t target_offset = 0);

// Rows [begin, begin + count) of a tensor of `columns` columns, row after row: what a rank holds of
// a column-parallel layer, or a part of a fused tensor (by `target_offset`). `row_stride`: bytes
// between rows of the buffer, 0 for rows without padding.
View RowSlice(std::uint64_t columns, std::uint64_t begin, std::uint64_t count, unsigned width,
              std::uint64_t target_offset = 0, std::uint64_t row_stride = 0);

// Columns [begin, begin + count) of a tensor of `rows` x `columns`: a rank of a row-parallel layer.
View ColumnSlice(std::uint64_t rows, std::uint64_t columns, std::uint64_t begin,
                 std::uint64_t count, unsigned width, std::uint64_t target_offset = 0,
                 std::uint64_t row_stride = 0);

// A tensor of `rows` x `columns` whose buffer holds its transpose. `column_stride`: bytes between
// two columns (rows of the buffer), 0 for none to spare.
View TransposedView(std::uint64_t rows, std::uint64_t columns, unsigned width,
                    std::uint64_t target_offset = 0, std::uint64_t column_stride = 0);

// Block scales as the tensor cores of Blackwell read them (CUTLASS and cuBLAS: "128x4 block scaling
// factors layout"): tiles of 128 rows x 4 columns, in order of rows, then columns; row r of a tile
// and column c at byte (r mod 32) * 16 + (r / 32) * 4 + c. Scales are one byte each. Rows and
// columns that do not fill a tile leave padding. Several views, since a tile may be cut.
std::vector<View> BlockedScaleViews(std::uint64_t rows, std::uint64_t columns,
                                    std::uint64_t target_offset = 0);

}  // namespace segue
