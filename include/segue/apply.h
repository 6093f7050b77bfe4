// SPDX-License-Identifier: Apache-2.0
//
// Apply: brings a checkpoint from where it stands to a version of a store, in place or into a new
// directory, and resolves what a crash left behind. docs/protocol.md says what is promised.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "segue/keys.h"
#include "segue/progress.h"
#include "segue/status.h"

namespace segue {

struct ApplyOptions {
  std::string store = {};
  std::string lineage = {};              // Empty: what the checkpoint's state says, else "default".
  std::string checkpoint = {};           // Directory.
  std::optional<std::uint64_t> to = {};  // Version; by default the newest.
  std::string output = {};   // Empty: in place. Otherwise a directory that must not exist yet.
  bool trust_state = false;  // Skip the digest over the whole checkpoint beforehand (in place).
  unsigned threads = 0;
  Progress progress = {};
  KeyFiles keys = {};
};

struct ApplyReport {
  std::string lineage;
  std::uint64_t base_version = 0;
  std::uint64_t target_version = 0;
  std::string target_digest;
  std::vector<std::uint64_t> path;  // Versions passed through, target last; empty: nothing to do.
  bool resolved_first = false;  // An earlier apply had been interrupted and was finished or undone.
  bool full_scan = false;       // The whole base was proven, not only what changes.
  std::uint64_t payload_bytes = 0;  // Fetched.
  std::uint64_t staged_bytes = 0;
  std::uint64_t changed_chunks = 0;
  std::uint64_t changed_elements = 0;
  double locate_s = 0;  // Digest of the base.
  double fetch_s = 0;
  double stage_s = 0;  // Payload hash, outer codec, composition.
  double preflight_s = 0;
  double journal_s = 0;  // In place alone.
  double apply_s = 0;    // The pause: changed bytes written and proven in memory.
  double sync_s = 0;     // Until durable on the disk.
  std::vector<std::string> warnings;
};

Result<ApplyReport> Apply(const ApplyOptions& options);

enum class ResolveOutcome {
  kNothingToDo,     // No apply was interrupted.
  kKeptBase,        // Nothing had been written: the checkpoint is at its base.
  kFinishedTarget,  // The rest was applied: the checkpoint is at the target.
};

struct ResolveReport {
  ResolveOutcome outcome = ResolveOutcome::kNothingToDo;
  std::optional<std::uint64_t> version;  // Where the checkpoint stands now, where that is known.
  std::uint64_t chunks_at_base = 0;      // As found.
  std::uint64_t chunks_at_target = 0;
  std::uint64_t chunks_mixed = 0;
};

// Needs nothing but the checkpoint directory. Tainted, with the chunk named, where the bytes are
// neither base nor target nor restorable.
Result<ResolveReport> Resolve(const std::string& checkpoint, unsigned threads = 0);

}  // namespace segue
