// SPDX-License-Identifier: Apache-2.0
//
// Compose: two deltas in a row become one, without the weights. XOR lists merge (what cancels drops
// out), digests chain (the first one's `before`, the second one's `after`), raw chunks win over
// what came before them. `touched` does not compose and is left unrecorded where both deltas touch
// a chunk.
#pragma once

#include "checkpoint/plan.h"
#include "delta/payload_writer.h"
#include "delta/profile.h"
#include "delta/staged_delta.h"
#include "segue/status.h"

namespace segue {

// Writes the payload of first-then-second to `sink`. Corruption where the second does not start at
// what the first yields (a broken chain), naming tensor and chunk.
Result<PayloadSummary> ComposeDeltas(const Plan& plan, const StagedDelta& first,
                                     const StagedDelta& second, Profile profile,
                                     PayloadWriter::Sink sink);

}  // namespace segue
