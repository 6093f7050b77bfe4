// SPDX-License-Identifier: Apache-2.0
//
// Live files: a checkpoint's shards opened for writing in place, after every shard that other names
// share (hard links, symlinks as in the Hugging Face cache) has been replaced by a private copy.
#pragma once

#include <string>
#include <vector>

#include "checkpoint/checkpoint.h"
#include "delta/model_view.h"
#include "segue/status.h"

namespace segue {

struct LiveFiles {
  Checkpoint checkpoint;
  MutableModelView view;
};

// `copied` receives the names of the shards that were replaced.
Result<LiveFiles> OpenLiveFiles(const std::string& checkpoint, std::vector<std::string>& copied);

// Writes all shards' changed pages to the disk.
Status SyncLiveFiles(LiveFiles& files);

}  // namespace segue
