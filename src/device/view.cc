// SPDX-License-Identifier: Apache-2.0
//
// Views of the usual layouts.
#include "segue/view.h"

#include <algorithm>
#include <string>

namespace segue {
namespace {

// Tiles of block scales.
constexpr std::uint64_t kTileRows = 128;
constexpr std::uint64_t kTileColumns = 4;
constexpr std::uint64_t kTileSize = kTileRows * kTileColumns;
constexpr std::uint64_t kTileSubRows = 32;    // Rows that lie kTileSubStride apart.
constexpr std::uint64_t kTileSubStride = 16;  // Four groups of rows with four columns each.

// A run of rows or columns that all lie in the same way in their tiles.
struct Segment {
  std::uint64_t begin = 0;
  std::vector<ViewAxis> axes;  // Strides in rows or columns until they are scaled.
  std::uint64_t target_offset = 0;
};

// Whole tiles, whole groups of 32 rows in the last tile, and what is left.
std::vector<Segment> RowSegments(std::uint64_t rows, std::uint64_t tile_row_size) {
  std::vector<Segment> segments;
  const std::uint64_t tiles = rows / kTileRows;
  const std::uint64_t groups = rows % kTileRows / kTileSubRows;
  const std::uint64_t rest = rows % kTileSubRows;
  if (tiles != 0) {
    segments.push_back({0,
                        {{tiles, kTileRows, tile_row_size},
                         {kTileRows / kTileSubRows, kTileSubRows, kTileColumns},
                         {kTileSubRows, 1, kTileSubStride}},
                        0});
  }
  const std::uint64_t tile = tiles * tile_row_size;
  if (groups != 0) {
    segments.push_back({tiles * kTileRows,
                        {{groups, kTileSubRows, kTileColumns}, {kTileSubRows, 1, kTileSubStride}},
                        tile});
  }
  if (rest != 0) {
    segments.push_back({tiles * kTileRows + groups * kTileSubRows,
                        {{rest, 1, kTileSubStride}},
                        tile + groups * kTileColumns});
  }
  return segments;
}

std::vector<Segment> ColumnSegments(std::uint64_t columns) {
  std::vector<Segment> segments;
  const std::uint64_t tiles = columns / kTileColumns;
  const std::uint64_t rest = columns % kTileColumns;
  if (tiles != 0) {
    segments.push_back({0, {{tiles, kTileColumns, kTileSize}, {kTileColumns, 1, 1}}, 0});
  }
  if (rest != 0) segments.push_back({tiles * kTileColumns, {{rest, 1, 1}}, tiles * kTileSize});
  return segments;
}

}  // namespace

Result<View> BoxView(std::span<const std::uint64_t> shape, std::span<const std::uint64_t> begin,
                     std::span<const std::uint64_t> count,
                     std::span<const std::uint64_t> target_strides, std::uint64_t target_offset) {
  if (begin.size() != shape.size() || count.size() != shape.size() ||
      target_strides.size() != shape.size()) {
    return InvalidArgument("a view needs as many begins, counts and strides as dimensions");
  }
  View view;
  view.target_offset = target_offset;
  std::uint64_t stride = 1;
  for (std::size_t k = shape.size(); k-- > 0;) {
    if (count[k] == 0 || begin[k] >= shape[k] || count[k] > shape[k] - begin[k]) {
      return InvalidArgument("dimension " + std::to_string(k) + " of a view takes " +
                             std::to_string(count[k]) + " from " + std::to_string(begin[k]) +
                             " on, it has " + std::to_string(shape[k]));
    }
    view.source_offset += begin[k] * stride;
    view.axes.push_back({count[k], stride, target_strides[k]});
    if (__builtin_mul_overflow(stride, shape[k], &stride)) {
      return InvalidArgument("the shape of a view has more elements than can be counted");
    }
  }
  std::reverse(view.axes.begin(), view.axes.end());
  return view;
}

View RowSlice(std::uint64_t columns, std::uint64_t begin, std::uint64_t count, unsigned width,
              std::uint64_t target_offset, std::uint64_t row_stride) {
  return {begin * columns,
          target_offset,
          {{count, columns, row_stride == 0 ? columns * width : row_stride}, {columns, 1, width}}};
}

View ColumnSlice(std::uint64_t rows, std::uint64_t columns, std::uint64_t begin,
                 std::uint64_t count, unsigned width, std::uint64_t target_offset,
                 std::uint64_t row_stride) {
  return {begin,
          target_offset,
          {{rows, columns, row_stride == 0 ? count * width : row_stride}, {count, 1, width}}};
}

View TransposedView(std::uint64_t rows, std::uint64_t columns, unsigned width,
                    std::uint64_t target_offset, std::uint64_t column_stride) {
  return {
      0,
      target_offset,
      {{rows, columns, width}, {columns, 1, column_stride == 0 ? rows * width : column_stride}}};
}

std::vector<View> BlockedScaleViews(std::uint64_t rows, std::uint64_t columns,
                                    std::uint64_t target_offset) {
  const std::uint64_t tile_row_size = (columns + kTileColumns - 1) / kTileColumns * kTileSize;
  std::vector<View> views;
  for (const Segment& down : RowSegments(rows, tile_row_size)) {
    for (const Segment& across : ColumnSegments(columns)) {
      View view;
      view.source_offset = down.begin * columns + across.begin;
      view.target_offset = target_offset + down.target_offset + across.target_offset;
      for (ViewAxis axis : down.axes) {
        axis.source_stride *= columns;
        view.axes.push_back(axis);
      }
      view.axes.insert(view.axes.end(), across.axes.begin(), across.axes.end());
      views.push_back(std::move(view));
    }
  }
  return views;
}

}  // namespace segue
