// SPDX-License-Identifier: Apache-2.0
//
// ComparePlans: says in words how two sets of tensors differ (case C4).
#include <algorithm>

#include "checkpoint/plan.h"

namespace segue {
namespace {

// Collects differences; keeps the words of the first few and the count of all.
class Differences {
 public:
  void Add(const std::string& words) {
    constexpr std::uint64_t kShownMax = 8;
    if (++count_ <= kShownMax) text_ += (count_ == 1 ? "" : "; ") + words;
    if (count_ > kShownMax) more_ = "; and " + std::to_string(count_ - kShownMax) + " more";
  }
  bool empty() const { return count_ == 0; }
  std::string text() const { return text_ + more_; }

 private:
  std::uint64_t count_ = 0;
  std::string text_;
  std::string more_;
};

std::string Named(const TensorSpec& spec) { return "tensor " + Quoted(spec.name) + ": "; }

}  // namespace

Status ComparePlans(const Plan& base, const Plan& target, const std::string& base_name,
                    const std::string& target_name) {
  Differences differences;
  const auto in_base = [&](const TensorSpec& spec) {
    return DescribeTensor(spec).append(" in ").append(base_name);
  };
  const auto in_target = [&](const TensorSpec& spec) {
    return DescribeTensor(spec).append(" in ").append(target_name);
  };
  const auto missing = [&](const TensorSpec& spec) {
    differences.Add(Named(spec) + in_base(spec) + ", missing in " + target_name);
  };
  const auto additional = [&](const TensorSpec& spec) {
    differences.Add(Named(spec) + "not in " + base_name + ", " + in_target(spec));
  };
  auto old = base.tensors().begin();
  auto now = target.tensors().begin();
  while (old != base.tensors().end() || now != target.tensors().end()) {
    if (now == target.tensors().end() ||
        (old != base.tensors().end() && old->spec.name < now->spec.name)) {
      missing((old++)->spec);
    } else if (old == base.tensors().end() || now->spec.name < old->spec.name) {
      additional((now++)->spec);
    } else {
      if (old->spec != now->spec) {
        differences.Add(Named(old->spec) + in_base(old->spec) + ", " + in_target(now->spec));
      }
      ++old;
      ++now;
    }
  }
  if (differences.empty()) return {};
  return InvalidArgument(base_name + " and " + target_name +
                         " do not have the same tensors: " + differences.text());
}

}  // namespace segue
