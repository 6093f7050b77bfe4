// SPDX-License-Identifier: Apache-2.0
//
// Build output: a new checkpoint directory from a layout and a base checkpoint's bytes, to be
// changed before it gets its name (docs/protocol.md, section 3).
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "checkpoint/checkpoint.h"
#include "checkpoint/layout.h"
#include "checkpoint/plan.h"
#include "segue/status.h"
#include "sync/checkpoint_state.h"
#include "sync/live_files.h"

namespace segue {

class OutputBuilder {
 public:
  // Refused when `output` exists, and as Unavailable when another process builds it. What a dead
  // one has left is replaced. The partial directory is removed by the destructor unless Finish()
  // has given it its name.
  static Result<OutputBuilder> Start(const std::string& output);
  ~OutputBuilder();
  OutputBuilder(OutputBuilder&& other) noexcept;
  OutputBuilder& operator=(OutputBuilder&& other) noexcept;

  const std::string& directory() const { return part_; }

  // Writes the shards as `layout` says with the base's tensor bytes, and the index. Corruption
  // where layout and plan disagree.
  Status CopyBase(const Checkpoint& base, const Layout& layout, const Plan& plan);
  // Copies of the base directory's other files (configuration, tokenizer), or of what their links
  // lead to. What is left out (subdirectories, hidden files, other weights) becomes a warning.
  Status CopyOtherFiles(const Checkpoint& base, std::vector<std::string>& warnings);
  // The result opened for writing.
  Result<LiveFiles> Open();
  // Durable, then renamed: only the directory that was locked from the start.
  Status Finish();

 private:
  void Remove() const;
  OutputBuilder() = default;
  Status WriteShard(const Checkpoint& base, const LayoutShard& shard, const Plan& plan);

  std::string output_;
  std::string part_;
  std::optional<CheckpointLock> lock_;
};

}  // namespace segue
