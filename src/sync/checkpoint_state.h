// SPDX-License-Identifier: Apache-2.0
//
// Checkpoint state: what Segue keeps beside a checkpoint's files, in `.segue/`: which version they
// are, and a lock against two processes at once. docs/protocol.md, section 4.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/digest.h"
#include "base/hash.h"
#include "segue/status.h"

namespace segue {

struct CheckpointState {
  std::string lineage;
  std::uint64_t version = 0;
  Digest digest;
  Sha256 plan;
};

std::string StateDirectory(const std::string& checkpoint);

// Nothing where there is no state file; Corruption where it cannot be read.
Result<std::optional<CheckpointState>> ReadState(const std::string& checkpoint);
// The lineage to use: `wanted`, or where that is empty the state's, or "default".
std::string ChooseLineage(const std::string& wanted, const std::optional<CheckpointState>& state);
// Durable and atomic.
Status WriteState(const std::string& checkpoint, const CheckpointState& state);

// Held while a checkpoint is changed; released by the destructor or the process's end.
class CheckpointLock {
 public:
  // Unavailable when another process holds it.
  static Result<CheckpointLock> Acquire(const std::string& checkpoint);

  CheckpointLock(CheckpointLock&& other) noexcept;
  CheckpointLock& operator=(CheckpointLock&& other) noexcept;
  ~CheckpointLock();

 private:
  explicit CheckpointLock(int descriptor) : descriptor_(descriptor) {}
  int descriptor_ = -1;
};

}  // namespace segue
