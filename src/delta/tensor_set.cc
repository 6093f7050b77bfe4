// SPDX-License-Identifier: Apache-2.0
//
// TensorSet. Four tensors a hexadecimal digit: bounded by the count of tensors, whatever the set.
#include "delta/tensor_set.h"

#include "base/check.h"

namespace segue {
namespace {

constexpr std::string_view kDigits = "0123456789abcdef";
constexpr std::size_t kBitsPerDigit = 4;

}  // namespace

std::optional<TensorSet> TensorSet::FromHex(std::string_view text, std::size_t tensor_count) {
  if (text.size() != (tensor_count + kBitsPerDigit - 1) / kBitsPerDigit) return std::nullopt;
  TensorSet set(tensor_count);
  for (std::size_t i = 0; i < text.size(); ++i) {
    const std::size_t digit = kDigits.find(text[i]);
    if (digit == std::string_view::npos) return std::nullopt;
    for (std::size_t bit = 0; bit < kBitsPerDigit; ++bit) {
      if ((digit >> bit & 1) == 0) continue;
      const std::size_t tensor = i * kBitsPerDigit + bit;
      if (tensor >= tensor_count) return std::nullopt;
      set.Add(tensor);
    }
  }
  return set;
}

std::string TensorSet::ToHex() const {
  std::string text((bits_.size() + kBitsPerDigit - 1) / kBitsPerDigit, '0');
  for (std::size_t i = 0; i < text.size(); ++i) {
    std::size_t digit = 0;
    for (std::size_t bit = 0; bit < kBitsPerDigit; ++bit) {
      const std::size_t tensor = i * kBitsPerDigit + bit;
      if (tensor < bits_.size() && bits_[tensor]) digit |= std::size_t{1} << bit;
    }
    text[i] = kDigits[digit];
  }
  return text;
}

std::optional<std::size_t> TensorSet::Merge(const TensorSet& other) {
  SEGUE_CHECK(other.bits_.size() == bits_.size());
  for (std::size_t tensor = 0; tensor < bits_.size(); ++tensor) {
    if (!other.bits_[tensor]) continue;
    if (bits_[tensor]) return tensor;
    bits_[tensor] = true;
  }
  return std::nullopt;
}

std::optional<std::size_t> TensorSet::FirstMissing(const Plan& plan) const {
  SEGUE_CHECK(plan.tensors().size() == bits_.size());
  for (std::size_t tensor = 0; tensor < bits_.size(); ++tensor) {
    if (!bits_[tensor] && plan.tensors()[tensor].size != 0) return tensor;
  }
  return std::nullopt;
}

}  // namespace segue
