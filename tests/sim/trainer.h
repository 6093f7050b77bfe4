// SPDX-License-Identifier: Apache-2.0
//
// Trainer: changes weights and publishes each step by the real Publish(), alone or as two owners;
// when it cannot, it starts again from a checkpoint of a published version, as trainers do. Two of
// them at once are two that each believe to be the only one.
//
// Checkers here: a publish that succeeded is in the store under the number that it reports, with
// the trainer's bytes; the digest in a manifest is that of the bytes.
#pragma once

#include <string>

#include "sim/site.h"

namespace segue::sim {

class Trainer {
 public:
  // `primary`: the one that publishes once more when faults have stopped; the other ends then.
  Trainer(Site& site, std::string name, bool primary)
      : site_(site), name_(std::move(name)), primary_(primary) {}

  // One life.
  void Run(Process& process);

 private:
  struct Start {
    TrainedModelPtr model;
    bool branch = false;
  };

  Start StartFrom();
  TrainedModelPtr Train(const TrainedModelPtr& base);
  bool PublishStep(const Start& from, const TrainedModelPtr& next);
  bool PublishOnce(const Start& from, const TrainedModelPtr& next, bool owners);
  StoreState::Observer ObserverOf(const TrainedModelPtr& model);
  void CheckPublished(std::uint64_t version, const TrainedModelPtr& model);

  Site& site_;
  const std::string name_;
  const bool primary_;
  std::uint64_t attempts_ = 0;
};

// Prunes now and then, beside the trainers.
void RunPruner(Site& site);

}  // namespace segue::sim
