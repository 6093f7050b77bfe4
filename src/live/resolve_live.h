// SPDX-License-Identifier: Apache-2.0
//
// Resolving live weights after a receiver died inside an apply, without a journal: chunks are
// written in ascending order of address, so an interrupted one is target up to some element and
// base from there, and the linear digest tells where (docs/protocol.md, section 6).
#pragma once

#include <cstdint>

#include "checkpoint/plan.h"
#include "delta/model_view.h"
#include "delta/staged_delta.h"
#include "segue/status.h"

namespace segue {

struct LiveResolution {
  std::uint64_t chunks_at_base = 0;  // As found.
  std::uint64_t chunks_at_target = 0;
  std::uint64_t chunks_between = 0;
};

// Brings every chunk of `staged` to its target, wherever the interrupted apply left it. Tainted,
// with the chunk named, where a chunk is neither base, target nor between. Gate closed.
Result<LiveResolution> ResolveLive(const Plan& plan, const StagedDelta& staged,
                                   const MutableModelView& live, unsigned threads);

}  // namespace segue
