// SPDX-License-Identifier: Apache-2.0
//
// ViewMap: a view that has been checked and brought into one form, so that places are found by a
// few divisions and runs are as long as they can be. Knows elements and bytes, no tensor and no
// address. What a device follows for every chunk that does not lie in its buffer as it is.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "base/limits.h"
#include "segue/status.h"
#include "segue/view.h"

namespace segue {

class ViewMap {
 public:
  // InvalidArgument, with the reason, where the view leaves the tensor (`element_count` elements of
  // `width` bytes) or the buffer, or names an element or a byte twice.
  static Result<ViewMap> Make(const View& view, std::uint64_t element_count, unsigned width,
                              std::uint64_t target_size);

  // Elements of the tensor that the view holds.
  std::uint64_t element_count() const { return element_count_; }
  // First byte in the buffer, and how many from there on the view reaches over, gaps included.
  std::uint64_t target_offset() const { return target_offset_; }
  std::uint64_t target_reach() const { return target_reach_; }
  unsigned width() const { return width_; }

  // The byte in the buffer of an element of the tensor, or nothing where the view leaves it out.
  std::optional<std::uint64_t> Locate(std::uint64_t element) const {
    if (element < source_offset_) return std::nullopt;
    std::uint64_t rest = element - source_offset_;
    std::uint64_t target = target_offset_;
    for (const Axis& axis : axes_) {
      const std::uint64_t step = axis.Divide(rest);
      if (step >= axis.count) return std::nullopt;
      rest -= step * axis.source_stride;
      target += step * axis.target_stride;
    }
    return rest == 0 ? std::optional(target) : std::nullopt;
  }

  // The byte in the buffer of element `begin`, if all of [begin, end) lie one after the other.
  std::optional<std::uint64_t> Contiguous(std::uint64_t begin, std::uint64_t end) const;

  // Calls run(element, target, count) for the elements of [begin, end) that the view holds,
  // ascending: `count` elements from `element` on, run_stride() bytes apart from byte `target` on.
  template <typename Run>
  void ForEachRun(std::uint64_t begin, std::uint64_t end, Run run) const;
  std::uint64_t run_stride() const { return axes_.back().target_stride; }
  // Elements of [begin, end) that the view holds.
  std::uint64_t CountIn(std::uint64_t begin, std::uint64_t end) const;

  // Sorted by source stride, descending; the last one steps from element to element.
  struct Axis {
    std::uint64_t count = 1;
    std::uint64_t source_stride = 1;
    std::uint64_t target_stride = 1;
    int shift = -1;  // Of source_stride, where it is a power of two.

    std::uint64_t Divide(std::uint64_t number) const {
      return shift >= 0 ? number >> shift : number / source_stride;
    }
    bool operator==(const Axis&) const = default;
  };
  // For devices that follow the view by themselves: Locate() in numbers.
  const std::vector<Axis>& axes() const { return axes_; }
  std::uint64_t source_offset() const { return source_offset_; }

  bool operator==(const ViewMap& other) const {
    return source_offset_ == other.source_offset_ && target_offset_ == other.target_offset_ &&
           width_ == other.width_ && axes_ == other.axes_;
  }

 private:
  // A place in the view: one step number for each axis.
  using Steps = std::array<std::uint64_t, limits::kViewAxisCountMax + 1>;

  void Normalize(std::vector<ViewAxis> axes);
  Status CheckSource(std::uint64_t element_count) const;
  Status CheckTarget(std::uint64_t target_size);
  // The first place at or after `element`; false where there is none.
  bool Seek(std::uint64_t element, Steps& steps) const;
  // To the next step of axis `axis`, all further axes at 0; false behind the last.
  bool Advance(std::size_t axis, Steps& steps) const;

  std::uint64_t source_offset_ = 0;
  std::uint64_t target_offset_ = 0;
  std::uint64_t target_reach_ = 0;
  std::uint64_t element_count_ = 1;
  unsigned width_ = 1;
  std::vector<Axis> axes_;
};

template <typename Run>
void ViewMap::ForEachRun(std::uint64_t begin, std::uint64_t end, Run run) const {
  Steps steps;
  if (!Seek(begin, steps)) return;
  const std::size_t last = axes_.size() - 1;
  do {
    std::uint64_t element = source_offset_;
    std::uint64_t target = target_offset_;
    for (std::size_t k = 0; k <= last; ++k) {
      element += steps[k] * axes_[k].source_stride;
      target += steps[k] * axes_[k].target_stride;
    }
    if (element >= end) return;
    const std::uint64_t left = axes_[last].count - steps[last];
    run(element, target, left < end - element ? left : end - element);
  } while (last > 0 && Advance(last - 1, steps));
}

}  // namespace segue
