// SPDX-License-Identifier: Apache-2.0
//
// ReceiverCore, what it says of itself: status, readiness, counts. Answers at any time, as it takes
// the mutex alone.
#include <algorithm>

#include "device/accelerator.h"
#include "live/receiver_core.h"

namespace segue {

std::string_view ReceiverStateName(ReceiverState state) {
  switch (state) {
    case ReceiverState::kIdle: return "IDLE";
    case ReceiverState::kPreparing: return "PREPARING";
    case ReceiverState::kPrepared: return "PREPARED";
    case ReceiverState::kApplying: return "APPLYING";
    case ReceiverState::kApplied: return "APPLIED";
    case ReceiverState::kResuming: return "RESUMING";
    case ReceiverState::kResumed: return "RESUMED";
    case ReceiverState::kFailed: return "FAILED";
    case ReceiverState::kAborted: return "ABORTED";
    case ReceiverState::kPoisoned: return "POISONED";
  }
  return "UNKNOWN";
}

std::vector<std::uint64_t> ReceiverCore::held_versions() const {
  std::vector<std::uint64_t> held(size());
  for (std::size_t i = 0; i < size(); ++i) held[i] = weights(i).version().version;
  return held;
}

ReceiverState ReceiverCore::StateOf(const std::string& session) const {
  const std::lock_guard lock(mutex_);
  return session == session_ ? state_ : ReceiverState::kIdle;
}

void ReceiverCore::NoteLook(const Status& status) {
  const std::lock_guard lock(mutex_);
  look_why_ = status;
}

ReceiverStatus ReceiverCore::GetStatus(std::size_t i) const {
  const Part& part = parts_[i];
  const LiveVersion held = weights(i).version();
  ReceiverStatus status;
  status.name = engine_.lineage(i).options().name;
  status.lineage = held.lineage;
  status.version = held.version;
  status.digest = held.digest.ToHex();
  status.plan_digest = weights(i).plan().digest().ToHex();
  status.model_bytes = weights(i).plan().model_size();
  status.engines = weights(i).engine_count();
  status.applied_count = held.applied_count;
  const Accelerator* const accelerator = weights(i).map().accelerator();
  if (accelerator != nullptr) status.decoder = accelerator->decoder();
  if (part.scrubber) {
    status.scrub_passes = part.scrubber->passes();
    status.scrub_faults = part.scrubber->faults();
  }
  // Asks the engine, which may ask for the status in turn: without the mutex.
  const Status current = weights(i).CheckCurrent();
  const std::lock_guard lock(mutex_);
  status.state = state_;
  status.message = why_.message().empty() ? look_why_.message() : why_.message();
  if (status.message.empty() && !engine_.lineage(i).is_known()) {
    status.message = "lineage '" + status.lineage + "' has no version in the store yet";
  }
  status.session = session_;
  status.manifest_sha256 = part.manifest_sha256;
  status.last = part.last;
  status.failure = Outcome().code();
  status.base_version = part.base_version.value_or(held.version);
  status.target_version = part.target_version.value_or(held.version);
  const Status why_not = current.ok() ? CheckReady(i) : current;
  status.ready = why_not.ok();
  if (!why_not.ok() && !why_not.message().empty()) status.message = why_not.message();
  status.message += RebuildNote();
  return status;
}

ReceiverCounts ReceiverCore::GetCounts(std::size_t i) const {
  const LiveLineage& lineage = engine_.lineage(i);
  ReceiverCounts counts;
  counts.newest_version = std::max(lineage.newest_seen(), weights(i).version().version);
  counts.look_failures = lineage.look_failures();
  const std::lock_guard lock(mutex_);
  counts.update_failures = update_failures_;
  counts.pause_failures = pause_failures_;
  counts.pauses = parts_[i].pauses;
  return counts;
}

// Without the mutex, which a thread may hold that asks its caller for the generation.
Status ReceiverCore::CheckWeights() const {
  for (std::size_t i = 0; i < size(); ++i) {
    const auto& scrubber = parts_[i].scrubber;
    const LiveLineage& lineage = engine_.lineage(i);
    if (weights(i).phase() == Phase::kPoisoned) {
      return engine_.Of(i, Tainted("the weights are poisoned, as an apply or a rebuild of them "
                                   "failed: rebuild them (the status says why)"));
    }
    if (scrubber && scrubber->found_fault()) return engine_.Of(i, lineage.Wrong());
    SEGUE_RETURN_IF_ERROR(engine_.Of(i, lineage.CheckHealth()));
  }
  return {};
}

// Lock held. What becomes of a rebuild that failed, where somebody sees to it.
std::string ReceiverCore::RebuildNote() const {
  if (rebuild_failures_ == 0 || !follows_) return "";
  const std::string count = " (" + std::to_string(rebuild_failures_) + " failed so far)";
  if (rebuilding_) return "; the follower rebuilds now" + count;
  return is_rebuild_due_ ? "; the follower rebuilds again" + count : "";
}

// Lock held. Not OK without a message: `why_` has the reason.
Status ReceiverCore::CheckReady(std::size_t i) const {
  const auto& scrubber = parts_[i].scrubber;
  if (scrubber && scrubber->found_fault()) return engine_.lineage(i).Wrong();
  SEGUE_RETURN_IF_ERROR(engine_.lineage(i).CheckHealth());
  SEGUE_RETURN_IF_ERROR(engine_.lineage(i).CheckProven());
  if (!ready_) return Unavailable(why_.message());
  if (rebuilding_) return Unavailable("the weights are being rebuilt");
  const bool holds = state_ == ReceiverState::kApplying || state_ == ReceiverState::kApplied ||
                     state_ == ReceiverState::kResuming;
  if (!holds || !prepared_ || !prepared_->holds(i)) return {};
  if (!why_.message().empty()) return Unavailable(why_.message());
  if (state_ == ReceiverState::kApplying) {
    return Unavailable("an update is being applied: the gate closes once no engine is inside");
  }
  return Unavailable("the gate is closed until the update is resumed");
}

}  // namespace segue
