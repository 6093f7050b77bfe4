// SPDX-License-Identifier: Apache-2.0
//
// Watch: publishes the checkpoints that a trainer saves in a directory, one after the other, each
// against the one before. docs/protocol.md, section 2, says when a checkpoint counts as complete.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "segue/publish.h"
#include "segue/status.h"

namespace segue {

struct WatchOptions {
  PublishOptions publish = {};  // Base, target, version and owners are not looked at.
  std::string directory = {};
  // Name of a file that a complete checkpoint has; empty: none is needed.
  std::string done_file = {};
  std::chrono::milliseconds settle{5'000};
};

struct WatchLook {
  std::optional<PublishReport> published;
  std::string checkpoint;  // Name of what was published, or of what is waited for.
  bool began = false;      // This look found where to go on: `checkpoint` is the base.
  std::vector<std::string> warnings;
};

// One thread at a time.
class CheckpointWatcher {
 public:
  // InvalidArgument where the directory or an option cannot be.
  static Result<std::unique_ptr<CheckpointWatcher>> Open(const WatchOptions& options);
  ~CheckpointWatcher();
  CheckpointWatcher(const CheckpointWatcher&) = delete;
  CheckpointWatcher& operator=(const CheckpointWatcher&) = delete;

  // One look at the directory; publishes one version at most. After a failure the next look tries
  // the same again.
  Result<WatchLook> Look();

 private:
  class Impl;
  explicit CheckpointWatcher(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace segue
