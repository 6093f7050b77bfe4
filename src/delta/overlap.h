// SPDX-License-Identifier: Apache-2.0
//
// Overlap: parts of live weights that share bytes. XOR onto shared bytes twice takes itself back
// without an error (case C1), so what shares bytes is either the same part throughout, tied, or
// refused.
#pragma once

#include <vector>

#include "delta/live_map.h"
#include "segue/status.h"

namespace segue {

// Ties parts of different tensors that are the same bytes in the same way. InvalidArgument, naming
// both tensors, for parts that share bytes in any other way. `parts` stay where they are.
Status FindOverlaps(const Plan& plan, std::vector<LiveMap::Part>& parts);

}  // namespace segue
