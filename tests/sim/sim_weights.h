// SPDX-License-Identifier: Apache-2.0
//
// Segments of the simulation: memory that outlives its receiver, with the header words of real
// segments, and the gate in front of it. Words and their order are the real code (SegmentWords); a
// receiver that dies while it writes the record leaves the first few of the stores, as memory
// would.
//
// Checkers here: what is committed is the version that it is called, byte for byte; nothing is
// written while an engine may read.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "live/live_weights.h"
#include "live/segment_header.h"
#include "sim/oracle.h"
#include "sim/world.h"

namespace segue::sim {

// What shared memory holds of one segment.
class SimSegment {
 public:
  SimSegment(std::string name, const Plan& plan, std::string lineage);

  const std::string& name() const { return name_; }
  const Plan& plan() const { return plan_; }
  const std::string& lineage() const { return lineage_; }
  MutableModelView view();
  test::Model Copy() const { return model_; }
  bool Has(const std::byte* place);
  SegmentWords words() { return SegmentWords(header_.data()); }
  std::byte* header() { return header_.data(); }
  bool closed() { return words().gate().load() != kGateOpen; }

  // Engines, by slot: how many threads are inside, and who is alive.
  std::uint32_t inside(unsigned slot) { return words().inside(slot).load(); }
  void Enter(unsigned slot) { ++words().inside(slot); }
  void Leave(unsigned slot) { --words().inside(slot); }
  // By the receiver, of those who died inside.
  void Bury();
  bool empty();
  std::vector<const Process*> engines;  // By slot; null: free.

  bool held = false;                             // By a receiver that lives.
  bool removed = false;                          // Engines that have it attach anew.
  std::map<const std::byte*, unsigned> applied;  // By chunk: how often, since the gate was closed.

 private:
  const std::string name_;
  const Plan plan_;
  const std::string lineage_;
  alignas(64) std::vector<std::byte> header_;
  test::Model model_;
};

// The segment that this byte of weights lies in.
using SegmentAt = std::function<SimSegment*(const std::byte* place)>;

// The machine's shared memory.
class SimMemory {
 public:
  SimMemory(World& world, const Oracle& oracle) : world_(world), oracle_(oracle) {}

  Result<std::unique_ptr<LiveWeights>> Open(const std::string& name);
  Result<std::unique_ptr<LiveWeights>> Create(const std::string& name, const Plan& plan,
                                              const std::string& lineage);
  // Success where there is none.
  Status Remove(const std::string& name);
  // Null where there is none.
  SimSegment* Find(const std::string& name);
  // How often a receiver found an apply that another had not finished.
  std::uint64_t interrupted() const { return interrupted_; }
  // And an update of several segments that it had not come to in this one.
  std::uint64_t announced() const { return announced_; }

 private:
  World& world_;
  const Oracle& oracle_;
  std::map<std::string, std::unique_ptr<SimSegment>> segments_;
  std::vector<std::unique_ptr<SimSegment>> removed_;  // Whoever has them keeps what it has.
  std::uint64_t interrupted_ = 0;
  std::uint64_t announced_ = 0;
};

// The receiver's side; the engines' side is in engine.cc.
class SimGate final : public Gate {
 public:
  SimGate(World& world, SimSegment& segment) : world_(world), segment_(segment) {}
  Status Close(std::chrono::milliseconds deadline) override;
  Status Open() override;

 private:
  World& world_;
  SimSegment& segment_;
};

}  // namespace segue::sim
