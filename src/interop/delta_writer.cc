// SPDX-License-Identifier: Apache-2.0
//
// Delta writer. A shard's header stands before its data and needs their sizes, so frames wait in a
// file of their own.
#include "interop/delta_writer.h"

#include <cstdio>
#include <utility>

#include "base/check.h"
#include "base/limits.h"

namespace segue {

DeltaWriter::DeltaWriter(ScratchDirectory scratch, const std::string& output, DeltaIndex index,
                         std::uint64_t shard_count, const Plan& plan)
    : scratch_(std::move(scratch)),
      output_(output),
      directory_(JoinPath(scratch_.path(), DiskVersionName(index.version))),
      index_(std::move(index)),
      shard_count_(shard_count),
      plan_(&plan) {}

Result<DeltaWriter> DeltaWriter::Start(const std::string& output, DeltaIndex index,
                                       std::uint64_t shard_count, const Plan& plan) {
  SEGUE_CHECK(shard_count > 0 && shard_count <= limits::kDiskDeltaShardCountMax);
  SEGUE_ASSIGN_OR_RETURN(ScratchDirectory scratch, ScratchDirectory::Make(output, ".segue-export"));
  DeltaWriter writer(std::move(scratch), output, std::move(index), shard_count, plan);
  SEGUE_RETURN_IF_ERROR(MakeOwnDirectory(writer.directory_));
  return writer;
}

std::string DeltaWriter::ShardName(std::uint64_t number) const {
  char name[64];
  (void)std::snprintf(name, sizeof(name), "model-%05llu-of-%05llu.safetensors",
                      static_cast<unsigned long long>(number),
                      static_cast<unsigned long long>(shard_count_));
  return name;
}

std::uint64_t DeltaWriter::ShardOf(std::size_t tensor) const {
  if (plan_->chunk_count() == 0) return 0;
  return MultiplyDivide(plan_->tensors()[tensor].first_chunk, shard_count_, plan_->chunk_count());
}

Status DeltaWriter::Add(std::size_t tensor, ByteSpan frame, const TensorChecksum& checksum) {
  const std::uint64_t shard = ShardOf(tensor);
  if (shard_ && *shard_ != shard) SEGUE_RETURN_IF_ERROR(EndShard());
  if (!shard_) SEGUE_RETURN_IF_ERROR(StartShard(shard));
  const std::string& name = plan_->tensors()[tensor].spec.name;
  SEGUE_CHECK(entries_.empty() || entries_.back().spec.name < name);
  SEGUE_RETURN_IF_ERROR(data_.Append(frame));
  entries_.push_back({{name, Dtype::kU8, {frame.size()}}, data_size_, frame.size()});
  data_size_ += frame.size();
  checksums_[name] = checksum.ToHex(index_.checksum);
  index_.map.entries.push_back({name, static_cast<std::uint32_t>(index_.map.shards.size() - 1)});
  return {};
}

Status DeltaWriter::StartShard(std::uint64_t number) {
  shard_ = number;
  index_.map.shards.push_back(ShardName(number));
  SEGUE_ASSIGN_OR_RETURN(data_, OutputFile::Create(JoinPath(scratch_.path(), "data")));
  return {};
}

Status DeltaWriter::EndShard() {
  SEGUE_RETURN_IF_ERROR(data_.Close());
  SEGUE_ASSIGN_OR_RETURN(const MappedFile data, MappedFile::Open(data_.path()));
  const std::string header = MakeSafetensorsHeader(entries_, checksums_);
  if (header.size() > limits::kSafetensorsHeaderSizeMax) {
    return ResourceExhausted(
        "the header of a shard has " + std::to_string(header.size()) + " bytes, the limit is " +
        std::to_string(limits::kSafetensorsHeaderSizeMax) + ": use more shards (--shards)");
  }
  ByteVector head;
  AppendLittle<std::uint64_t>(head, header.size());
  AppendBytes(head, AsBytes(header));
  SEGUE_RETURN_IF_ERROR(WriteWhole(index_.map.shards.back(), head, data.bytes()));
  shard_.reset();
  data_size_ = 0;
  entries_.clear();
  checksums_.clear();
  return {};
}

Status DeltaWriter::WriteWhole(const std::string& name, ByteSpan head, ByteSpan rest) {
  SEGUE_ASSIGN_OR_RETURN(OutputFile file, OutputFile::Create(JoinPath(directory_, name)));
  SEGUE_RETURN_IF_ERROR(file.Append(head));
  SEGUE_RETURN_IF_ERROR(file.Append(rest));
  SEGUE_RETURN_IF_ERROR(file.Sync());
  bytes_ += head.size() + rest.size();
  return file.Close();
}

Result<std::uint64_t> DeltaWriter::Finish() {
  if (shard_) SEGUE_RETURN_IF_ERROR(EndShard());
  SEGUE_RETURN_IF_ERROR(WriteWhole(kIndexFileName, AsBytes(MakeDeltaIndex(index_)), {}));
  SEGUE_RETURN_IF_ERROR(SyncDirectory(directory_));
  SEGUE_RETURN_IF_ERROR(
      RenameToNew(directory_, JoinPath(output_, DiskVersionName(index_.version))));
  SEGUE_RETURN_IF_ERROR(SyncDirectory(output_));
  return bytes_;
}

}  // namespace segue
