// SPDX-License-Identifier: Apache-2.0
//
// Trainer: changes weights and publishes each step, by the real Publish() from checkpoints (alone
// or as two owners) or by the real Publisher from its buffers; when it cannot, it starts again from
// a published version, as trainers do. Two of them at once are two that each believe to be the only
// one.
//
// Checkers here: a publish that succeeded is in the store under the number that it reports, with
// the trainer's bytes; the digest in a manifest is that of the bytes.
#pragma once

#include <memory>
#include <string>

#include "segue/publisher.h"
#include "sim/sim_environment.h"
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
  // What it has, and what its publisher takes for published.
  struct State {
    TrainedModelPtr model;
    bool branch = false;
    std::unique_ptr<Publisher> publisher;  // Where it publishes from buffers.
  };

  State StartFrom();
  TrainedModelPtr Train(const TrainedModelPtr& base);
  bool PublishStep(State& from, const TrainedModelPtr& next);
  Result<PublishReport> PublishCheckpoint(const State& from, bool owners);
  Result<PublishReport> PublishBuffers(State& from);
  StoreState::Observer ObserverOf(const TrainedModelPtr& model);
  void CheckPublished(std::uint64_t version, const TrainedModelPtr& model);

  Site& site_;
  const std::string name_;
  const bool primary_;
  std::uint64_t attempts_ = 0;
  TrainedModelPtr publishing_;
  SimEnvironment environment_{site_.world, site_.store, site_.memory,
                              [this] { return ObserverOf(publishing_); },
                              [](const std::byte*) { return nullptr; }};
};

// Prunes now and then, beside the trainers.
void RunPruner(Site& site);

}  // namespace segue::sim
