// SPDX-License-Identifier: Apache-2.0
//
// LiveLineage: the weights of one lineage at an engine, with the store that they come from and the
// gate and ranks in front of them: what can be done with them, step by step. The order of the
// steps, also across several lineages of one engine, is LiveEngine's (live/live_engine.h).
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "checkpoint/checkpoint.h"
#include "live/live_environment.h"
#include "live/prepared_update.h"
#include "live/ranks.h"
#include "segue/receiver.h"

namespace segue {

class LiveLineage {
 public:
  LiveLineage(ReceiverOptions options, LiveEnvironment& environment);

  // --- At the start.
  // The weights, as they were left; or those of `model`, proven.
  Status Hold();
  Status HoldBound(BoundModel model);
  // Whether a start from the checkpoint comes to its version, before anything is given up for it.
  Status CheckStart() const;
  // What is to be rebuilt and is of another lineage or model makes place for what is asked for.
  Status MakeFit();
  // Weights that this start made go; those that it found stay.
  Status DropFresh();
  // Those that were held are a version's; not those that are to be loaded.
  Status TakeOver();
  // Whether a rebuild would find its checkpoint.
  Status CheckCheckpoint() const;
  // What was only announced must be gone on with, since other lineages have begun.
  void MakeDue();

  // --- Before the pause.
  // What can be said of a request before anything is read.
  Status CheckRequest(const PrepareRequest& request) const;
  // Whether a rebuild can come to `target` (the newest), before anything is given up for it.
  Status CheckRebuild(std::optional<std::uint64_t> target) const;
  // All ranks have theirs, and together they prove the base; or none does.
  Result<std::unique_ptr<PreparedUpdate>> MakeUpdate(const PrepareRequest& request,
                                                     const std::stop_token& stop);
  // On offer, ascending. Each call is a look at the store.
  Result<std::vector<std::uint64_t>> Versions() const;
  // Of the looks: the newest version in the last one that went well (0: none), and those that did
  // not go well.
  std::uint64_t newest_seen() const { return newest_seen_; }
  std::uint64_t look_failures() const { return look_failures_; }

  // --- The pause.
  // Every rank's gate, or none: where one does not close, the others open again (`reopen`), unless
  // they were closed before and must stay so.
  Status CloseGates(std::uint64_t target, std::chrono::milliseconds deadline, bool reopen);
  Status OpenGate() { return weights_->gate().Open(); }
  // Gates closed, unless no byte changes. Tainted: poisoned, at every rank.
  Status Apply(PreparedUpdate& update);

  // --- The checkpoint's bytes again.
  // Before the first of them: gates closed, or as before. With `so_far` a failure, at no rank.
  Status OpenToLoad(const Status& so_far);
  Status GiveUpLoad();
  Status Load();

  // Corruption once the bytes were found to be no longer what is held, until they are loaded anew;
  // VersionMismatch while they are no version of the lineage that has appeared since the start.
  Status CheckHealth() const;
  // Unavailable while bound weights are only said to be the base of a lineage that had no version.
  Status CheckProven() const;
  // Whether the store has been seen to have the lineage; of weights that do not look by themselves,
  // not asked.
  bool is_known() const { return knows_plan_ || !options_.catch_up; }
  // Somebody else's scan found it.
  void MarkWrong() { is_wrong_ = true; }
  // How that is said.
  Status Wrong() const;

  LiveWeights& weights() const { return *weights_; }
  Store& store() const { return *store_; }
  const ReceiverOptions& options() const { return options_; }
  bool has_ranks() const { return ranks_.several(); }
  // They are the checkpoint's, besides what was applied to them since.
  bool was_loaded() const { return was_loaded_; }
  // At the start: the checkpoint is to be read, and where it is, there may be weights to lose.
  bool is_to_load() const { return options_.rebuild || weights_->phase() == Phase::kLoading; }
  bool has_weights() const {
    return weights_->phase() != Phase::kLoading && weights_->phase() != Phase::kPoisoned;
  }
  // The gate may have been open when the weights were found.
  bool was_serving() const { return was_serving_; }
  // "policy/8": what an engine is told, and may key its caches by.
  std::string VersionLabel() const;

 private:
  Status OpenStore();
  Status CheckPlan(const PrepareRequest& request) const;
  Status CheckManifest(std::uint64_t version, const std::string& expected) const;
  Result<std::unique_ptr<PreparedUpdate>> MakeOwnUpdate(const PrepareRequest& request,
                                                        const std::stop_token& stop);
  Status NoteLineage();
  Status FindFault(const Status& failure, const std::stop_token& stop);
  // Notes that the weights are no version, and which tensors are to blame, told once.
  Status MarkStrange(const Status& failure, const std::stop_token& stop);

  const ReceiverOptions options_;
  LiveEnvironment& environment_;
  std::unique_ptr<Store> store_;
  std::shared_ptr<Device> foreground_;
  std::shared_ptr<Device> background_;
  std::unique_ptr<Gate> gate_;  // Of bound weights.
  Ranks ranks_;
  std::unique_ptr<LiveWeights> weights_;
  std::optional<Checkpoint> to_load_;  // Between OpenToLoad and Load.
  bool was_serving_ = true;
  bool is_fresh_ = false;
  bool was_loaded_ = false;
  mutable std::atomic<std::uint64_t> newest_seen_{0};
  mutable std::atomic<std::uint64_t> look_failures_{0};
  std::atomic<bool> knows_plan_{false};  // The weights have been a version of the lineage, which
                                         // has their plan.
  // The number that is held came from a segment's record or an update; else from the bytes alone.
  std::atomic<bool> is_recorded_{false};
  std::atomic<bool> is_unproven_{false};  // Bound before there was a lineage.
  std::atomic<bool> is_strange_{false};   // There is a lineage, and they are none of its versions.
  mutable std::mutex strange_mutex_;
  Status strange_;                     // How that is said.
  std::atomic<bool> is_wrong_{false};  // A scan found other bytes than the version's.
};

}  // namespace segue
