// SPDX-License-Identifier: Apache-2.0
//
// LiveWeights: the bytes that an engine computes with, what version they are, and the gate in front
// of them. Bytes and record stay in step by the order of docs/protocol.md, section 6: BeginApply
// before the first byte is written, Commit after the proof.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "checkpoint/plan.h"
#include "delta/model_view.h"
#include "live/gate.h"
#include "live/segment.h"

namespace segue {

class LiveWeights {
 public:
  virtual ~LiveWeights() = default;

  virtual const Plan& plan() const = 0;
  virtual MutableModelView view() = 0;
  virtual Gate& gate() = 0;

  virtual Phase phase() const = 0;
  virtual LiveVersion version() const = 0;
  virtual void BeginApply(std::uint64_t target_version) = 0;
  // The bytes are exactly `version`; phase serving.
  virtual void Commit(std::uint64_t version, const Digest& digest) = 0;
  virtual void SetPhase(Phase phase) = 0;
  // Engines attached now.
  virtual unsigned engine_count() const = 0;
};

// Weights in a shared memory segment, which other processes attach to and which outlives this one.
std::unique_ptr<LiveWeights> MakeSegmentWeights(std::unique_ptr<Segment> segment);

// Weights in buffers of this process, behind the gate that it gives. `view` stays valid while the
// weights are in use.
std::unique_ptr<LiveWeights> MakeBoundWeights(Plan plan, MutableModelView view,
                                              const std::string& lineage, Gate& gate);

}  // namespace segue
