// SPDX-License-Identifier: Apache-2.0
//
// Private copies: copied under `.segue/`, synced, renamed over the shared name. The other names
// keep their bytes whatever happens here.
#include "sync/live_files.h"

#include <sys/stat.h>

#include <utility>

#include "base/file.h"
#include "sync/checkpoint_state.h"

namespace segue {
namespace {

Result<bool> IsShared(const std::string& path) {
  struct stat info {};
  if (::lstat(path.c_str(), &info) != 0) return ErrnoStatus("examine", path);
  return !S_ISREG(info.st_mode) || info.st_nlink > 1;
}

Status ReplaceByCopy(const std::string& checkpoint, const Shard& shard) {
  const std::string directory = StateDirectory(checkpoint);
  SEGUE_RETURN_IF_ERROR(MakeDirectories(directory));
  const std::string temporary = JoinPath(directory, "copy-" + shard.name);
  SEGUE_ASSIGN_OR_RETURN(OutputFile file, OutputFile::Create(temporary));
  SEGUE_RETURN_IF_ERROR(file.Append(shard.file.bytes()));
  SEGUE_RETURN_IF_ERROR(file.Sync());
  SEGUE_RETURN_IF_ERROR(file.Close());
  SEGUE_RETURN_IF_ERROR(RenameFile(temporary, shard.path));
  return SyncDirectory(checkpoint);
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

Status SyncLiveFiles(LiveFiles& files) {
  for (Shard& shard : files.checkpoint.shards()) SEGUE_RETURN_IF_ERROR(shard.file.Sync());
  return {};
}

}  // namespace segue
