// SPDX-License-Identifier: Apache-2.0
//
// LiveWeights: the bytes that an engine computes with, what version they are, and the gate in front
// of them. Bytes and record stay in step by the order of docs/protocol.md, section 6: BeginApply
// before the first byte is written, Commit after the proof.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "checkpoint/plan.h"
#include "delta/live_map.h"
#include "live/gate.h"
#include "live/segment.h"

namespace segue {

class LiveWeights {
 public:
  virtual ~LiveWeights() = default;

  // A plan that was returned stays valid as long as the weights.
  virtual const Plan& plan() const = 0;
  // The same tensors in other chunks: weights that were there before the lineage was do not know
  // how it will cut them. From one thread at a time.
  virtual void AdoptPlan(Plan plan) = 0;
  virtual const LiveMap& map() const = 0;
  virtual Gate& gate() = 0;

  virtual Phase phase() const = 0;
  virtual LiveVersion version() const = 0;
  // Of an update of several lineages, gates closed: the target, and the segments that move with
  // this one, for whoever takes over; phase pending. Of weights that nobody takes over, nothing.
  virtual void Announce(std::uint64_t, const std::vector<std::string>&) {}
  virtual std::vector<std::string> mates() const { return {}; }
  virtual void BeginApply(std::uint64_t target_version) = 0;
  // The bytes are exactly `version`; phase serving.
  virtual void Commit(std::uint64_t version, const Digest& digest) = 0;
  virtual void SetPhase(Phase phase) = 0;
  // Engines attached now.
  virtual unsigned engine_count() const = 0;

  // Digest of all bytes here while the weights are at a version; the version's own unless they are
  // only parts of the model. What moves it is set before Commit.
  virtual Digest local_digest() const { return version().digest; }
  virtual void SetLocalDigest(const Digest&) {}
  // A failure once the bytes are no longer the engine's.
  virtual Status CheckCurrent() const { return {}; }
  // Runs `read` while the bytes are the engine's and stay where they are; a failure without it.
  virtual Status Read(const std::function<Status()>& read) const {
    SEGUE_RETURN_IF_ERROR(CheckCurrent());
    return read();
  }
};

// The plan in use and those before it: status calls read one while another thread adopts the next.
class PlanSlot {
 public:
  // `first` outlives the slot.
  explicit PlanSlot(const Plan& first) : current_(&first) {}
  const Plan& get() const { return *current_.load(std::memory_order_acquire); }
  void Adopt(Plan plan) {
    adopted_.push_back(std::make_unique<const Plan>(std::move(plan)));
    current_.store(adopted_.back().get(), std::memory_order_release);
  }

 private:
  std::vector<std::unique_ptr<const Plan>> adopted_;
  std::atomic<const Plan*> current_;
};

// Weights in a shared memory segment, which other processes attach to and which outlives this one.
// With `remove_as`, its name, a segment that never came to a version goes with these weights: a
// start that failed leaves no memory behind.
std::unique_ptr<LiveWeights> MakeSegmentWeights(std::unique_ptr<Segment> segment,
                                                std::string remove_as = "");

}  // namespace segue
