// SPDX-License-Identifier: Apache-2.0
//
// PreparedUpdate: everything that an update needs before the engine is held: the way through the
// lineage, staged deltas joined into one, a preflight that passed. Apply() is what is left for the
// pause: no file, no network, no allocation.
#pragma once

#include <memory>
#include <optional>
#include <stop_token>
#include <string>

#include "delta/applier.h"
#include "device/device.h"
#include "live/live_weights.h"
#include "segue/receiver.h"
#include "store/store.h"
#include "sync/fetch.h"

namespace segue {

// Where the weights stand in a lineage, and the manifests from there to a target.
struct UpdatePlan {
  std::uint64_t base_version = 0;
  std::uint64_t target_version = 0;
  Digest target_digest;
  std::vector<Manifest> chain;  // Empty: already there.
};

// How the number is known that live weights have. Found: it is one of those whose digest the bytes
// have, and where bytes repeat they stand at each of these. Recorded: an update came to it, or the
// record of a segment says so; nothing leads from it to a lower one, whatever the bytes are.
enum class HeldNumber { kFound, kRecorded };

// Weights that are cut into other chunks than the lineage take its plan over. VersionMismatch: the
// weights are no version of the lineage, or of another model, or recorded after the target.
// NotFound: no such target, or no way to it.
Result<UpdatePlan> PlanUpdate(Store& store, const std::string& lineage, LiveWeights& weights,
                              std::optional<std::uint64_t> target_version, HeldNumber held_number);

class PreparedUpdate {
 public:
  struct Resources {
    Store& store;
    LiveWeights& weights;
    Device& background;  // For the preflight.
    Device& foreground;  // For the apply.
    const std::string& staging;
    unsigned background_threads;
  };

  // Fetched and staged.
  static Result<std::unique_ptr<PreparedUpdate>> Make(const Resources& resources, UpdatePlan plan,
                                                      const std::stop_token& stop);
  // Then: the live bytes are the base, at every changed element. VersionMismatch or Corruption
  // where bytes and delta do not belong together, whichever of them is wrong.
  Status Preflight(const Resources& resources);

  // What this rank's preflight adds to the proof, and whether all ranks together have it.
  const RankSums& sums() const { return applier_->sums(); }
  Status CheckSums(const RankSums& sums) const { return applier_->CheckSums(sums); }

  // With the gate closed; moves the weights' phase and version. Tainted: poisoned.
  Status Apply();
  // Whether a byte changes at all; if not, Apply() needs no gate.
  bool changes_bytes() const { return !fetched_.staged.rows().empty(); }

  UpdateReport& report() { return report_; }

 private:
  PreparedUpdate(const Resources& resources, UpdatePlan plan)
      : weights_(resources.weights), plan_(std::move(plan)) {}
  Status Fetch(const Resources& resources, const std::stop_token& stop);
  void NoteDevice();

  LiveWeights& weights_;
  UpdatePlan plan_;
  FetchedDelta fetched_;
  std::unique_ptr<Applier> applier_;
  UpdateReport report_;
};

}  // namespace segue
