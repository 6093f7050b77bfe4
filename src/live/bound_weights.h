// SPDX-License-Identifier: Apache-2.0
//
// Bound weights: live weights in buffers of this process, under views, behind the gate that it
// gives. The parts of one rank alone are no version; what they are follows from the sums of all.
#pragma once

#include <memory>
#include <string>

#include "device/accelerator.h"
#include "live/gate.h"
#include "live/live_weights.h"
#include "live/ranks.h"
#include "segue/receiver.h"
#include "store/store.h"

namespace segue {

// `model`: checked against the lineage's plan, or, where there is no lineage yet and one rank, the
// plan of a lineage to come. `gate` outlives the weights. `accelerator`: in whose memory they are,
// if in any. Phase loading.
Result<std::unique_ptr<LiveWeights>> BindWeights(Store& store, const ReceiverOptions& options,
                                                 const BoundModel& model, Gate& gate,
                                                 std::shared_ptr<Accelerator> accelerator);

// Which version weights of this digest are: 0 of a lineage to come, where there is none yet. Where
// several have it, the newest up to `wanted`, if there is such a one, else the newest of all.
// `what`: the weights, for messages. VersionMismatch where they are none.
Result<std::uint64_t> VersionOf(Store& store, const std::string& name, const Digest& digest,
                                std::optional<std::uint64_t> wanted, const std::string& what);

// Reads all bytes and finds which version the ranks hold together; phase serving. `what`: the
// weights, for messages. VersionMismatch where they are none. Every rank calls it, with how it has
// fared so far.
Status ProveVersion(Store& store, const ReceiverOptions& options, LiveWeights& weights,
                    const Ranks& ranks, const Status& so_far, const std::string& what);

}  // namespace segue
