// SPDX-License-Identifier: Apache-2.0
//
// TensorSet: which tensors of a plan an owner covers, one bit each, and its text in owner records
// (docs/format.md, section 8). Several owners' sets must be disjoint and together hold every
// tensor: then no chunk is in two payloads and digests add up to the model's.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/plan.h"

namespace segue {

class TensorSet {
 public:
  TensorSet() = default;
  explicit TensorSet(std::size_t tensor_count) : bits_(tensor_count) {}
  // Nothing where `text` is not the text of a set of `tensor_count` tensors.
  static std::optional<TensorSet> FromHex(std::string_view text, std::size_t tensor_count);
  std::string ToHex() const;

  void Add(std::size_t tensor) { bits_[tensor] = true; }
  bool Contains(std::size_t tensor) const { return bits_[tensor]; }
  std::size_t tensor_count() const { return bits_.size(); }

  // Takes all of `other` in; the first tensor that both have had, or nothing. Same tensor_count().
  std::optional<std::size_t> Merge(const TensorSet& other);
  // The first tensor of the plan with bytes that is not in the set.
  std::optional<std::size_t> FirstMissing(const Plan& plan) const;

 private:
  std::vector<bool> bits_;
};

}  // namespace segue
