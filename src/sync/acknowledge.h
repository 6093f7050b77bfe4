// SPDX-License-Identifier: Apache-2.0
//
// Acknowledgement: waits until every engine of a cohort serves a version of a lineage or a later
// one (docs/protocol.md, section 2). How an engine is asked is the caller's affair.
#pragma once

#include <cstdint>
#include <string>

#include "segue/publisher.h"
#include "segue/status.h"
#include "sync/environment.h"

namespace segue {

// Every engine is asked at least once, whatever the timeout. Unavailable, saying of each engine
// that is behind what it has answered last.
Status WaitForCohort(const Cohort& cohort, const std::string& lineage, std::uint64_t version,
                     Environment& environment = SystemEnvironment());

}  // namespace segue
