// SPDX-License-Identifier: Apache-2.0
//
// ViewMap: checks with exact arithmetic, and the one form of equal maps.
#include "device/view_map.h"

#include <algorithm>
#include <bit>
#include <string>
#include <utility>

#include "base/limits.h"

namespace segue {
namespace {

// What the steps of an axis reach together; nothing where that cannot be counted.
std::optional<std::uint64_t> Reach(std::uint64_t count, std::uint64_t stride) {
  std::uint64_t reach = 0;
  if (__builtin_mul_overflow(count - 1, stride, &reach)) return std::nullopt;
  return reach;
}

std::optional<std::uint64_t> Sum(std::optional<std::uint64_t> a, std::optional<std::uint64_t> b) {
  std::uint64_t sum = 0;
  if (!a || !b || __builtin_add_overflow(*a, *b, &sum)) return std::nullopt;
  return sum;
}

// Drops axes of one step, and joins neighbours that step on alike in tensor and buffer.
std::vector<ViewAxis> Joined(std::vector<ViewAxis> axes) {
  std::erase_if(axes, [](const ViewAxis& axis) { return axis.count == 1; });
  std::stable_sort(axes.begin(), axes.end(), [](const ViewAxis& a, const ViewAxis& b) {
    return a.source_stride > b.source_stride;
  });
  std::vector<ViewAxis> joined;
  joined.reserve(axes.size() + 1);
  for (const ViewAxis& axis : axes) {
    if (!joined.empty() && joined.back().source_stride == axis.count * axis.source_stride &&
        joined.back().target_stride == axis.count * axis.target_stride) {
      joined.back() = {joined.back().count * axis.count, axis.source_stride, axis.target_stride};
    } else {
      joined.push_back(axis);
    }
  }
  return joined;
}

}  // namespace

Result<ViewMap> ViewMap::Make(const View& view, std::uint64_t element_count, unsigned width,
                              std::uint64_t target_size) {
  if (view.axes.size() > limits::kViewAxisCountMax) {
    return InvalidArgument("a view has " + std::to_string(view.axes.size()) + " axes, at most " +
                           std::to_string(limits::kViewAxisCountMax) + " are possible");
  }
  ViewMap map;
  map.source_offset_ = view.source_offset;
  map.target_offset_ = view.target_offset;
  map.width_ = width;
  for (const ViewAxis& axis : view.axes) {
    // Before anything is joined, so that no product wraps in silence.
    if (axis.count == 0 || axis.source_stride == 0 || axis.count > element_count ||
        !Reach(axis.count + 1, axis.source_stride) || !Reach(axis.count + 1, axis.target_stride)) {
      return InvalidArgument("an axis of a view has " + std::to_string(axis.count) + " steps of " +
                             std::to_string(axis.source_stride) + " elements; the tensor has " +
                             std::to_string(element_count));
    }
  }
  map.Normalize(view.axes);
  SEGUE_RETURN_IF_ERROR(map.CheckSource(element_count));
  SEGUE_RETURN_IF_ERROR(map.CheckTarget(target_size));
  return map;
}

void ViewMap::Normalize(std::vector<ViewAxis> given) {
  std::vector<ViewAxis> axes = Joined(std::move(given));
  if (axes.empty() || axes.back().source_stride != 1) axes.push_back({1, 1, width_});
  axes_.reserve(axes.size());
  for (const ViewAxis& axis : axes) {
    const int shift =
        std::has_single_bit(axis.source_stride) ? std::countr_zero(axis.source_stride) : -1;
    axes_.push_back({axis.count, axis.source_stride, axis.target_stride, shift});
  }
}

Status ViewMap::CheckSource(std::uint64_t element_count) const {
  std::optional<std::uint64_t> reach = 0;
  for (std::size_t k = axes_.size(); k-- > 0;) {
    if (reach && axes_[k].count > 1 && axes_[k].source_stride <= *reach) {
      return InvalidArgument("a view names an element twice: steps of " +
                             std::to_string(axes_[k].source_stride) +
                             " elements, shorter ones reach " + std::to_string(*reach));
    }
    reach = Sum(reach, Reach(axes_[k].count, axes_[k].source_stride));
  }
  const auto last = Sum(reach, source_offset_);
  if (last && *last < element_count) return {};
  return InvalidArgument("a view leaves its tensor of " + std::to_string(element_count) +
                         " elements");
}

Status ViewMap::CheckTarget(std::uint64_t target_size) {
  std::vector<Axis> axes = axes_;
  std::sort(axes.begin(), axes.end(),
            [](const Axis& a, const Axis& b) { return a.target_stride < b.target_stride; });
  std::optional<std::uint64_t> reach = width_;
  element_count_ = 1;
  for (const Axis& axis : axes) {
    if (reach && axis.count > 1 && axis.target_stride < *reach) {
      return InvalidArgument("a view names a byte twice: steps of " +
                             std::to_string(axis.target_stride) + " bytes, shorter ones reach " +
                             std::to_string(*reach));
    }
    reach = Sum(reach, Reach(axis.count, axis.target_stride));
    element_count_ *= axis.count;  // At most the tensor's, since no element is named twice.
  }
  const auto end = Sum(reach, target_offset_);
  if (end && *end <= target_size) {
    target_reach_ = *reach;
    return {};
  }
  return InvalidArgument("a view leaves its buffer of " + std::to_string(target_size) + " bytes");
}

std::optional<std::uint64_t> ViewMap::Contiguous(std::uint64_t begin, std::uint64_t end) const {
  std::uint64_t first = 0;
  std::uint64_t first_count = 0;
  std::uint64_t runs = 0;
  ForEachRun(begin, end, [&](std::uint64_t, std::uint64_t target, std::uint64_t count) {
    if (runs++ > 0) return;
    first = target;
    first_count = count;
  });
  const bool dense = run_stride() == width_ || first_count == 1;
  return runs == 1 && first_count == end - begin && dense ? std::optional(first) : std::nullopt;
}

std::uint64_t ViewMap::CountIn(std::uint64_t begin, std::uint64_t end) const {
  std::uint64_t sum = 0;
  ForEachRun(begin, end, [&](std::uint64_t, std::uint64_t, std::uint64_t count) { sum += count; });
  return sum;
}

bool ViewMap::Seek(std::uint64_t element, Steps& steps) const {
  std::fill(steps.begin(), steps.end(), 0);
  if (element <= source_offset_) return true;
  std::uint64_t rest = element - source_offset_;
  for (std::size_t k = 0; k < axes_.size(); ++k) {
    steps[k] = axes_[k].Divide(rest);
    if (steps[k] >= axes_[k].count) {
      std::fill(steps.begin() + static_cast<std::ptrdiff_t>(k), steps.end(), 0);
      return k > 0 && Advance(k - 1, steps);
    }
    rest -= steps[k] * axes_[k].source_stride;
  }
  // The last axis steps from element to element: nothing is left.
  return true;
}

bool ViewMap::Advance(std::size_t axis, Steps& steps) const {
  std::fill(steps.begin() + static_cast<std::ptrdiff_t>(axis) + 1, steps.end(), 0);
  for (std::size_t k = axis + 1; k-- > 0;) {
    if (++steps[k] < axes_[k].count) return true;
    steps[k] = 0;
  }
  return false;
}

}  // namespace segue
