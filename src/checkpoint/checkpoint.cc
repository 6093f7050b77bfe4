// SPDX-License-Identifier: Apache-2.0
//
// Opens a checkpoint: finds its shards, maps and parses them in parallel, and holds them against
// the index. Nothing outside the checkpoint's own names is opened.
#include "checkpoint/checkpoint.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "base/check.h"
#include "base/limits.h"
#include "base/threads.h"

namespace segue {
namespace {

constexpr std::size_t kNamesShownMax = 100;

// Names that end in ".safetensors" and are not hidden; `names` is a directory's listing.
std::vector<std::string> ShardCandidates(const std::vector<std::string>& names) {
  std::vector<std::string> candidates;
  for (const std::string& name : names) {
    if (name.ends_with(".safetensors") && name.front() != '.') candidates.push_back(name);
  }
  return candidates;
}

// Reads digits from the end of `text` and removes them; empty when there are none.
std::string_view TakeDigitsFromEnd(std::string_view& text) {
  std::size_t begin = text.size();
  while (begin > 0 && text[begin - 1] >= '0' && text[begin - 1] <= '9') --begin;
  const std::string_view digits = text.substr(begin);
  text.remove_suffix(digits.size());
  return digits;
}

// "...-00001-of-00004.safetensors": one part of several (a split into one part is whole by itself).
bool LooksLikePart(std::string_view name) {
  name.remove_suffix(std::string_view(".safetensors").size());
  const std::string_view count = TakeDigitsFromEnd(name);
  if (count.empty() || !name.ends_with("-of-")) return false;
  name.remove_suffix(std::string_view("-of-").size());
  if (TakeDigitsFromEnd(name).empty()) return false;
  const std::size_t first = count.find_first_not_of('0');
  return first != std::string_view::npos && count.substr(first) != "1";
}

// The one shard of a directory without an index.
Result<std::string> SoleShard(const std::string& directory, const std::vector<std::string>& names) {
  const std::vector<std::string> candidates = ShardCandidates(names);
  if (candidates.empty()) {
    return NotFound(Quoted(directory) + ": holds no .safetensors file and no " + kIndexFileName);
  }
  if (std::all_of(candidates.begin(), candidates.end(), LooksLikePart)) {
    return NotFound(Quoted(directory) + ": " + kIndexFileName + " is missing, found parts of a " +
                    "split checkpoint: " + QuotedNames(candidates, kNamesShownMax));
  }
  if (candidates.size() > 1) {
    return InvalidArgument(
        Quoted(directory) + ": ambiguous without " + kIndexFileName +
        ", any of these could be the checkpoint: " + QuotedNames(candidates, kNamesShownMax));
  }
  SEGUE_RETURN_IF_ERROR(CheckShardName(candidates[0]).WithContext(Quoted(directory)));
  return candidates[0];
}

// All missing and all empty shards in one message.
Status CheckShardsPresent(const std::string& directory, const std::vector<std::string>& shards) {
  std::vector<std::string> missing, empty;
  for (const std::string& name : shards) {
    const Result<std::uint64_t> size = FileSize(JoinPath(directory, name));
    if (!size.ok() && size.status().code() != StatusCode::kNotFound) return size.status();
    if (!size.ok()) {
      missing.push_back(name);
    } else if (size.value() == 0) {
      empty.push_back(name);
    }
  }
  if (missing.empty() && empty.empty()) return {};
  std::string message = Quoted(directory) + ": the checkpoint is incomplete";
  if (!missing.empty()) {
    message += ", " + std::to_string(missing.size()) + " of " + std::to_string(shards.size()) +
               " shards missing: " + QuotedNames(missing, kNamesShownMax);
  }
  if (!empty.empty()) message += ", shards of 0 bytes: " + QuotedNames(empty, kNamesShownMax);
  return missing.empty() ? Corruption(message) : NotFound(message);
}

// One sentence about .safetensors files that the index does not name; empty without any.
std::string StrayWarning(const std::string& directory, const std::vector<std::string>& names,
                         const std::vector<std::string>& shards) {
  const std::vector<std::string> candidates = ShardCandidates(names);
  std::vector<std::string> strays;
  std::set_difference(candidates.begin(), candidates.end(), shards.begin(), shards.end(),
                      std::back_inserter(strays));
  if (strays.empty()) return "";
  return Quoted(directory) + ": ignored " + std::to_string(strays.size()) +
         (strays.size() == 1 ? " file" : " files") +
         " that the index does not name: " + QuotedNames(strays, kNamesShownMax);
}

// Maps and parses the shard whose name and path are set.
Status LoadShard(Shard& shard, MappedFile::Mode mode, std::vector<CheckpointTensor>& tensors) {
  SEGUE_ASSIGN_OR_RETURN(shard.file, MappedFile::Open(shard.path, mode));
  SEGUE_ASSIGN_OR_RETURN(SafetensorsFile parsed,
                         ParseSafetensorsFile(shard.file.bytes(), shard.path));
  shard.header_json = parsed.json;
  shard.data_offset = 8 + parsed.json.size();
  tensors.reserve(parsed.header.entries.size());
  for (SafetensorsEntry& entry : parsed.header.entries) {
    tensors.push_back({std::move(entry.spec), 0, shard.data_offset + entry.offset, entry.size});
  }
  return {};
}

// Loads all shards in parallel. The failure returned is that of the first shard in order, so that
// messages do not depend on timing.
Result<std::vector<CheckpointTensor>> LoadShards(std::vector<Shard>& shards,
                                                 MappedFile::Mode mode) {
  std::vector<std::vector<CheckpointTensor>> parts(shards.size());
  std::vector<Status> outcomes(shards.size());
  SEGUE_RETURN_IF_ERROR(ParallelFor(shards.size(), 0, [&](std::size_t i, unsigned) -> Status {
    outcomes[i] = LoadShard(shards[i], mode, parts[i]);
    return {};
  }));
  std::uint64_t count = 0;
  for (std::size_t i = 0; i < shards.size(); ++i) {
    SEGUE_RETURN_IF_ERROR(outcomes[i]);
    count += parts[i].size();
  }
  if (count > limits::kTensorCountMax) {
    return ResourceExhausted("the shards hold " + std::to_string(count) +
                             " tensors, the limit is " + std::to_string(limits::kTensorCountMax));
  }
  std::vector<CheckpointTensor> tensors;
  tensors.reserve(count);
  for (std::size_t i = 0; i < shards.size(); ++i) {
    for (CheckpointTensor& tensor : parts[i]) {
      tensor.shard = static_cast<std::uint32_t>(i);
      tensors.push_back(std::move(tensor));
    }
  }
  const auto before = [](const CheckpointTensor& a, const CheckpointTensor& b) {
    return a.spec.name < b.spec.name;
  };
  if (!std::is_sorted(tensors.begin(), tensors.end(), before)) {
    std::sort(tensors.begin(), tensors.end(), before);
  }
  return tensors;
}

std::vector<IndexedTensor> Indexed(std::span<const CheckpointTensor> tensors) {
  std::vector<IndexedTensor> indexed;
  indexed.reserve(tensors.size());
  for (const CheckpointTensor& tensor : tensors)
    indexed.push_back({tensor.spec.name, tensor.shard});
  return indexed;
}

}  // namespace

Result<Checkpoint> Checkpoint::Open(const std::string& path, MappedFile::Mode mode) {
  SEGUE_ASSIGN_OR_RETURN(Checkpoint checkpoint, OpenUnresolved(path, mode));
  const std::string& directory = checkpoint.directory_;
  if (FileExists(JoinPath(directory, kResetRecordName)) &&
      !FileExists(JoinPath(directory, kDiskStateName))) {
    return Tainted("the files of " + Quoted(directory) +
                   " were being replaced, or are: they may be of two versions; finish it with "
                   "another pull of disk deltas (POST /pull_weights)");
  }
  if (!FileExists(JoinPath(directory, kJournalRecordName))) return checkpoint;
  return Tainted("an apply of " + Quoted(directory) +
                 " was interrupted, or is under way: its weights may be half changed; finish it "
                 "with 'segue resolve --checkpoint " +
                 directory + "'");
}

Result<Checkpoint> Checkpoint::OpenUnresolved(const std::string& path, MappedFile::Mode mode) {
  Result<std::vector<std::string>> names = ListDirectory(path);
  if (names.ok()) return OpenDirectory(path, *names, mode);
  // A file is no directory either, but it is there.
  if (names.status().code() != StatusCode::kNotFound || !FileSize(path).ok()) {
    return names.status();
  }
  const std::string name = path.substr(path.rfind('/') + 1);
  SEGUE_RETURN_IF_ERROR(CheckShardName(name).WithContext(Quoted(path)));
  Checkpoint checkpoint;
  checkpoint.directory_ = DirectoryOf(path);
  SEGUE_RETURN_IF_ERROR(checkpoint.Load({name}, nullptr, mode));
  return checkpoint;
}

Result<Checkpoint> Checkpoint::OpenDirectory(const std::string& directory,
                                             const std::vector<std::string>& names,
                                             MappedFile::Mode mode) {
  Checkpoint checkpoint;
  checkpoint.directory_ = directory;
  if (!std::binary_search(names.begin(), names.end(), kIndexFileName)) {
    SEGUE_ASSIGN_OR_RETURN(const std::string name, SoleShard(directory, names));
    SEGUE_RETURN_IF_ERROR(checkpoint.Load({name}, nullptr, mode));
    return checkpoint;
  }
  const std::string index_path = JoinPath(directory, kIndexFileName);
  SEGUE_ASSIGN_OR_RETURN(checkpoint.index_json_, ReadFile(index_path, limits::kIndexSizeMax));
  SEGUE_ASSIGN_OR_RETURN(const IndexFile index, ParseIndex(checkpoint.index_json_, index_path));
  SEGUE_RETURN_IF_ERROR(checkpoint.Load(index.shards, &index, mode));
  std::string warning = StrayWarning(directory, names, index.shards);
  if (!warning.empty()) checkpoint.warnings_.push_back(std::move(warning));
  return checkpoint;
}

Status Checkpoint::Load(const std::vector<std::string>& shard_names, const IndexFile* index,
                        MappedFile::Mode mode) {
  SEGUE_RETURN_IF_ERROR(CheckShardsPresent(directory_, shard_names));
  shards_.resize(shard_names.size());
  for (std::size_t i = 0; i < shard_names.size(); ++i) {
    shards_[i].name = shard_names[i];
    shards_[i].path = JoinPath(directory_, shard_names[i]);
  }
  SEGUE_ASSIGN_OR_RETURN(tensors_, LoadShards(shards_, mode));
  if (index != nullptr) {
    const std::string index_path = JoinPath(directory_, kIndexFileName);
    SEGUE_RETURN_IF_ERROR(CheckIndexMatches(*index, Indexed(tensors_), index_path));
  }
  for (std::size_t i = 0; i < tensors_.size(); ++i) {
    shards_[tensors_[i].shard].tensors.push_back(static_cast<std::uint32_t>(i));
  }
  return {};
}

ByteSpan Checkpoint::TensorBytes(std::size_t tensor) const {
  SEGUE_CHECK(tensor < tensors_.size());
  const CheckpointTensor& place = tensors_[tensor];
  return shards_[place.shard].file.bytes().subspan(place.file_offset, place.size);
}

MutableByteSpan Checkpoint::MutableTensorBytes(std::size_t tensor) {
  SEGUE_CHECK(tensor < tensors_.size());
  const CheckpointTensor& place = tensors_[tensor];
  const MutableByteSpan bytes = shards_[place.shard].file.mutable_bytes();
  return bytes.empty() ? bytes : bytes.subspan(place.file_offset, place.size);
}

}  // namespace segue
