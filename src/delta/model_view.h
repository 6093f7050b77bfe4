// SPDX-License-Identifier: Apache-2.0
//
// ModelView: where the bytes of a plan's tensors lie in memory, one pointer a tensor in the plan's
// order. Owns nothing; a mapped checkpoint, a buffer or live weights all look the same through it.
#pragma once

#include <cstddef>
#include <vector>

#include "base/check.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/plan.h"

namespace segue {

template <typename Byte>
class BasicModelView {
 public:
  BasicModelView() = default;
  explicit BasicModelView(std::vector<Byte*> tensors) : tensors_(std::move(tensors)) {}

  Byte* Tensor(std::size_t tensor) const { return tensors_[tensor]; }
  Byte* Chunk(const ChunkPlace& place) const { return tensors_[place.tensor] + place.offset; }
  std::size_t tensor_count() const { return tensors_.size(); }

 private:
  std::vector<Byte*> tensors_;
};

using ModelView = BasicModelView<const std::byte>;
using MutableModelView = BasicModelView<std::byte>;

inline ModelView ViewOf(const Checkpoint& checkpoint) {
  std::vector<const std::byte*> tensors;
  for (std::size_t i = 0; i < checkpoint.tensors().size(); ++i) {
    tensors.push_back(checkpoint.TensorBytes(i).data());
  }
  return ModelView(std::move(tensors));
}

inline ModelView ReadOnly(const MutableModelView& view) {
  std::vector<const std::byte*> tensors;
  for (std::size_t i = 0; i < view.tensor_count(); ++i) tensors.push_back(view.Tensor(i));
  return ModelView(std::move(tensors));
}

}  // namespace segue
