// SPDX-License-Identifier: Apache-2.0
//
// Tied weights (case C1): two tensors of the checkpoint that are the same bytes in the engine. The
// delta is applied once, so both must change alike.
#pragma once

#include "delta/live_map.h"
#include "delta/staged_delta.h"
#include "segue/status.h"

namespace segue {

// InvalidArgument, naming both tensors and the chunk, where the delta would make them different.
Status CheckTied(const Plan& plan, const StagedDelta& staged, const LiveMap& live);

}  // namespace segue
