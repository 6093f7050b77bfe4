// SPDX-License-Identifier: Apache-2.0
//
// LiveMap: where the tensors of a plan lie in an engine's memory. A tensor may lie there as it is,
// in several parts, in part only (the rest is at other ranks), or in the same bytes as another one
// (tied weights, case C1). Owns no byte of them.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "checkpoint/plan.h"
#include "delta/model_view.h"
#include "device/accelerator.h"
#include "device/view_map.h"
#include "segue/status.h"

namespace segue {

// One binding as a caller gives it.
struct Placement {
  std::uint32_t tensor = 0;  // In the plan.
  std::byte* data = nullptr;
  std::uint64_t size = 0;         // Of the buffer.
  std::optional<View> view = {};  // None: the whole tensor, as it is.
  // The same part is at `copy_count` places, at this rank or others; number 0 counts.
  std::uint32_t copy = 0;
  std::uint32_t copy_count = 1;
};

// Elements of the tensor that a chunk is.
inline std::uint64_t FirstElement(const ChunkPlace& place) { return place.offset / place.width; }
inline std::uint64_t EndElement(const ChunkPlace& place) {
  return (place.offset + place.size) / place.width;
}

class LiveMap {
 public:
  struct Part {
    std::uint32_t tensor = 0;
    std::byte* data = nullptr;
    std::unique_ptr<const ViewMap> map;  // None: the whole tensor, as it is.
    std::uint32_t copy = 0;
    std::uint32_t copy_count = 1;
    const Part* tied_to = nullptr;  // The part of another tensor that is the same bytes.

    // Where the chunk lies as it is, if it does.
    std::byte* Contiguous(const ChunkPlace& place) const;
    // Bytes of the chunk that the part holds.
    std::uint64_t SizeIn(const ChunkPlace& place) const;
  };

  // Every tensor whole, where `view` has it.
  static LiveMap Whole(const Plan& plan, const MutableModelView& view);
  // InvalidArgument: a view that does not fit, parts that overlap without being the same, copies
  // that make no sense, bytes that are not in the accelerator's memory. Names the tensors.
  // `accelerator`: whose memory it is; none: this process's own.
  static Result<LiveMap> Make(const Plan& plan, std::vector<Placement> placements,
                              std::shared_ptr<Accelerator> accelerator = nullptr);

  std::span<const Part> PartsOf(std::uint32_t tensor) const {
    return std::span(parts_).subspan(first_[tensor], first_[tensor + 1] - first_[tensor]);
  }
  std::span<const Part> parts() const { return parts_; }
  // Whether the parts that count hold as many elements as the tensor.
  bool HoldsAll(std::uint32_t tensor) const { return holds_all_[tensor]; }
  bool has_views() const { return has_views_; }
  Accelerator* accelerator() const { return accelerator_.get(); }
  // For maps without views.
  MutableModelView whole_view() const;

 private:
  LiveMap() = default;
  void Index(const Plan& plan);

  std::vector<Part> parts_;         // By tensor.
  std::vector<std::size_t> first_;  // Of each tensor, and one more.
  std::vector<bool> holds_all_;
  bool has_views_ = false;
  std::shared_ptr<Accelerator> accelerator_;
};

}  // namespace segue
