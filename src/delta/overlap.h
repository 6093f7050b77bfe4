// SPDX-License-Identifier: Apache-2.0
//
// Overlap: parts of live weights that share bytes. XOR onto shared bytes twice takes itself back
// without an error (case C1), so what shares bytes is either the same part throughout, tied, or
// refused.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "delta/live_map.h"
#include "segue/status.h"

namespace segue {

// Ties parts of different tensors that are the same bytes in the same way. InvalidArgument, naming
// both tensors, for parts that share bytes in any other way. `parts` stay where they are.
Status FindOverlaps(const Plan& plan, std::vector<LiveMap::Part>& parts);

// Parts of two maps that have a byte in common.
struct SharedParts {
  const LiveMap::Part* first = nullptr;
  const LiveMap::Part* second = nullptr;
};

// A pair of them, be they the same part or not, where there is one: two receivers that write one
// byte do so without knowing of each other. Both maps are of one memory.
std::optional<SharedParts> FindShared(const Plan& first_plan, std::span<const LiveMap::Part> first,
                                      const Plan& second_plan,
                                      std::span<const LiveMap::Part> second);

}  // namespace segue
