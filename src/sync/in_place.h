// SPDX-License-Identifier: Apache-2.0
//
// In place: a delta into a checkpoint's own files, with a journal (docs/protocol.md, section 4).
// Everything that can fail comes before the journal begins; after it there is only forward. Whoever
// calls holds the checkpoint's lock and has resolved what was open.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/hash.h"
#include "checkpoint/plan.h"
#include "delta/staged_delta.h"
#include "segue/status.h"
#include "sync/checkpoint_state.h"

namespace segue {

struct InPlaceDelta {
  StagedDelta staged;
  // The one payload file that holds it, below the journal's folder.
  std::string path;
  std::uint64_t size = 0;
  Sha256 sha256;
  CheckpointState base;
  CheckpointState target;
};

struct InPlaceSteps {
  // Makes the delta; its file goes into the journal's folder, and is synced there.
  std::function<Result<InPlaceDelta>(const std::string& folder)> make;
  // Names of stages, as they begin. May be empty, as the two below.
  std::function<void(std::string_view stage)> tell;
  // After the journal has begun, before the first byte is written.
  std::function<Status()> begun;
  // After the bytes are durable, before the journal goes.
  std::function<Status()> written;
};

struct InPlaceReport {
  double preflight_s = 0;
  double journal_s = 0;
  double apply_s = 0;
  double sync_s = 0;
  std::vector<std::string> warnings;
};

// Tainted where it fails after the journal has begun; nothing has changed otherwise.
Result<InPlaceReport> ApplyInPlace(const std::string& checkpoint, const Plan& plan,
                                   unsigned threads, const InPlaceSteps& steps);

}  // namespace segue
