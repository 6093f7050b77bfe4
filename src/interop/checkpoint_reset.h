// SPDX-License-Identifier: Apache-2.0
//
// Checkpoint reset: all files of a checkpoint directory replaced by those of another checkpoint, a
// few deltas further on (docs/protocol.md, section 14). Files are built aside and proven; a record
// then names them, and from there on the reset can only be finished.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "checkpoint/checkpoint.h"
#include "interop/delta_chain.h"
#include "segue/status.h"

namespace segue {

class CheckpointReset {
 public:
  // `checkpoint`: the directory that is replaced; its locks are held.
  explicit CheckpointReset(const std::string& checkpoint);

  // Finishes a reset that was begun, if any; removes what one that was not has left.
  Status Resume();

  // Builds the files of `seed` with the chain's changes, and of its other files those that `copies`
  // allows. Nothing but `.weight_sync/next` is written.
  Status Build(const Checkpoint& seed, const DeltaChain& chain, unsigned threads,
               const PathPin& copies, std::vector<std::string>& warnings);
  // Begins the reset and finishes it: the checkpoint is at `version`. Tainted where it fails after
  // the beginning.
  Status Commit(std::uint64_t version);
  // Gives up what was built.
  Status Discard();

 private:
  Status WriteShard(const Checkpoint& seed, const Shard& shard, const DeltaChain& chain,
                    unsigned threads);
  Status CopyOthers(const Checkpoint& seed, const PathPin& copies,
                    std::vector<std::string>& warnings);
  Status Finish(std::uint64_t version, const std::vector<std::string>& files);
  Status RemoveStrays(const std::vector<std::string>& files);

  std::string checkpoint_;
  std::string next_;
  std::string record_;
  std::vector<std::string> files_;
};

}  // namespace segue
