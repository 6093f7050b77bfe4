// SPDX-License-Identifier: Apache-2.0
//
// `.weight_sync/`: what receivers of disk deltas keep beside a checkpoint's files, theirs and ours:
// a lock, and the version that the files are (docs/format.md, section 10).
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

#include "base/limits.h"
#include "segue/status.h"

namespace segue {

// The folder below `checkpoint`.
std::string WeightSyncFolder(const std::string& checkpoint);

// Nothing where there is no state. Corruption, saying what to do, where it cannot be read.
Result<std::optional<std::uint64_t>> ReadDiskState(const std::string& checkpoint);
// Durable and atomic.
Status WriteDiskState(const std::string& checkpoint, std::uint64_t version);
// Durable: nobody knows the version from here on.
Status RemoveDiskState(const std::string& checkpoint);

// Held while somebody works on the checkpoint; released by the destructor or the process's end.
class WeightSyncLock {
 public:
  // Waits for another holder. Makes the folder where it is not there. Unavailable when `wait` has
  // passed.
  static Result<WeightSyncLock> Acquire(
      const std::string& checkpoint,
      std::chrono::milliseconds wait = std::chrono::seconds(limits::kPullLockSecondsMax));

  WeightSyncLock(WeightSyncLock&& other) noexcept;
  WeightSyncLock& operator=(WeightSyncLock&& other) noexcept;
  ~WeightSyncLock();

 private:
  explicit WeightSyncLock(int descriptor) : descriptor_(descriptor) {}
  int descriptor_ = -1;
};

}  // namespace segue
