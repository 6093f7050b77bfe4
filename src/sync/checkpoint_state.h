// SPDX-License-Identifier: Apache-2.0
//
// Checkpoint state: what Segue keeps beside a checkpoint's files, in `.segue/`: which version they
// are, and a lock against two processes at once. docs/protocol.md, section 4.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>

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

// `.segue/` is ours alone: a symlink of that name, or a file, is refused as InvalidArgument by
// whatever reads or writes below it.
inline constexpr char kStateDirectoryName[] = ".segue";
inline constexpr char kLockName[] = "lock";
std::string StateDirectory(const std::string& checkpoint);

// Nothing where there is no state file; Corruption where it cannot be read.
Result<std::optional<CheckpointState>> ReadState(const std::string& checkpoint);
// The lineage to use: `wanted`, or where that is empty the state's, or "default".
std::string ChooseLineage(const std::string& wanted, const std::optional<CheckpointState>& state);
// Durable and atomic.
Status WriteState(const std::string& checkpoint, const CheckpointState& state);

// Removes what a killed process has left in `.segue/`: private copies that were not in place yet,
// temporaries, a journal that was over. With the lock held.
Status RemoveLeftovers(const std::string& checkpoint);

// What is changed in place is a directory: NotFound where there is none, InvalidArgument where it
// is something else.
Status CheckCheckpointDirectory(const std::string& checkpoint);

// Held while a checkpoint is changed; released by the destructor or the process's end. A state
// directory that holds nothing but the lock goes with it: a refusal leaves nothing behind.
class CheckpointLock {
 public:
  // Unavailable when another process holds it.
  static Result<CheckpointLock> Acquire(const std::string& checkpoint);

  CheckpointLock(CheckpointLock&& other) noexcept;
  CheckpointLock& operator=(CheckpointLock&& other) noexcept;
  ~CheckpointLock();

  // The checkpoint's directory is still the one that was locked: nobody has removed or renamed it.
  bool IsInPlace() const;

 private:
  CheckpointLock(int descriptor, std::string path)
      : descriptor_(descriptor), path_(std::move(path)) {}
  void RemoveLoneLock() const;

  int descriptor_ = -1;
  bool held_ = false;
  std::string path_;
};

}  // namespace segue
