// SPDX-License-Identifier: Apache-2.0
//
// LiveEngine: what an update acts on, as one thing: the engine's weights, the gates and ranks in
// front of them, and its own control where it has one. Knows the order of the steps and what to
// take back when one fails; not who asks for them, nor when (that is the receiver's).
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>

#include "live/engine_steps.h"
#include "live/live_environment.h"
#include "live/prepared_update.h"
#include "live/ranks.h"
#include "segue/receiver.h"

namespace segue {

// `failure`, and, if what it took back is not back, that too.
Status WithOutcomeOf(const Status& taken_back, const Status& failure);

class LiveEngine {
 public:
  LiveEngine(ReceiverOptions options, LiveEnvironment& environment);

  // --- At the start: weights that are a version's, the engine paused.
  Status Hold();
  Status HoldBound(BoundModel model);
  // A start that failed leaves the engine running, if its weights are a version's and its caches
  // are theirs.
  Status LetGoUnless(const Status& begun);

  // --- Before the pause.
  // What can be said of a request before anything is read.
  Status CheckRequest(const PrepareRequest& request) const;
  // Whether a rebuild can come to `target` (the newest), before anything is given up for it.
  Status CheckRebuild(std::optional<std::uint64_t> target) const;
  // All ranks have theirs, and together they prove the base; or none does.
  Result<std::unique_ptr<PreparedUpdate>> MakeUpdate(const PrepareRequest& request,
                                                     const std::stop_token& stop);

  // --- The pause.
  // Engine paused and every gate closed, or both as before.
  Status Close(std::uint64_t target, const ApplyChoices& choices);
  // Gates closed, unless no byte changes. Tainted: poisoned, at every rank.
  Status Apply(PreparedUpdate& update);
  // What is left at an engine with control of its own. `flush`: its caches are older.
  Status Finish(bool flush) { return steps_.Finish(flush, VersionLabel()); }

  // --- All at once.
  // From a proven version to `target` (the newest), the gate as it may be. `reopen`: it was open,
  // and opens again where it cannot be closed everywhere. Nothing: there is no version yet.
  Result<std::optional<UpdateReport>> CatchUp(std::optional<std::uint64_t> target, bool reopen);
  // The checkpoint's bytes again; with `so_far` a failure, at no rank.
  Status Load(const Status& so_far);
  // An engine that is there is paused.
  Status Pause();
  // Caches that may be older than the weights go, the engine learns the version, the gate is open
  // and the engine goes on.
  Status LetGo();

  // Corruption once the bytes were found to be no longer what is held, until they are loaded anew;
  // VersionMismatch while they are no version of the lineage that has appeared since the start.
  Status CheckHealth() const;
  // Somebody else's scan found it.
  void MarkWrong() { is_wrong_ = true; }
  // How that is said.
  Status Wrong() const;

  LiveWeights& weights() const { return *weights_; }
  EngineSteps& steps() { return steps_; }
  const EngineSteps& steps() const { return steps_; }
  Store& store() const { return *store_; }
  const ReceiverOptions& options() const { return options_; }
  bool has_ranks() const { return ranks_.several(); }

 private:
  Status OpenStore();
  Status CheckPlan(const PrepareRequest& request) const;
  Status CheckManifest(std::uint64_t version, const std::string& expected) const;
  Result<std::unique_ptr<PreparedUpdate>> MakeOwnUpdate(const PrepareRequest& request,
                                                        const std::stop_token& stop);
  Status CloseGates(std::uint64_t target, bool reopen);
  std::string VersionLabel() const;
  Status FindFault(const Status& failure, const std::stop_token& stop);

  const ReceiverOptions options_;
  LiveEnvironment& environment_;
  std::unique_ptr<Store> store_;
  std::unique_ptr<Device> foreground_;
  std::unique_ptr<Device> background_;
  std::unique_ptr<Gate> gate_;  // Of bound weights.
  Ranks ranks_;
  EngineSteps steps_;
  std::unique_ptr<LiveWeights> weights_;
  std::atomic<bool> knows_plan_{false};  // The weights have been a version of the lineage, which
                                         // has their plan.
  std::atomic<bool> is_strange_{false};  // There is a lineage, and they are none of its versions.
  std::atomic<bool> is_wrong_{false};    // A scan found other bytes than the version's.
};

}  // namespace segue
