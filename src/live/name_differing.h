// SPDX-License-Identifier: Apache-2.0
//
// Naming what differs: which tensors make live weights no version of a lineage. A store keeps no
// digest of each tensor, but every delta states what the chunks that it changes were before and are
// after it. So weights are compared with the versions around the oldest delta and the newest one,
// and the version that is nearest is told of. For messages alone: nothing rests on it.
#pragma once

#include <stop_token>
#include <string>

#include "live/live_weights.h"
#include "segue/status.h"
#include "store/store.h"

namespace segue {

// `failure` with a sentence that names tensors, where it is a VersionMismatch and they can be told;
// else as it is. Reads the tables of two deltas, and all that these change of tensors that are
// wholly held here.
Status NamingDiffering(const Status& failure, Store& store, const std::string& lineage,
                       const LiveWeights& weights, const std::stop_token& stop = {});

}  // namespace segue
