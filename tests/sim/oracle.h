// SPDX-License-Identifier: Apache-2.0
//
// Oracle: what every version of the lineage is, byte for byte, from the trainers' own memory. It is
// told of a version by the store at the moment when its manifest comes into being, and knows
// nothing of deltas, digests or states. All checkers compare with it.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "delta/testing.h"
#include "sim/world.h"

namespace segue::sim {

// Weights as a trainer has them: the bytes, and a checkpoint of them.
struct TrainedModel {
  test::Model model;
  std::string directory;
};
using TrainedModelPtr = std::shared_ptr<const TrainedModel>;

class Oracle {
 public:
  Oracle(World& world, const Plan& plan) : world_(world), plan_(plan) {}

  void SetOrigin(TrainedModelPtr origin) { models_[0] = std::move(origin); }
  // A manifest of `version` became visible, put by a trainer whose target was `model`.
  void Learn(std::uint64_t version, const TrainedModelPtr& model);

  const Plan& plan() const { return plan_; }
  std::uint64_t newest() const { return models_.rbegin()->first; }
  // Null where no trainer ever published it.
  TrainedModelPtr Find(std::uint64_t version) const;
  const std::map<std::uint64_t, TrainedModelPtr>& models() const { return models_; }
  // Whether `live` is exactly `version`; where not, `what` says how.
  bool Agrees(std::uint64_t version, const ModelView& live, std::string& what) const;

 private:
  World& world_;
  const Plan& plan_;
  std::map<std::uint64_t, TrainedModelPtr> models_;
};

}  // namespace segue::sim
