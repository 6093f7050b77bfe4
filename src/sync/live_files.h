// SPDX-License-Identifier: Apache-2.0
//
// Live files: a checkpoint's shards opened for writing in place, after every shard that other names
// share (hard links, symlinks as in the Hugging Face cache) has been replaced by a private copy.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "checkpoint/checkpoint.h"
#include "delta/model_view.h"
#include "device/device.h"
#include "segue/status.h"

namespace segue {

struct LiveFiles {
  Checkpoint checkpoint;
  MutableModelView view;
};

// `copied` receives the names of the shards that were replaced.
Result<LiveFiles> OpenLiveFiles(const std::string& checkpoint, std::vector<std::string>& copied);

// Makes sure that the chunks of `work` can be written however full the disk becomes: holes in the
// files get blocks. ResourceExhausted when there is no room, with the bytes as they were.
Status ReserveBlocks(const LiveFiles& files, std::span<const ChunkWork> work);

// Writes all shards' changed pages to the disk.
Status SyncLiveFiles(LiveFiles& files);

}  // namespace segue
