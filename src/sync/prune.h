// SPDX-License-Identifier: Apache-2.0
//
// Prune: removes the oldest versions of a lineage (docs/protocol.md, "Publish").
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "delta/manifest.h"
#include "segue/status.h"
#include "store/store.h"

namespace segue {

struct PruneReport {
  std::vector<std::uint64_t> pruned;
  std::vector<std::string> warnings;
};

// Keeps the newest `retain` versions (at least one; 0: all). Removes as well what versions that are
// gone have left behind: payloads and owner records of a pruner or publisher that was killed. What
// cannot be removed becomes a warning.
PruneReport PruneVersions(Store& store, const LineageRecord& lineage, std::uint64_t retain);

}  // namespace segue
