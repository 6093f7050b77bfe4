// SPDX-License-Identifier: Apache-2.0
//
// Checkpoint reset. Renames can be repeated: a file that is no longer in `next/` has its place.
#include "interop/checkpoint_reset.h"

#include <algorithm>
#include <filesystem>
#include <utility>

#include "base/file.h"
#include "base/limits.h"
#include "base/threads.h"
#include "interop/weight_sync.h"
#include "sync/checkpoint_state.h"
#include "sync/json_fields.h"

namespace segue {
namespace {

// Between names in the record: no name can have it.
constexpr char kSeparator = '/';
constexpr std::uint64_t kCopyPieceSize = 8ull << 20;
constexpr char kFormat[] = "segue-weight-reset";

std::string JoinNames(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : "/") + name;
  return text;
}

Result<std::vector<std::string>> SplitNames(const std::string& text, const std::string& path) {
  std::vector<std::string> names;
  std::size_t begin = 0;
  while (begin <= text.size()) {
    const std::size_t end = std::min(text.find(kSeparator, begin), text.size());
    names.push_back(text.substr(begin, end - begin));
    if (names.back().empty() || names.back().front() == '.') {
      return Corruption("'" + path + "' names the file " + Quoted(names.back()));
    }
    begin = end + 1;
  }
  return names;
}

bool IsWeights(const std::string& name) {
  return name.ends_with(".safetensors") || name == kIndexFileName;
}

bool IsDirectory(const std::string& path) {
  std::error_code error;
  return std::filesystem::is_directory(std::filesystem::symlink_status(path, error));
}

// Read, not mapped: the source is somebody else's, and a file of it that goes away must be an error
// here and not the end of a program that serves.
Status AppendFrom(const std::string& path, std::uint64_t offset, std::uint64_t size,
                  OutputFile& file) {
  while (size > 0) {
    const std::uint64_t piece = std::min(size, kCopyPieceSize);
    SEGUE_ASSIGN_OR_RETURN(const ByteVector bytes, ReadFileRange(path, offset, piece));
    SEGUE_RETURN_IF_ERROR(file.Append(bytes));
    offset += piece;
    size -= piece;
  }
  return {};
}

Status WriteWhole(const std::string& path, ByteSpan bytes) {
  SEGUE_ASSIGN_OR_RETURN(OutputFile file, OutputFile::Create(path));
  SEGUE_RETURN_IF_ERROR(file.Append(bytes));
  SEGUE_RETURN_IF_ERROR(file.Sync());
  return file.Close();
}

}  // namespace

CheckpointReset::CheckpointReset(const std::string& checkpoint)
    : checkpoint_(checkpoint),
      next_(JoinPath(WeightSyncFolder(checkpoint), "next")),
      record_(JoinPath(checkpoint, kResetRecordName)) {}

Status CheckpointReset::Resume() {
  if (!FileExists(record_)) return Discard();
  // With a state nothing is in between: not one file was moved yet, or all were, or somebody else
  // has started anew. What was built is of no more use.
  if (FileExists(JoinPath(checkpoint_, kDiskStateName))) {
    SEGUE_RETURN_IF_ERROR(RemoveFile(record_));
    return Discard();
  }
  const auto resume = [&]() -> Status {
    SEGUE_ASSIGN_OR_RETURN(const JsonFields json, JsonFields::Read(record_, kFormat));
    std::uint64_t version = 0;
    std::string names;
    SEGUE_RETURN_IF_ERROR(json.Get("version", version));
    SEGUE_RETURN_IF_ERROR(json.Get("files", names));
    if (version > limits::kDiskDeltaVersionMax) {
      return Corruption("'" + record_ + "' has version " + std::to_string(version));
    }
    SEGUE_ASSIGN_OR_RETURN(const auto files, SplitNames(names, record_));
    return Finish(version, files);
  };
  const Status resumed = resume();
  if (resumed.ok()) return {};
  return Tainted("the files of '" + checkpoint_ +
                 "' were being replaced, and that cannot be finished: " + resumed.message());
}

Status CheckpointReset::Build(const Checkpoint& seed, const DeltaChain& chain, unsigned threads,
                              const PathPin& copies, std::vector<std::string>& warnings) {
  SEGUE_RETURN_IF_ERROR(Discard());
  SEGUE_RETURN_IF_ERROR(MakeOwnDirectory(next_));
  files_.clear();
  for (const Shard& shard : seed.shards()) {
    SEGUE_RETURN_IF_ERROR(WriteShard(seed, shard, chain, threads));
    files_.push_back(shard.name);
  }
  if (!seed.index_json().empty()) {
    SEGUE_RETURN_IF_ERROR(WriteWhole(JoinPath(next_, kIndexFileName), seed.index_json()));
    files_.emplace_back(kIndexFileName);
  }
  SEGUE_RETURN_IF_ERROR(CopyOthers(seed, copies, warnings));
  for (const std::string& name : files_) {
    const std::string path = JoinPath(checkpoint_, name);
    if (IsDirectory(path))
      return InvalidArgument("'" + path + "' is a directory in a file's place");
  }
  return SyncDirectory(next_);
}

// A shard is its header and its tensors, in the order of their offsets, without gaps.
Status CheckpointReset::WriteShard(const Checkpoint& seed, const Shard& shard,
                                   const DeltaChain& chain, unsigned threads) {
  SEGUE_ASSIGN_OR_RETURN(OutputFile file, OutputFile::Create(JoinPath(next_, shard.name)));
  SEGUE_RETURN_IF_ERROR(AppendFrom(shard.path, 0, shard.data_offset, file));
  std::vector<std::uint32_t> tensors = shard.tensors;
  std::sort(tensors.begin(), tensors.end(), [&](std::uint32_t a, std::uint32_t b) {
    const CheckpointTensor& left = seed.tensors()[a];
    const CheckpointTensor& right = seed.tensors()[b];
    return std::pair(left.file_offset, left.size) < std::pair(right.file_offset, right.size);
  });
  std::vector<FoldScratch> scratch(std::min<std::size_t>(ThreadCount(threads), tensors.size()));
  // Changed tensors; the others are copied from file to file.
  const auto fold = [&](std::size_t i, unsigned thread) -> Result<ByteVector> {
    if (!chain.Changes(tensors[i])) return ByteVector();
    const CheckpointTensor& place = seed.tensors()[tensors[i]];
    SEGUE_ASSIGN_OR_RETURN(ByteVector bytes,
                           ReadFileRange(shard.path, place.file_offset, place.size));
    SEGUE_RETURN_IF_ERROR(chain.Fold(tensors[i], bytes, scratch[thread]));
    return bytes;
  };
  SEGUE_RETURN_IF_ERROR(ParallelOrdered<ByteVector>(
      tensors.size(), threads, fold, [&](std::size_t i, const ByteVector& bytes) {
        if (!bytes.empty()) return file.Append(bytes);
        const CheckpointTensor& place = seed.tensors()[tensors[i]];
        return AppendFrom(shard.path, place.file_offset, place.size, file);
      }));
  SEGUE_RETURN_IF_ERROR(file.Sync());
  return file.Close();
}

// Configuration, tokenizer and the like.
Status CheckpointReset::CopyOthers(const Checkpoint& seed, const PathPin& copies,
                                   std::vector<std::string>& warnings) {
  SEGUE_ASSIGN_OR_RETURN(const auto names, ListDirectory(seed.directory()));
  for (const std::string& name : names) {
    const std::string path = JoinPath(seed.directory(), name);
    std::error_code error;
    if (IsWeights(name) || name.front() == '.' || !std::filesystem::is_regular_file(path, error)) {
      continue;
    }
    if (copies) {
      if (const auto allowed = copies(path); !allowed.ok()) {
        warnings.push_back("not copied: " + allowed.status().message());
        continue;
      }
    }
    SEGUE_ASSIGN_OR_RETURN(const std::uint64_t size, FileSize(path));
    SEGUE_ASSIGN_OR_RETURN(OutputFile file, OutputFile::Create(JoinPath(next_, name)));
    SEGUE_RETURN_IF_ERROR(AppendFrom(path, 0, size, file));
    SEGUE_RETURN_IF_ERROR(file.Sync());
    SEGUE_RETURN_IF_ERROR(file.Close());
    files_.push_back(name);
  }
  return {};
}

Status CheckpointReset::Commit(std::uint64_t version) {
  JsonFields json(kFormat);
  json.Set("version", version);
  json.Set("files", JoinNames(files_));
  Status begun = WriteFileAtomic(record_, AsBytes(json.ToText()));
  if (!begun.ok()) {
    // Nothing has been replaced, so the record may go if it is there.
    const Status removed = RemoveFile(record_);
    if (removed.ok()) return begun;
    return Tainted("the files of '" + checkpoint_ + "' are to be replaced (" + removed.message() +
                   "): the next pull goes on");
  }
  const Status finished = Finish(version, files_);
  if (finished.ok()) return {};
  return Tainted("the files of '" + checkpoint_ +
                 "' were being replaced, and that could not be finished (" + finished.message() +
                 "): the next pull goes on");
}

Status CheckpointReset::Finish(std::uint64_t version, const std::vector<std::string>& files) {
  SEGUE_RETURN_IF_ERROR(RemoveDiskState(checkpoint_));
  for (const std::string& name : files) {
    const std::string from = JoinPath(next_, name);
    if (FileExists(from)) SEGUE_RETURN_IF_ERROR(RenameFile(from, JoinPath(checkpoint_, name)));
  }
  SEGUE_RETURN_IF_ERROR(RemoveStrays(files));
  SEGUE_RETURN_IF_ERROR(SyncDirectory(checkpoint_));
  SEGUE_RETURN_IF_ERROR(WriteDiskState(checkpoint_, version));
  SEGUE_RETURN_IF_ERROR(RemoveFile(record_));
  return Discard();
}

// Weights of before, and what Segue knew of them.
Status CheckpointReset::RemoveStrays(const std::vector<std::string>& files) {
  SEGUE_ASSIGN_OR_RETURN(const auto names, ListDirectory(checkpoint_));
  for (const std::string& name : names) {
    const std::string path = JoinPath(checkpoint_, name);
    const bool stays = !IsWeights(name) || IsDirectory(path) ||
                       std::find(files.begin(), files.end(), name) != files.end();
    if (!stays) SEGUE_RETURN_IF_ERROR(RemoveFile(path));
  }
  const std::string own = StateDirectory(checkpoint_);
  SEGUE_RETURN_IF_ERROR(CheckOwnDirectory(own));
  if (!FileExists(own)) return {};
  SEGUE_ASSIGN_OR_RETURN(const auto left, ListDirectory(own));
  for (const std::string& name : left) {
    if (name != kLockName) SEGUE_RETURN_IF_ERROR(RemoveTree(JoinPath(own, name)));
  }
  return SyncDirectory(own);
}

Status CheckpointReset::Discard() {
  SEGUE_RETURN_IF_ERROR(CheckOwnDirectory(WeightSyncFolder(checkpoint_)));
  SEGUE_RETURN_IF_ERROR(RemoveTree(next_));
  if (!FileExists(WeightSyncFolder(checkpoint_))) return {};
  return SyncDirectory(WeightSyncFolder(checkpoint_));
}

}  // namespace segue
