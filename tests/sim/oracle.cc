// SPDX-License-Identifier: Apache-2.0
//
// Oracle.
#include "sim/oracle.h"

#include <cstring>

namespace segue::sim {

void Oracle::Learn(std::uint64_t version, const TrainedModelPtr& model) {
  const auto [entry, added] = models_.emplace(version, model);
  if (added || entry->second->model == model->model) return;
  world_.Violate("two-contents",
                 "version " + std::to_string(version) + " was published before, with other bytes");
}

TrainedModelPtr Oracle::Find(std::uint64_t version) const {
  const auto found = models_.find(version);
  return found == models_.end() ? nullptr : found->second;
}

bool Oracle::Agrees(std::uint64_t version, const ModelView& live, std::string& what) const {
  const TrainedModelPtr known = Find(version);
  if (!known) {
    what = "version " + std::to_string(version) + " was never published";
    return false;
  }
  const ModelView expected = known->model.view();
  for (std::size_t t = 0; t < plan_.tensors().size(); ++t) {
    const std::uint64_t size = plan_.tensors()[t].size;
    if (size == 0 || std::memcmp(live.Tensor(t), expected.Tensor(t), size) == 0) continue;
    what = "tensor " + std::to_string(t) + " is not that of version " + std::to_string(version);
    return false;
  }
  return true;
}

}  // namespace segue::sim
