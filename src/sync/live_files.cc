// SPDX-License-Identifier: Apache-2.0
//
// Private copies: copied under `.segue/`, synced, renamed over the shared name. The other names
// keep their bytes whatever happens here.
#include "sync/live_files.h"

#include <sys/stat.h>

#include <algorithm>
#include <utility>

#include "base/file.h"
#include "base/file_place.h"
#include "sync/checkpoint_state.h"

namespace segue {
namespace {

Result<bool> IsShared(const std::string& path) {
  struct stat info {};
  if (ExaminePath(path, info) != 0) return ErrnoStatus("examine", path);
  return !S_ISREG(info.st_mode) || info.st_nlink > 1;
}

Status ReplaceByCopy(const std::string& checkpoint, const Shard& shard) {
  const std::string directory = StateDirectory(checkpoint);
  SEGUE_RETURN_IF_ERROR(MakeOwnDirectory(directory));
  const std::string temporary = JoinPath(directory, "copy-" + shard.name);
  SEGUE_ASSIGN_OR_RETURN(OutputFile file, OutputFile::Create(temporary));
  SEGUE_RETURN_IF_ERROR(file.Append(shard.file.bytes()));
  SEGUE_RETURN_IF_ERROR(file.Sync());
  SEGUE_RETURN_IF_ERROR(file.Close());
  SEGUE_RETURN_IF_ERROR(RenameFile(temporary, shard.path));
  return SyncDirectory(checkpoint);
}

// The file's parts that `work` lies in, in order, neighbours joined. `work`: sorted by address.
std::vector<FileRange> TouchedRanges(ByteSpan file, std::span<const ChunkWork> work) {
  std::vector<FileRange> ranges;
  for (const ChunkWork& chunk : work) {
    const auto offset = static_cast<std::uint64_t>(chunk.live - file.data());
    if (!ranges.empty() && ranges.back().offset + ranges.back().size == offset) {
      ranges.back().size += chunk.size;
    } else {
      ranges.push_back({offset, chunk.size});
    }
  }
  return ranges;
}

}  // namespace

Result<LiveFiles> OpenLiveFiles(const std::string& checkpoint, std::vector<std::string>& copied) {
  {
    SEGUE_ASSIGN_OR_RETURN(const Checkpoint shared, Checkpoint::OpenUnresolved(checkpoint));
    for (const Shard& shard : shared.shards()) {
      SEGUE_ASSIGN_OR_RETURN(const bool is_shared, IsShared(shard.path));
      if (!is_shared) continue;
      SEGUE_RETURN_IF_ERROR(ReplaceByCopy(checkpoint, shard));
      copied.push_back(shard.name);
    }
  }
  LiveFiles files;
  SEGUE_ASSIGN_OR_RETURN(files.checkpoint,
                         Checkpoint::OpenUnresolved(checkpoint, MappedFile::Mode::kReadWrite));
  std::vector<std::byte*> tensors;
  for (std::size_t i = 0; i < files.checkpoint.tensors().size(); ++i) {
    tensors.push_back(files.checkpoint.MutableTensorBytes(i).data());
  }
  files.view = MutableModelView(std::move(tensors));
  return files;
}

Status ReserveBlocks(const LiveFiles& files, std::span<const ChunkWork> work) {
  std::vector<ChunkWork> sorted(work.begin(), work.end());
  std::sort(sorted.begin(), sorted.end(),
            [](const ChunkWork& a, const ChunkWork& b) { return a.live < b.live; });
  for (const Shard& shard : files.checkpoint.shards()) {
    const ByteSpan bytes = shard.file.bytes();
    const auto first =
        std::partition_point(sorted.begin(), sorted.end(),
                             [&](const ChunkWork& chunk) { return chunk.live < bytes.data(); });
    const auto last = std::partition_point(first, sorted.end(), [&](const ChunkWork& chunk) {
      return chunk.live < bytes.data() + bytes.size();
    });
    SEGUE_RETURN_IF_ERROR(AllocateBlocks(shard.path, TouchedRanges(bytes, {first, last})));
  }
  return {};
}

Status SyncLiveFiles(LiveFiles& files) {
  for (Shard& shard : files.checkpoint.shards()) SEGUE_RETURN_IF_ERROR(shard.file.Sync());
  return {};
}

}  // namespace segue
