// SPDX-License-Identifier: Apache-2.0
//
// Refusals, sums and what is missing. Tested with the publisher (publisher_test.cc).
#include "sync/put_tensors.h"

#include <algorithm>
#include <optional>
#include <string>

#include "sync/source_model.h"

namespace segue {
namespace {

Status NotPut(const std::string& first, std::uint64_t count) {
  const std::string others = std::to_string(count - 1);
  return InvalidArgument("tensor " + Quoted(first) +
                         (count == 1 ? " was not put: put it, or say that it is unchanged"
                                     : " and " + others +
                                           " more were not put: put them, or say that they are "
                                           "unchanged") +
                         " (PutUnchanged; in Python put_unchanged, missing_is_unchanged)");
}

}  // namespace

void PutTensors::Clear() {
  (void)builder_.Take();
  put_ = TensorSet(model_.plan.tensors().size());
  sums_ = {};
}

Result<std::size_t> PutTensors::Find(std::string_view name) const {
  const auto found = FindTensor(model_.plan, name);
  if (!found.ok()) {
    return InvalidArgument("tensor " + Quoted(name) +
                           " is none of those that the publisher was opened with");
  }
  const std::size_t tensor = found.value();
  if (model_.plan.tensors()[tensor].size != 0 && !model_.owned.Contains(tensor)) {
    return InvalidArgument("tensor " + Quoted(name) + " belongs to another owner");
  }
  if (put_.Contains(tensor)) return InvalidArgument("tensor " + Quoted(name) + " is put twice");
  return tensor;
}

Result<TensorChange> PutTensors::ChangeAt(std::size_t tensor, const std::byte* data,
                                          std::uint64_t size) const {
  const PlanTensor& known = model_.plan.tensors()[tensor];
  if (size != known.size) {
    return InvalidArgument("tensor " + Quoted(known.spec.name) + " has " + std::to_string(size) +
                           " bytes, expected " + std::to_string(known.size));
  }
  SEGUE_RETURN_IF_ERROR(model_.CheckPlace(known.spec.name, data, size));
  return TensorChange{tensor, model_.baseline->Tensor(tensor), data};
}

Result<TensorChange> PutTensors::ChangeOf(std::string_view name, const std::byte* data,
                                          std::uint64_t size) const {
  SEGUE_ASSIGN_OR_RETURN(const std::size_t tensor, Find(name));
  return ChangeAt(tensor, data, size);
}

// A delta of bytes cannot change what a tensor is.
Result<TensorChange> PutTensors::ChangeOf(const SourceTensor& tensor) const {
  SEGUE_ASSIGN_OR_RETURN(const std::size_t number, Find(tensor.name));
  const auto dtype = DtypeFromName(tensor.dtype);
  if (!dtype) {
    return Unsupported("tensor " + Quoted(tensor.name) + " has the unknown dtype '" + tensor.dtype +
                       "'");
  }
  const TensorSpec given{tensor.name, *dtype, tensor.shape};
  const TensorSpec& known = model_.plan.tensors()[number].spec;
  if (given != known) {
    return InvalidArgument("tensor " + Quoted(tensor.name) + " is " + DescribeTensor(given) +
                           ", expected " + DescribeTensor(known) +
                           "; another dtype or shape needs a lineage of its own");
  }
  return ChangeAt(number, tensor.data, tensor.size);
}

Result<std::vector<TensorChange>> PutTensors::ChangesOf(
    std::span<const SourceTensor> tensors) const {
  std::vector<TensorChange> changes;
  for (const SourceTensor& tensor : tensors) {
    if (tensor.data == nullptr) continue;
    SEGUE_ASSIGN_OR_RETURN(const TensorChange change, ChangeOf(tensor));
    changes.push_back(change);
  }
  std::ranges::sort(changes, {}, &TensorChange::tensor);
  const auto twice = std::ranges::adjacent_find(changes, {}, &TensorChange::tensor);
  if (twice == changes.end()) return changes;
  return InvalidArgument("tensor " + Quoted(model_.plan.tensors()[twice->tensor].spec.name) +
                         " is put twice");
}

Status PutTensors::Compare(const std::vector<TensorChange>& changes) {
  const BaselinePlace& place = model_.place;
  SEGUE_ASSIGN_OR_RETURN(
      const ChunkEncoder::Sums sums,
      place.differ == nullptr
          ? builder_.Add(changes)
          : builder_.AddOnDevice(changes, *place.differ, !model_.baseline->is_on_device()));
  sums_.before += sums.before;
  sums_.after += sums.after;
  for (const TensorChange& change : changes) put_.Add(change.tensor);
  return {};
}

Status PutTensors::AddUnchanged(std::string_view name) {
  SEGUE_ASSIGN_OR_RETURN(const std::size_t tensor, Find(name));
  TakeUnchanged(tensor);
  return {};
}

void PutTensors::TakeUnchanged(std::size_t tensor) {
  put_.Add(tensor);
  sums_.before += model_.baseline->TensorDigest(tensor);
  sums_.after += model_.baseline->TensorDigest(tensor);
}

Status PutTensors::AddMissing(bool is_unchanged) {
  std::optional<std::size_t> first;
  std::uint64_t count = 0;
  for (std::size_t tensor = 0; tensor < model_.plan.tensors().size(); ++tensor) {
    if (!model_.owned.Contains(tensor) || put_.Contains(tensor)) continue;
    if (is_unchanged) {
      TakeUnchanged(tensor);
    } else {
      first = first.value_or(tensor);
      ++count;
    }
  }
  return first ? NotPut(model_.plan.tensors()[*first].spec.name, count) : Status();
}

}  // namespace segue
