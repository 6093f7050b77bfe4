// SPDX-License-Identifier: Apache-2.0
//
// Resolve under a lock that the caller holds; used by Resolve() and at the start of every Apply().
#pragma once

#include "segue/apply.h"
#include "sync/checkpoint_state.h"

namespace segue {

Result<ResolveReport> ResolveLocked(const std::string& checkpoint, unsigned threads);

}  // namespace segue
