// SPDX-License-Identifier: Apache-2.0
//
// LiveEngine: what an update acts on, as one thing: the engine's weights, of one lineage or of
// several in a fixed order, the gates in front of them, and its own control where it has one. Knows
// the order of the steps and what to take back when one fails; not who asks for them, nor when
// (that is the receiver's).
//
// What must hold with several lineages (docs/protocol.md, section 15): gates close in the order of
// the lineages and nothing is written before all are closed; none opens before all are applied.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "live/engine_steps.h"
#include "live/live_environment.h"
#include "live/live_lineage.h"
#include "live/prepared_update.h"
#include "segue/receiver.h"

namespace segue {

// `failure`, and, if what it took back is not back, that too.
Status WithOutcomeOf(const Status& taken_back, const Status& failure);

// What is asked of each lineage; nothing: it stays.
struct EngineRequest {
  std::string session = {};
  std::vector<std::optional<PrepareRequest>> lineages = {};
  // Without a target the newest is the highest number that all lineages offer.
  bool same_version = false;

  bool operator==(const EngineRequest&) const = default;
};

// An update of the lineages that take part, staged and proven.
class EngineUpdate {
 public:
  explicit EngineUpdate(std::size_t count) : parts_(count), moves_(count) {}

  void Add(std::size_t i, std::unique_ptr<PreparedUpdate> part, std::uint64_t held);
  // Null: the lineage stays.
  PreparedUpdate* part(std::size_t i) const { return parts_[i].get(); }
  // Whether any byte changes at all: then there is a pause.
  bool changes_bytes() const;
  // Whether it closes the gate of this lineage.
  bool holds(std::size_t i) const { return moves_[i] && changes_bytes(); }
  // How many it holds.
  unsigned held_count() const;

 private:
  std::vector<std::unique_ptr<PreparedUpdate>> parts_;
  std::vector<bool> moves_;
};

class LiveEngine {
 public:
  // At least one lineage.
  LiveEngine(const std::vector<ReceiverOptions>& lineages, EngineHooks hooks,
             LiveEnvironment& environment);

  // --- At the start: weights that are a version's, the engine paused.
  Status Hold();
  Status HoldBound(std::vector<BoundModel> models);
  // A start that failed leaves the engine running, if its weights are a version's and its caches
  // are theirs.
  Status LetGoUnless(const Status& begun);
  // Of a start over segments: what somebody should know, though it serves.
  Status Doubts() const;
  // A start that is refused once all weights are versions leaves none behind that it made.
  Status DropFresh(const Status& refused);

  // --- Before the pause.
  // What can be said of a request before anything is read.
  Status CheckRequest(const EngineRequest& request) const;
  // Whether a rebuild can come to the targets (the newest), before anything is given up for it.
  Status CheckRebuild(const EngineRequest& request) const;
  // Of all lineages that are asked, at all ranks; or of none.
  Result<std::unique_ptr<EngineUpdate>> MakeUpdate(EngineRequest request,
                                                   const std::stop_token& stop);
  // The highest number that all lineages offer. Nothing: there is none, or one is beyond it.
  Result<std::optional<std::uint64_t>> CommonVersion() const;

  // --- The pause.
  // Engine paused and every gate closed, or both as before.
  Status Close(const EngineUpdate& update, const ApplyChoices& choices);
  // Gates closed, unless no byte changes. Tainted: poisoned, at every rank.
  Status Apply(EngineUpdate& update);
  // What is left at an engine with control of its own. `flush`: its caches are older.
  Status Finish(bool flush) {
    return steps_.present() ? steps_.Finish(flush, VersionLabel()) : Status();
  }
  // The gates that it closed.
  Status OpenGates(const EngineUpdate& update);

  // --- All at once.
  // From proven versions to the targets (the newest), the gates as they may be. `reopen`: those
  // that were open open again where one cannot be closed everywhere. Null: there is no version yet.
  Result<std::unique_ptr<EngineUpdate>> CatchUp(EngineRequest request, bool reopen);
  // The checkpoints' bytes again: every gate closed first, or all as before; with `so_far` a
  // failure, at no rank. After a load that failed the weights of all are no version's.
  Status CloseToLoad(const Status& so_far);
  Status Load();
  // An engine that is there is paused.
  Status Pause();
  // Caches that may be older than the weights go, the engine learns the versions, the gates are
  // open and the engine goes on.
  Status LetGo();

  // Of a start that loaded anew what engines had been let into: since when they were kept out,
  // when all gates were closed, and what was held before.
  struct StartPause {
    Environment::Clock::time_point began;
    Environment::Clock::time_point closed;
    std::vector<std::uint64_t> held;
  };
  const std::optional<StartPause>& start_pause() const { return start_pause_; }

  // All lineages are a version's.
  bool IsServing() const;
  // Whoever applied or loaded them could not prove it.
  void Poison();

  // With several lineages a failure names the one that it is about.
  Status Of(std::size_t i, const Status& status) const;

  std::size_t size() const { return lineages_.size(); }
  LiveLineage& lineage(std::size_t i) const { return *lineages_[i]; }
  LiveWeights& weights(std::size_t i = 0) const { return lineages_[i]->weights(); }
  EngineSteps& steps() { return steps_; }
  const EngineSteps& steps() const { return steps_; }

 private:
  Status CheckMates() const;
  Status CheckLoad() const;
  Status TakeOver();
  std::vector<std::size_t> All() const;
  Status CloseTheseToLoad(const std::vector<std::size_t>& which, const Status& so_far);
  Status LoadThese(const std::vector<std::size_t>& which);
  Status CloseGates(const EngineUpdate& update, bool reopen, bool at_start);
  void Announce(const EngineUpdate& update);
  std::string VersionLabel() const;
  LiveEnvironment& environment_;
  std::vector<std::unique_ptr<LiveLineage>> lineages_;
  EngineSteps steps_;
  std::optional<StartPause> start_pause_;
};

}  // namespace segue
