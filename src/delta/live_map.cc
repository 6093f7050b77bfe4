// SPDX-License-Identifier: Apache-2.0
//
// LiveMap: parts by tensor.
#include "delta/live_map.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "base/check.h"
#include "delta/overlap.h"

namespace segue {
namespace {

Result<LiveMap::Part> MakePart(const Plan& plan, const Placement& placement) {
  const PlanTensor& tensor = plan.tensors()[placement.tensor];
  const std::string name = "tensor '" + tensor.spec.name + "'";
  if (placement.data == nullptr && placement.size != 0) {
    return InvalidArgument(name + " has no address");
  }
  if (placement.copy >= placement.copy_count) {
    return InvalidArgument(name + " is copy " + std::to_string(placement.copy) + " of " +
                           std::to_string(placement.copy_count) + ": they are counted from 0");
  }
  LiveMap::Part part;
  part.tensor = placement.tensor;
  part.data = placement.data;
  part.copy = placement.copy;
  part.copy_count = placement.copy_count;
  if (placement.view) {
    const unsigned width = DtypeWidth(tensor.spec.dtype);
    Result<ViewMap> map =
        ViewMap::Make(*placement.view, tensor.size / width, width, placement.size);
    if (!map.ok()) return map.status().WithContext(name);
    part.map = std::make_unique<const ViewMap>(std::move(map).value());
  } else if (placement.size != tensor.size) {
    return InvalidArgument(name + " has " + std::to_string(placement.size) +
                           " bytes, its shape has " + std::to_string(tensor.size));
  }
  return part;
}

Status CheckMemory(const Plan& plan, const Placement& placement, Accelerator* accelerator) {
  if (accelerator == nullptr || placement.size == 0) return {};
  return accelerator->CheckMemory(placement.data, placement.size)
      .WithContext("tensor '" + plan.tensors()[placement.tensor].spec.name + "'");
}

}  // namespace

std::byte* LiveMap::Part::Contiguous(const ChunkPlace& place) const {
  if (!map) return data + place.offset;
  const auto target = map->Contiguous(FirstElement(place), EndElement(place));
  return target ? data + *target : nullptr;
}

std::uint64_t LiveMap::Part::SizeIn(const ChunkPlace& place) const {
  if (!map) return place.size;
  return map->CountIn(FirstElement(place), EndElement(place)) * place.width;
}

LiveMap LiveMap::Whole(const Plan& plan, const MutableModelView& view) {
  LiveMap live;
  live.parts_.resize(plan.tensors().size());
  for (std::uint32_t t = 0; t < live.parts_.size(); ++t) {
    live.parts_[t].tensor = t;
    live.parts_[t].data = view.Tensor(t);
  }
  live.Index(plan);
  return live;
}

Result<LiveMap> LiveMap::Make(const Plan& plan, std::vector<Placement> placements,
                              std::shared_ptr<Accelerator> accelerator) {
  std::stable_sort(placements.begin(), placements.end(),
                   [](const Placement& a, const Placement& b) { return a.tensor < b.tensor; });
  LiveMap live;
  live.accelerator_ = std::move(accelerator);
  live.parts_.reserve(placements.size());
  for (const Placement& placement : placements) {
    SEGUE_ASSIGN_OR_RETURN(Part part, MakePart(plan, placement));
    SEGUE_RETURN_IF_ERROR(CheckMemory(plan, placement, live.accelerator_.get()));
    live.parts_.push_back(std::move(part));
  }
  SEGUE_RETURN_IF_ERROR(FindOverlaps(plan, live.parts_));
  live.Index(plan);
  return live;
}

void LiveMap::Index(const Plan& plan) {
  first_.assign(plan.tensors().size() + 1, 0);
  std::vector<std::uint64_t> held(plan.tensors().size());
  for (const Part& part : parts_) {
    const PlanTensor& tensor = plan.tensors()[part.tensor];
    ++first_[part.tensor + 1];
    has_views_ = has_views_ || part.map;
    if (part.copy != 0) continue;
    held[part.tensor] += part.map ? part.map->element_count() * part.map->width() : tensor.size;
  }
  std::partial_sum(first_.begin(), first_.end(), first_.begin());
  holds_all_.resize(held.size());
  for (std::size_t t = 0; t < held.size(); ++t) {
    holds_all_[t] = held[t] == plan.tensors()[t].size;
  }
}

MutableModelView LiveMap::whole_view() const {
  std::vector<std::byte*> tensors;
  tensors.reserve(parts_.size());
  for (const Part& part : parts_) {
    SEGUE_CHECK(!part.map && part.tensor == tensors.size());
    tensors.push_back(part.data);
  }
  return MutableModelView(std::move(tensors));
}

}  // namespace segue
