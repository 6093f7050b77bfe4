// SPDX-License-Identifier: Apache-2.0
//
// Delta directory: the index first, then each shard's header, then both against each other and
// against the plan.
#include "interop/delta_directory.h"

#include <sys/stat.h>

#include <algorithm>
#include <utility>

#include "base/file.h"
#include "base/file_place.h"
#include "base/limits.h"
#include "checkpoint/safetensors.h"
#include "sync/source_model.h"

namespace segue {
namespace {

constexpr std::uint64_t kLengthSize = 8;

Status CheckPlainFile(const std::string& path) {
  struct stat info {};
  if (ExaminePath(path, info) != 0) return ErrnoStatus("examine", path);
  if (S_ISREG(info.st_mode)) return {};
  return InvalidArgument("'" + path + "' is not a regular file; links are not followed here");
}

// The header of a shard whose data section follows it to the file's end.
struct ShardHeader {
  SafetensorsHeader header;
  std::uint64_t data_offset = 0;
};

Result<ShardHeader> ReadShardHeader(const std::string& path) {
  SEGUE_RETURN_IF_ERROR(CheckPlainFile(path));
  SEGUE_ASSIGN_OR_RETURN(const std::uint64_t file_size, FileSize(path));
  if (file_size < kLengthSize) {
    return Corruption("'" + path + "' has " + std::to_string(file_size) +
                      " bytes, a safetensors file has at least 8");
  }
  SEGUE_ASSIGN_OR_RETURN(const ByteVector length, ReadFileRange(path, 0, kLengthSize));
  const auto header_size = LoadLittle<std::uint64_t>(length.data());
  if (header_size > limits::kSafetensorsHeaderSizeMax) {
    return ResourceExhausted("'" + path + "': header length is " + std::to_string(header_size) +
                             " bytes, the limit is " +
                             std::to_string(limits::kSafetensorsHeaderSizeMax));
  }
  SEGUE_ASSIGN_OR_RETURN(const ByteVector json, ReadFileRange(path, kLengthSize, header_size));
  ShardHeader shard;
  SEGUE_ASSIGN_OR_RETURN(shard.header, ParseSafetensorsHeader(json, path));
  shard.data_offset = kLengthSize + header_size;
  const auto expected = CheckedAdd(shard.data_offset, shard.header.data_size);
  if (expected == file_size) return shard;
  return Corruption("'" + path + "' has " + std::to_string(file_size) +
                    " bytes, its header asks for " +
                    (expected ? std::to_string(*expected) : "more than 2^64"));
}

class Opener {
 public:
  Opener(const std::string& path, const Plan& plan, std::uint32_t number,
         std::vector<TensorDiff>& diffs)
      : plan_(plan), number_(number), diffs_(diffs), first_(diffs.size()) {
    directory_.path = path;
  }

  Result<DeltaDirectory> Run() {
    const std::string path = JoinPath(directory_.path, kIndexFileName);
    SEGUE_ASSIGN_OR_RETURN(const ByteVector json,
                           ReadFile(path, limits::kIndexSizeMax, Links::kRefuse));
    SEGUE_ASSIGN_OR_RETURN(auto index, ParseDeltaIndex(json, path));
    if (!index) return Corruption("'" + path + "' has no 'delta_encoding': not a delta");
    directory_.version = index->version;
    directory_.base_version = index->base_version;
    directory_.encoding = index->encoding;
    directory_.checksum = index->checksum;
    directory_.shards = index->map.shards;
    SEGUE_RETURN_IF_ERROR(CheckFiles());
    for (std::uint32_t i = 0; i < directory_.shards.size(); ++i) {
      SEGUE_RETURN_IF_ERROR(AddShard(i));
    }
    SEGUE_RETURN_IF_ERROR(CheckMap(index->map, path));
    return std::move(directory_);
  }

 private:
  // No shard but those that the index names.
  Status CheckFiles() const {
    SEGUE_ASSIGN_OR_RETURN(const auto names, ListDirectory(directory_.path));
    for (const std::string& name : names) {
      if (!name.ends_with(".safetensors") ||
          std::binary_search(directory_.shards.begin(), directory_.shards.end(), name)) {
        continue;
      }
      return Corruption(Quoted(directory_.path) + ": the index does not name " + Quoted(name) +
                        ", which other readers would apply");
    }
    return {};
  }

  Status AddShard(std::uint32_t number) {
    const std::string path = JoinPath(directory_.path, directory_.shards[number]);
    SEGUE_ASSIGN_OR_RETURN(const ShardHeader shard, ReadShardHeader(path));
    for (const SafetensorsEntry& entry : shard.header.entries) {
      Result<TensorDiff> diff = Check(entry, shard.header);
      if (!diff.ok()) {
        return diff.status().WithContext(Quoted(path) + ": tensor " + Quoted(entry.spec.name));
      }
      diff->offset = shard.data_offset + entry.offset;
      diff->shard = number;
      if (diffs_.size() >= limits::kDiskDeltaDiffCountMax) {
        return ResourceExhausted("disk deltas: more than " +
                                 std::to_string(limits::kDiskDeltaDiffCountMax) +
                                 " diffs on one way: take it in several steps");
      }
      diffs_.push_back(diff.value());
    }
    return {};
  }

  Result<TensorDiff> Check(const SafetensorsEntry& entry, const SafetensorsHeader& header) const {
    const auto tensor = FindTensor(plan_, entry.spec.name);
    if (!tensor.ok()) return Corruption("the checkpoint has no such tensor");
    if (entry.spec.dtype != Dtype::kU8 || entry.spec.shape.size() != 1) {
      return Corruption("a diff is U8 of one dimension, found " + DescribeTensor(entry.spec));
    }
    const std::uint64_t size = plan_.tensors()[tensor.value()].size;
    const std::uint64_t size_max = DeltaFrameSizeMax(directory_.encoding, size);
    if (entry.size > size_max) {
      return ResourceExhausted("a diff of " + std::to_string(entry.size) +
                               " bytes for a tensor of " + std::to_string(size) +
                               ", the limit is " + std::to_string(size_max));
    }
    const auto text = header.metadata.find(entry.spec.name);
    if (text == header.metadata.end()) return Corruption("'__metadata__' has no checksum of it");
    const auto checksum = TensorChecksum::FromHex(directory_.checksum, text->second);
    if (!checksum) {
      return Corruption("checksum " + Quoted(text->second) + " is not one of " +
                        std::string(ChecksumKindName(directory_.checksum)));
    }
    TensorDiff diff;
    diff.tensor = static_cast<std::uint32_t>(tensor.value());
    diff.version = number_;
    diff.size = entry.size;
    diff.checksum = *checksum;
    return diff;
  }

  // In the plan's order; and each tensor where the index says.
  Status CheckMap(const IndexFile& map, const std::string& path) {
    const auto begin = diffs_.begin() + static_cast<std::ptrdiff_t>(first_);
    std::sort(begin, diffs_.end(),
              [](const TensorDiff& a, const TensorDiff& b) { return a.tensor < b.tensor; });
    std::vector<IndexedTensor> found;
    found.reserve(static_cast<std::size_t>(diffs_.end() - begin));
    for (auto diff = begin; diff != diffs_.end(); ++diff) {
      found.push_back({plan_.tensors()[diff->tensor].spec.name, diff->shard});
    }
    return CheckIndexMatches(map, found, path);
  }

  const Plan& plan_;
  const std::uint32_t number_;
  std::vector<TensorDiff>& diffs_;
  const std::size_t first_;
  DeltaDirectory directory_;
};

}  // namespace

Result<ByteVector> DeltaDirectory::ReadFrame(const TensorDiff& diff) const {
  return ReadFileRange(JoinPath(path, shards[diff.shard]), diff.offset, diff.size);
}

Result<bool> IsDeltaDirectory(const std::string& path) {
  SEGUE_ASSIGN_OR_RETURN(const auto names, ListDirectory(path));
  if (!std::binary_search(names.begin(), names.end(), kIndexFileName)) return false;
  const std::string index_path = JoinPath(path, kIndexFileName);
  SEGUE_ASSIGN_OR_RETURN(const ByteVector json,
                         ReadFile(index_path, limits::kIndexSizeMax, Links::kRefuse));
  SEGUE_ASSIGN_OR_RETURN(const auto index, ParseDeltaIndex(json, index_path));
  return index.has_value();
}

Result<DeltaDirectory> OpenDeltaDirectory(const std::string& path, const Plan& plan,
                                          std::uint32_t number, std::vector<TensorDiff>& diffs) {
  return Opener(path, plan, number, diffs).Run();
}

}  // namespace segue
