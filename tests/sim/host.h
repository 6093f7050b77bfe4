// SPDX-License-Identifier: Apache-2.0
//
// Host: a machine with one receiver, its engines, and somebody who operates it: calls of every
// kind, a rebuild where the receiver cannot follow, a fresh checkpoint where even that does not
// help. In half of all runs the weights are in shared memory, which outlives the receiver; else
// they are the process's own and die with it. Some have the weights in two segments, as two
// lineages of a group that move together (of the same versions, so that a mix shows as a
// difference).
//
// Checkers here: a call that fails leaves version and bytes as they were, unless it says that the
// weights are tainted or that they are applied and the gate did not open; a receiver that says that
// it is ready has its gate open and its phase serving; a scrub finds no fault where there is none.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "segue/receiver.h"
#include "sim/sim_environment.h"
#include "sim/site.h"

namespace segue::sim {

class Host {
 public:
  Host(Site& site, unsigned number);

  // The receiver's process, one life. It ends with the simulation.
  void Run(Process& process);
  // At the last version, ready, every byte right. `why`: what is missing.
  bool HasConverged(std::string& why);

  const std::string& name() const { return name_; }
  bool bound() const { return bound_; }
  // Of the segment that moves with the first one; empty where there is none.
  const std::string& further() const { return further_; }

 private:
  using Call = std::function<Status()>;

  ReceiverOptions Options() const;
  std::unique_ptr<Receiver> Open(SimEnvironment& environment);
  std::unique_ptr<Receiver> OpenApart(SimEnvironment& environment);
  Result<std::unique_ptr<Receiver>> TryOpen(SimEnvironment& environment);
  void TakeFreshCheckpoint();
  void FillBound();
  void ReadBound(Process& process);
  // Until the receiver is to be opened anew.
  void Operate(Receiver& receiver);
  bool IsStuck(const ReceiverStatus& status);
  bool Rebuild(Receiver& receiver);
  void Act(Receiver& receiver);
  void ActByPieces(Receiver& receiver, const PrepareRequest& request);
  void FinishOwn(Receiver& receiver, const ReceiverStatus& status);
  Status Checked(Receiver& receiver, const char* what, const Call& call);
  void Check(const ReceiverStatus& status);
  PrepareRequest Request();
  SimSegment* segment();
  // All that it has.
  std::vector<SimSegment*> segments();
  std::vector<test::Model> Copies();

  Site& site_;
  World& world_;
  const std::string name_;
  const bool bound_;
  const std::string further_;
  const bool follow_;
  const bool scrub_;
  TrainedModelPtr checkpoint_;
  bool rebuild_ = false;
  std::uint64_t sessions_ = 0;
  unsigned stuck_looks_ = 0;
  unsigned refusals_ = 0;
  std::unique_ptr<SimSegment> own_;  // Of a bound host, made anew in each life.
  Receiver* receiver_ = nullptr;     // While there is one.
};

}  // namespace segue::sim
