// SPDX-License-Identifier: Apache-2.0
//
// Takeover: how a receiver comes by live weights when it starts: a fresh segment from the
// checkpoint, one that another receiver left serving, or one that it left in the middle of an
// apply.
#pragma once

#include <memory>
#include <string>

#include "live/live_environment.h"
#include "live/live_weights.h"
#include "segue/receiver.h"
#include "store/store.h"

namespace segue {

// The weights are at a version (phase serving) and proven; the gate may be open or closed. Tainted:
// they are poisoned, and `options.rebuild` was not set.
Result<std::unique_ptr<LiveWeights>> TakeOver(Store& store, const ReceiverOptions& options,
                                              LiveEnvironment& environment);

// Weights in this process's own buffers, behind `gate`, which outlives them.
Result<std::unique_ptr<LiveWeights>> TakeOverBound(Store& store, const ReceiverOptions& options,
                                                   const BoundModel& model, Gate& gate);

// Reads the checkpoint into the weights, gate closed, and finds out which version that is. Where
// the store has no such lineage yet, it is version 0 of one to come.
Status LoadCheckpoint(Store& store, const ReceiverOptions& options, LiveWeights& weights);

}  // namespace segue
