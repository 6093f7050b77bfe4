// SPDX-License-Identifier: Apache-2.0
//
// Source model: the caller's tensors in the plan's order.
#include "sync/source_model.h"

#include <algorithm>
#include <utility>
#include <vector>

namespace segue {
namespace {

Result<std::vector<TensorSpec>> SpecsOf(const std::vector<const SourceTensor*>& tensors) {
  std::vector<TensorSpec> specs;
  specs.reserve(tensors.size());
  for (const SourceTensor* tensor : tensors) {
    const auto dtype = DtypeFromName(tensor->dtype);
    if (!dtype) {
      return Unsupported("tensor '" + tensor->name + "' has the unknown dtype '" + tensor->dtype +
                         "'");
    }
    if (tensor->name == "__metadata__") {
      return InvalidArgument("tensor '__metadata__': safetensors keeps that name for itself");
    }
    if (!specs.empty() && specs.back().name == tensor->name) {
      return InvalidArgument("tensor '" + tensor->name + "' is there twice");
    }
    specs.push_back({tensor->name, *dtype, tensor->shape});
  }
  return specs;
}

Status AddOwned(std::span<const std::string> names, SourceModel& model) {
  for (const std::string& name : names) {
    SEGUE_ASSIGN_OR_RETURN(const std::size_t tensor, FindTensor(model.plan, name));
    if (model.plan.tensors()[tensor].size != 0) model.owned.Add(tensor);
  }
  return {};
}

}  // namespace

Result<SourceModel> SourceFromTensors(std::span<const SourceTensor> tensors,
                                      std::uint64_t chunk_size) {
  std::vector<const SourceTensor*> sorted;
  sorted.reserve(tensors.size());
  for (const SourceTensor& tensor : tensors) sorted.push_back(&tensor);
  std::sort(sorted.begin(), sorted.end(),
            [](const SourceTensor* a, const SourceTensor* b) { return a->name < b->name; });
  SourceModel model;
  SEGUE_ASSIGN_OR_RETURN(std::vector<TensorSpec> specs, SpecsOf(sorted));
  SEGUE_ASSIGN_OR_RETURN(model.plan, Plan::Make(std::move(specs), chunk_size));
  model.owned = TensorSet(sorted.size());
  std::vector<const std::byte*> places;
  places.reserve(sorted.size());
  for (std::size_t i = 0; i < sorted.size(); ++i) {
    const std::uint64_t size = model.plan.tensors()[i].size;
    if (sorted[i]->data != nullptr && sorted[i]->size != size) {
      return InvalidArgument("tensor '" + sorted[i]->name + "' has " +
                             std::to_string(sorted[i]->size) + " bytes, its shape has " +
                             std::to_string(size));
    }
    if (sorted[i]->data != nullptr && size != 0) model.owned.Add(i);
    places.push_back(sorted[i]->data);
  }
  model.view = ModelView(std::move(places));
  return model;
}

Result<SourceModel> SourceFromSpecs(std::span<const SourceTensor> tensors,
                                    std::span<const std::string> owned, std::uint64_t chunk_size) {
  std::vector<SourceTensor> specs(tensors.begin(), tensors.end());
  for (SourceTensor& tensor : specs) tensor.data = nullptr;
  SEGUE_ASSIGN_OR_RETURN(SourceModel model, SourceFromTensors(specs, chunk_size));
  SEGUE_RETURN_IF_ERROR(AddOwned(owned, model));
  return model;
}

Result<SourceModel> SourceFromCheckpoint(const Checkpoint& checkpoint,
                                         const std::optional<std::vector<std::string>>& owned,
                                         std::uint64_t chunk_size) {
  SourceModel model;
  SEGUE_ASSIGN_OR_RETURN(model.plan, Plan::FromCheckpoint(checkpoint, chunk_size));
  model.view = ViewOf(checkpoint);
  model.owned = TensorSet(model.plan.tensors().size());
  if (owned) {
    SEGUE_RETURN_IF_ERROR(AddOwned(*owned, model));
    return model;
  }
  for (std::size_t i = 0; i < model.plan.tensors().size(); ++i) {
    if (model.plan.tensors()[i].size != 0) model.owned.Add(i);
  }
  return model;
}

Result<std::size_t> FindTensor(const Plan& plan, std::string_view name) {
  const auto& tensors = plan.tensors();
  const auto found = std::lower_bound(
      tensors.begin(), tensors.end(), name,
      [](const PlanTensor& tensor, std::string_view wanted) { return tensor.spec.name < wanted; });
  if (found == tensors.end() || found->spec.name != name) {
    return NotFound("there is no tensor " + Quoted(name) + " in the plan");
  }
  return static_cast<std::size_t>(found - tensors.begin());
}

}  // namespace segue
