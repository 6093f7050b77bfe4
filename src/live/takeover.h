// SPDX-License-Identifier: Apache-2.0
//
// Takeover: how a receiver comes by live weights when it starts: a fresh segment from the
// checkpoint, one that another receiver left serving, or one that it left in the middle of an
// apply.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "checkpoint/checkpoint.h"
#include "live/live_environment.h"
#include "live/live_weights.h"
#include "live/ranks.h"
#include "segue/receiver.h"
#include "store/store.h"

namespace segue {

// The weights of this name, as they were left, or fresh ones (phase loading). Nobody else's
// receiver has them from here on. VersionMismatch for those of another lineage, unless they are to
// be rebuilt.
Result<std::unique_ptr<LiveWeights>> HoldWeights(Store& store, const ReceiverOptions& options,
                                                 LiveEnvironment& environment);

// Those that are to be rebuilt are of this lineage and of the checkpoint's model; else they make
// place for fresh ones, and their engines are told.
Result<std::unique_ptr<LiveWeights>> ReplaceUnfit(Store& store, const ReceiverOptions& options,
                                                  std::unique_ptr<LiveWeights> weights,
                                                  LiveEnvironment& environment);

// Of weights that are not to be loaded: afterwards they are at a version (phase serving) and
// proven; the gate may be open or closed. Pending ones are at the version that they had, due ones
// at their target. Tainted: they are poisoned.
Status TakeOver(Store& store, const ReceiverOptions& options, LiveWeights& weights);

// Whether the checkpoint leads to `target` (by default the newest version): for whoever has weights
// to lose. Reads all of it. Success where the store has no such lineage yet and no target is named.
// InvalidArgument for one of another model than `plan`.
Status CheckWayFromCheckpoint(Store& store, const ReceiverOptions& options, const Plan& plan,
                              std::optional<std::uint64_t> target);
// Whether there is a checkpoint of that model at all. Reads headers alone.
Status CheckCheckpoint(const ReceiverOptions& options, const Plan& plan);
// As CheckWayFromCheckpoint, before a start that loads it, with the version that the start is to
// come to, whatever weights are there.
Status CheckStartFromCheckpoint(Store& store, const ReceiverOptions& options);

// Before the first byte is written: the checkpoint is there and of the same model, and the gate is
// closed; at every rank, or at none, and then the gate is as it was. Every rank calls it, with how
// it has fared so far.
Result<Checkpoint> OpenToLoad(const ReceiverOptions& options, LiveWeights& weights,
                              const Ranks& ranks, const Status& so_far);

// Nobody may read weights that are no version's.
Status ReopenIfServing(LiveWeights& weights);

// Reads the checkpoint into the weights, gate closed, and finds out which version that is. Where
// the store has no such lineage yet, it is version 0 of one to come. Every rank calls it.
Status LoadFrom(const Checkpoint& checkpoint, Store& store, const ReceiverOptions& options,
                LiveWeights& weights, const Ranks& ranks);

}  // namespace segue
