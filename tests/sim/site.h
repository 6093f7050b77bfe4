// SPDX-License-Identifier: Apache-2.0
//
// Site: what the actors of one simulation share: world, store, shared memory, oracle, checkpoints
// on a real (temporary) folder, and the shape of this seed's run.
#pragma once

#include <memory>
#include <string>

#include "checkpoint/plan.h"
#include "sim/oracle.h"
#include "sim/sim_store.h"
#include "sim/sim_weights.h"
#include "sim/world.h"

namespace segue::sim {

inline constexpr char kLineageName[] = "run";
inline constexpr char kStoreUrl[] = "sim:store";

// What kind of run a seed makes.
struct Shape {
  unsigned hosts = 1;           // Receivers, each with its engines.
  bool second_trainer = false;  // One that believes it is the only one.
  bool buffers = false;         // Versions come from buffers, by Publisher.
  bool anchors = false;         // The trainers keep anchors.
  bool owners = false;          // Some versions come from two owners.
  bool goes_back = false;       // The trainer restarts from older checkpoints now and then.
  bool pruner = false;          // Somebody prunes beside the trainers.
  std::uint64_t retain = 0;
  std::string profile;

  static Shape FromSeed(Random& random);
};

class Site {
 public:
  Site(World& world, const Shape& shape, std::string directory);

  World& world;
  const Shape shape;
  const Plan plan;
  StoreState store;
  Oracle oracle;
  SimMemory memory;
  // Faults have stopped; what is under way comes to its end.
  bool ending = false;
  // Trainers that have not come to their end.
  unsigned trainers = 0;
  // Figures for the report.
  std::uint64_t published = 0;
  std::uint64_t updates = 0;
  std::uint64_t takeovers = 0;
  std::uint64_t rebuilds = 0;

  const std::string& directory() const { return directory_; }
  // A checkpoint of these weights.
  TrainedModelPtr Save(const test::Model& model);
  // Runs `body` as a process of its own that is started again whenever it dies, until `body` ends
  // by itself.
  void Supervise(const std::string& name, std::function<void(Process&)> body);

 private:
  const std::string directory_;
  std::uint64_t saved_ = 0;
  Process& harness_;
};

}  // namespace segue::sim
