// SPDX-License-Identifier: Apache-2.0
//
// Acknowledgement: waits until every engine of a cohort serves a version of a lineage or a later
// one (docs/protocol.md, section 2). How an engine is asked is the caller's affair. A name and a
// number prove nothing, since another run may have both: what an engine serves counts only where
// its digest is that of this lineage's version.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "segue/publisher.h"
#include "segue/status.h"
#include "store/store.h"
#include "sync/environment.h"

namespace segue {

// The digest that a version of the lineage has; nothing where that is not known.
using DigestOfVersion = std::function<Result<std::optional<std::string>>(std::uint64_t version)>;

// The same as the store says it: by the version's own manifest or by a later one's base.
Result<std::optional<std::string>> FindDigest(Store& store, const std::string& lineage,
                                              std::uint64_t version);

// Every engine is asked at least once, whatever the timeout. Unavailable, saying of each engine
// that is behind what it has answered last.
Status WaitForCohort(const Cohort& cohort, const std::string& lineage, std::uint64_t version,
                     const DigestOfVersion& digest_of,
                     Environment& environment = SystemEnvironment());

}  // namespace segue
