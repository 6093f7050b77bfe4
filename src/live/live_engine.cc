// SPDX-License-Identifier: Apache-2.0
//
// LiveEngine: docs/protocol.md, sections 7 (the pause), 8 (engine control) and 15 (several
// lineages).
#include "live/live_engine.h"

#include <algorithm>
#include <numeric>
#include <set>
#include <utility>

#include "base/check.h"
#include "base/out_of_memory.h"
#include "live/takeover.h"

namespace segue {

using std::chrono::milliseconds;

Status WithOutcomeOf(const Status& taken_back, const Status& failure) {
  return taken_back.ok()
             ? failure
             : CatchOutOfMemory([&] { return failure.WithContext(taken_back.message()); });
}

void EngineUpdate::Add(std::size_t i, std::unique_ptr<PreparedUpdate> part, std::uint64_t held) {
  parts_[i] = std::move(part);
  moves_[i] = parts_[i]->changes_bytes() || parts_[i]->report().target_version != held;
}

bool EngineUpdate::changes_bytes() const {
  return std::ranges::any_of(parts_,
                             [](const auto& part) { return part && part->changes_bytes(); });
}

unsigned EngineUpdate::held_count() const {
  unsigned count = 0;
  for (std::size_t i = 0; i < parts_.size(); ++i) count += holds(i) ? 1 : 0;
  return count;
}

LiveEngine::LiveEngine(const std::vector<ReceiverOptions>& lineages, EngineHooks hooks,
                       LiveEnvironment& environment)
    : environment_(environment), steps_(std::move(hooks)) {
  for (const ReceiverOptions& options : lineages) {
    lineages_.push_back(std::make_unique<LiveLineage>(options, environment));
  }
}

Status LiveEngine::Of(std::size_t i, const Status& status) const {
  if (status.ok() || size() == 1) return status;
  Status named = status;
  (void)CatchOutOfMemory([&]() -> Status {
    const std::string name = "lineage '" + lineage(i).options().lineage + "'";
    named = status.message().starts_with(name) ? status : status.WithContext(name);
    return {};
  });
  return named;
}

Status LiveEngine::Hold() {
  for (std::size_t i = 0; i < size(); ++i) SEGUE_RETURN_IF_ERROR(Of(i, lineage(i).Hold()));
  SEGUE_RETURN_IF_ERROR(CheckMates());
  SEGUE_RETURN_IF_ERROR(CheckLoad());
  for (std::size_t i = 0; i < size(); ++i) SEGUE_RETURN_IF_ERROR(Of(i, lineage(i).MakeFit()));
  SEGUE_RETURN_IF_ERROR(Pause());
  return LetGoUnless(TakeOver());
}

// Whether an update had begun can be told by all that took part in it, together; and where one is
// poisoned none serves.
Status LiveEngine::CheckMates() const {
  std::set<std::string> names;
  for (const auto& lineage : lineages_) names.insert(lineage->options().name);
  for (const auto& lineage : lineages_) {
    const Phase phase = lineage->weights().phase();
    if (lineage->options().rebuild) continue;
    const std::vector<std::string> mates = lineage->weights().mates();
    const bool is_amid = phase == Phase::kPending || phase == Phase::kDue;
    if (is_amid && mates.empty()) {
      return Corruption("segment '" + lineage->options().name +
                        "' was left in the middle of an update of several lineages and does not "
                        "say which: rebuild it (--rebuild)");
    }
    for (const std::string& mate : mates) {
      if (names.contains(mate)) continue;
      const char* const left = is_amid ? "was left in the middle of an update"
                               : environment_.IsPoisoned(mate)
                                   ? "was moved, and none serves without the others,"
                                   : nullptr;
      if (left == nullptr) continue;
      const std::string poisoned = is_amid ? "" : ", which is poisoned";
      return Unavailable("segment '" + lineage->options().name + "' " + left +
                         " together with segment '" + mate + "'" + poisoned +
                         ": open both with one receiver (--with), or rebuild it (--rebuild)");
    }
  }
  return {};
}

// A start that would overwrite what can serve is refused before, if it cannot come to its versions.
Status LiveEngine::CheckLoad() const {
  const bool may_lose = std::ranges::any_of(lineages_, [](const auto& lineage) {
    return lineage->is_to_load() && lineage->has_weights();
  });
  if (!may_lose) return {};
  for (std::size_t i = 0; i < size(); ++i) {
    if (lineage(i).is_to_load()) SEGUE_RETURN_IF_ERROR(Of(i, lineage(i).CheckStart()));
  }
  return {};
}

// One that is due or applying says that all had been announced, and others may be there already.
// Before any of them gets there, all are made due, so that the next receiver would see it too.
Status LiveEngine::TakeOver() {
  const bool begun = std::ranges::any_of(lineages_, [](const auto& lineage) {
    const Phase phase = lineage->weights().phase();
    return phase == Phase::kDue || phase == Phase::kApplying;
  });
  if (begun) {
    for (const auto& lineage : lineages_) lineage->MakeDue();
  }
  std::vector<std::size_t> fresh;
  for (std::size_t i = 0; i < size(); ++i) {
    if (lineage(i).is_to_load()) fresh.push_back(i);
  }
  if (!fresh.empty()) {
    const bool pauses =
        std::ranges::any_of(fresh, [this](std::size_t i) { return lineage(i).was_serving(); });
    StartPause pause{environment_.Now(), {}, {}};
    for (std::size_t i = 0; i < size(); ++i) pause.held.push_back(weights(i).version().version);
    SEGUE_RETURN_IF_ERROR(CloseTheseToLoad(fresh, {}));
    pause.closed = environment_.Now();
    if (pauses) start_pause_ = std::move(pause);
    SEGUE_RETURN_IF_ERROR(LoadThese(fresh));
  }
  for (std::size_t i = 0; i < size(); ++i) {
    if (std::ranges::find(fresh, i) != fresh.end()) continue;
    SEGUE_RETURN_IF_ERROR(Of(i, lineage(i).TakeOver()));
  }
  return {};
}

Status LiveEngine::HoldBound(std::vector<BoundModel> models) {
  for (std::size_t i = 0; i < size(); ++i) {
    SEGUE_RETURN_IF_ERROR(Of(i, lineage(i).HoldBound(std::move(models[i]))));
  }
  return Pause();
}

bool LiveEngine::IsServing() const {
  return std::ranges::all_of(
      lineages_, [](const auto& lineage) { return lineage->weights().phase() == Phase::kServing; });
}

void LiveEngine::Poison() {
  for (const auto& lineage : lineages_) lineage->weights().SetPhase(Phase::kPoisoned);
}

// One that is not there has not started, unless it is attached.
Status LiveEngine::Pause() {
  Status paused = steps_.Pause({}, IsServing());
  const bool attached = std::ranges::any_of(
      lineages_, [](const auto& lineage) { return lineage->weights().engine_count() != 0; });
  return paused.code() == StatusCode::kNotFound && !attached ? Status() : paused;
}

Status LiveEngine::LetGoUnless(const Status& begun) {
  if (begun.ok() || !steps_.paused() || !IsServing()) return begun;
  return WithOutcomeOf(LetGo(), begun);
}

// Reasons to warn, not to refuse: engines that were served well must not wait for it.
Status LiveEngine::Doubts() const {
  std::set<std::string> names;
  for (const auto& lineage : lineages_) names.insert(lineage->options().name);
  for (std::size_t i = 0; i < size(); ++i) {
    SEGUE_RETURN_IF_ERROR(Of(i, lineage(i).CheckCheckpoint()));
    for (const std::string& mate : weights(i).mates()) {
      if (names.contains(mate)) continue;
      return Unavailable("segment '" + lineage(i).options().name +
                         "' was moved together with segment '" + mate +
                         "', which this receiver does not hold: engines that read both want one "
                         "receiver of both (--with)");
    }
  }
  return {};
}

Status LiveEngine::DropFresh(const Status& refused) {
  Status outcome = LetGoUnless(refused);
  for (const auto& lineage : lineages_) outcome = WithOutcomeOf(lineage->DropFresh(), outcome);
  return outcome;
}

Status LiveEngine::CheckRequest(const EngineRequest& request) const {
  for (std::size_t i = 0; i < size(); ++i) {
    if (!request.lineages[i]) continue;
    SEGUE_RETURN_IF_ERROR(Of(i, lineage(i).CheckRequest(*request.lineages[i])));
  }
  return {};
}

Status LiveEngine::CheckRebuild(const EngineRequest& request) const {
  if (!IsServing()) return {};  // Nothing to lose.
  for (std::size_t i = 0; i < size(); ++i) {
    SEGUE_CHECK(request.lineages[i]);
    SEGUE_RETURN_IF_ERROR(Of(i, lineage(i).CheckRebuild(request.lineages[i]->target_version)));
  }
  return {};
}

Result<std::optional<std::uint64_t>> LiveEngine::CommonVersion() const {
  std::vector<std::uint64_t> common;
  std::uint64_t held = 0;
  for (std::size_t i = 0; i < size(); ++i) {
    auto versions = lineage(i).Versions();
    if (!versions.ok()) return Of(i, versions.status());
    held = std::max(held, weights(i).version().version);
    if (i == 0) {
      common = std::move(versions).value();
      continue;
    }
    std::erase_if(common, [&](std::uint64_t version) {
      return !std::ranges::binary_search(*versions, version);
    });
  }
  if (common.empty() || common.back() < held) return std::optional<std::uint64_t>();
  return std::optional(common.back());
}

Result<std::unique_ptr<EngineUpdate>> LiveEngine::MakeUpdate(EngineRequest request,
                                                             const std::stop_token& stop) {
  std::optional<std::uint64_t> common;
  if (request.same_version) {
    SEGUE_ASSIGN_OR_RETURN(common, CommonVersion());
    if (!common) {
      return VersionMismatch(
          "the lineages have no version of one number to go to: none that all "
          "offer, or one of them is beyond it");
    }
  }
  auto update = std::make_unique<EngineUpdate>(size());
  for (std::size_t i = 0; i < size(); ++i) {
    std::optional<PrepareRequest>& part = request.lineages[i];
    if (!part) continue;
    if (!part->target_version) part->target_version = common;
    auto made = lineage(i).MakeUpdate(*part, stop);
    if (!made.ok()) return Of(i, made.status());
    update->Add(i, std::move(made).value(), weights(i).version().version);
  }
  return update;
}

Status LiveEngine::Close(const EngineUpdate& update, const ApplyChoices& choices) {
  SEGUE_RETURN_IF_ERROR(steps_.Pause(choices, /*may_run=*/true));
  Status closed = CloseGates(update, /*reopen=*/true, /*at_start=*/false);
  if (closed.ok()) return closed;
  return WithOutcomeOf(steps_.CallOff(), closed);
}

// In the order in which engines enter, so that who is inside one finds the next ones open. One
// deadline for all.
Status LiveEngine::CloseGates(const EngineUpdate& update, bool reopen, bool at_start) {
  const milliseconds deadline = lineage(0).options().gate_deadline;
  const auto begun = environment_.Now();
  for (std::size_t i = 0; i < size(); ++i) {
    if (!update.holds(i)) continue;
    const auto passed = std::chrono::duration_cast<milliseconds>(environment_.Now() - begun);
    const auto may_open = [&](std::size_t k) {
      return reopen && (!at_start || size() == 1 || lineage(k).was_serving());
    };
    Status closed =
        lineage(i).CloseGates(update.part(i)->report().target_version,
                              std::max(deadline - passed, milliseconds(0)), may_open(i));
    if (closed.ok()) continue;
    for (std::size_t k = 0; k < i; ++k) {
      if (!update.holds(k) || !may_open(k)) continue;
      closed = WithOutcomeOf(Of(k, lineage(k).OpenGate()), closed);
    }
    return Of(i, closed);
  }
  return {};
}

// So that the next receiver knows what to do with each, wherever this one is killed.
void LiveEngine::Announce(const EngineUpdate& update) {
  if (update.held_count() < 2) return;
  std::vector<std::string> names;
  for (std::size_t i = 0; i < size(); ++i) {
    if (update.holds(i)) names.push_back(lineage(i).options().name);
  }
  for (std::size_t i = 0; i < size(); ++i) {
    if (update.holds(i)) weights(i).Announce(update.part(i)->report().target_version, names);
  }
  for (std::size_t i = 0; i < size(); ++i) {
    if (update.holds(i)) weights(i).SetPhase(Phase::kDue);
  }
}

Status LiveEngine::Apply(EngineUpdate& update) {
  if (update.changes_bytes()) {
    steps_.MarkStale();
    Announce(update);
  }
  for (std::size_t i = 0; i < size(); ++i) {
    if (update.part(i) == nullptr) continue;
    SEGUE_RETURN_IF_ERROR(Of(i, lineage(i).Apply(*update.part(i))));
  }
  return {};
}

Status LiveEngine::OpenGates(const EngineUpdate& update) {
  for (std::size_t i = 0; i < size(); ++i) {
    if (update.holds(i)) SEGUE_RETURN_IF_ERROR(Of(i, lineage(i).OpenGate()));
  }
  return {};
}

Result<std::unique_ptr<EngineUpdate>> LiveEngine::CatchUp(EngineRequest request, bool reopen) {
  std::optional<std::uint64_t> common;
  if (request.same_version) {
    SEGUE_ASSIGN_OR_RETURN(common, CommonVersion());
  }
  bool any = false;
  for (std::size_t i = 0; i < size(); ++i) {
    std::optional<PrepareRequest>& part = request.lineages[i];
    if (!part) continue;
    if (!part->target_version && request.same_version) part->target_version = common;
    const auto versions = lineage(i).Versions();
    if (!versions.ok()) return Of(i, versions.status());
    const bool stays = versions->empty() || request.same_version;
    if (stays && !part->target_version) part.reset();
    any = any || part.has_value();
  }
  if (!any) return std::unique_ptr<EngineUpdate>();
  request.same_version = false;
  SEGUE_ASSIGN_OR_RETURN(auto update, MakeUpdate(std::move(request), {}));
  if (update->changes_bytes()) {
    SEGUE_RETURN_IF_ERROR(CloseGates(*update, reopen, /*at_start=*/true));
  }
  SEGUE_RETURN_IF_ERROR(Apply(*update));
  return update;
}

std::vector<std::size_t> LiveEngine::All() const {
  std::vector<std::size_t> all(size());
  std::iota(all.begin(), all.end(), std::size_t{0});
  return all;
}

Status LiveEngine::CloseToLoad(const Status& so_far) { return CloseTheseToLoad(All(), so_far); }
Status LiveEngine::Load() { return LoadThese(All()); }

Status LiveEngine::CloseTheseToLoad(const std::vector<std::size_t>& which, const Status& so_far) {
  for (std::size_t k = 0; k < which.size(); ++k) {
    Status status = CatchOutOfMemory([&] { return lineage(which[k]).OpenToLoad(so_far); });
    if (status.ok()) continue;
    if (!so_far.ok()) return so_far;
    for (std::size_t i = 0; i < k; ++i) {
      status = WithOutcomeOf(lineage(which[i]).GiveUpLoad(), status);
    }
    return Of(which[k], status);
  }
  return {};
}

// Whoever is killed before the first byte leaves all as they were, a poisoned one (for the next
// rebuild), or all loading; never one that is loaded beside another's old version.
Status LiveEngine::LoadThese(const std::vector<std::size_t>& which) {
  if (which.size() > 1) {
    for (const std::size_t i : which) weights(i).SetPhase(Phase::kPoisoned);
  }
  for (const std::size_t i : which) weights(i).SetPhase(Phase::kLoading);
  steps_.MarkStale();
  for (const std::size_t i : which) SEGUE_RETURN_IF_ERROR(Of(i, lineage(i).Load()));
  return {};
}

// What an engine is told, and may key its caches by.
std::string LiveEngine::VersionLabel() const {
  std::string label;
  for (const auto& lineage : lineages_)
    label += (label.empty() ? "" : " ") + lineage->VersionLabel();
  return label;
}

Status LiveEngine::LetGo() {
  if (steps_.paused()) SEGUE_RETURN_IF_ERROR(Finish(/*flush=*/true));
  for (std::size_t i = 0; i < size(); ++i) SEGUE_RETURN_IF_ERROR(Of(i, lineage(i).OpenGate()));
  return steps_.paused() ? steps_.Resume() : Status();
}

}  // namespace segue
