// SPDX-License-Identifier: Apache-2.0
//
// Nothing is synced: a generated checkpoint that a power failure takes is generated again.
#include "workload/writer.h"

#include <algorithm>
#include <map>
#include <numeric>

#include "base/check.h"
#include "checkpoint/index.h"
#include "checkpoint/safetensors.h"

namespace segue::workload {
namespace {

std::string FiveDigits(std::size_t number) {
  const std::string digits = std::to_string(number);
  return std::string(digits.size() < 5 ? 5 - digits.size() : 0, '0') + digits;
}

}  // namespace

Result<ShardLayout> ShardLayout::Make(const std::vector<TensorSpec>& specs, unsigned shard_count) {
  ShardLayout layout;
  layout.places_.resize(specs.size());
  for (std::size_t i = 0; i < specs.size(); ++i) {
    SEGUE_ASSIGN_OR_RETURN(layout.places_[i].size, TensorSize(specs[i]));
    layout.total_size_ += layout.places_[i].size;
  }
  // A shard is full when the sum so far passes its part of the whole; every shard gets a tensor.
  const std::size_t shards = std::min<std::size_t>(shard_count, specs.size());
  std::size_t shard = 0;
  std::uint64_t sum = 0;
  for (std::size_t i = 0; i < specs.size(); ++i) {
    const bool full = sum * shards >= layout.total_size_ * (shard + 1);
    const bool must = specs.size() - i < shards - shard;
    if (i > 0 && shard + 1 < shards && (full || must)) ++shard;
    layout.places_[i].shard = shard;
    sum += layout.places_[i].size;
  }
  layout.headers_.resize(shard + 1);
  SEGUE_RETURN_IF_ERROR(layout.MakeHeaders(specs));
  layout.MakeIndex(specs);
  return layout;
}

Status ShardLayout::MakeHeaders(const std::vector<TensorSpec>& specs) {
  // As the reference writer orders them: wide dtypes first, so that all are aligned, then by name.
  std::vector<std::size_t> order(specs.size());
  std::iota(order.begin(), order.end(), 0);
  std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    const unsigned bits_a = DtypeBits(specs[a].dtype);
    const unsigned bits_b = DtypeBits(specs[b].dtype);
    return bits_a != bits_b ? bits_a > bits_b : specs[a].name < specs[b].name;
  });
  std::vector<std::vector<SafetensorsEntry>> entries(headers_.size());
  for (const std::size_t i : order) {
    std::vector<SafetensorsEntry>& shard = entries[places_[i].shard];
    places_[i].offset = shard.empty() ? 0 : shard.back().offset + shard.back().size;
    shard.push_back({specs[i], places_[i].offset, places_[i].size});
  }
  for (std::size_t shard = 0; shard < headers_.size(); ++shard) {
    const std::string json = MakeSafetensorsHeader(entries[shard], {{"format", "pt"}});
    AppendLittle<std::uint64_t>(headers_[shard], json.size());
    AppendBytes(headers_[shard], AsBytes(json));
  }
  for (Place& place : places_) place.offset += headers_[place.shard].size();
  return {};
}

void ShardLayout::MakeIndex(const std::vector<TensorSpec>& specs) {
  std::map<std::string, std::size_t> shards;
  for (std::size_t i = 0; i < specs.size(); ++i) shards[specs[i].name] = places_[i].shard;
  index_json_ = "{\n  \"metadata\": {\n    \"total_size\": " + std::to_string(total_size_) +
                "\n  },\n  \"weight_map\": {";
  const char* separator = "\n";
  for (const auto& [name, shard] : shards) {
    index_json_ += separator;
    index_json_ += "    \"" + name + "\": \"" + ShardName(shard) + "\"";
    separator = ",\n";
  }
  index_json_ += "\n  }\n}\n";
}

std::string ShardLayout::ShardName(std::size_t shard) const {
  return "model-" + FiveDigits(shard + 1) + "-of-" + FiveDigits(shard_count()) + ".safetensors";
}

Result<VersionWriter> VersionWriter::Create(const ShardLayout& layout,
                                            const std::string& directory) {
  VersionWriter writer;
  writer.layout_ = &layout;
  writer.directory_ = directory;
  SEGUE_RETURN_IF_ERROR(MakeDirectories(directory));
  for (std::size_t shard = 0; shard < layout.shard_count(); ++shard) {
    const std::string path = JoinPath(directory, layout.ShardName(shard));
    SEGUE_ASSIGN_OR_RETURN(OutputFile file, OutputFile::Create(path));
    SEGUE_RETURN_IF_ERROR(file.Append(layout.header(shard)));
    writer.files_.push_back(std::move(file));
  }
  return writer;
}

Status VersionWriter::Write(std::size_t index, std::uint64_t offset, ByteSpan bytes) {
  const ShardLayout::Place& place = layout_->place(index);
  SEGUE_CHECK(offset <= place.size && bytes.size() <= place.size - offset);
  return files_[place.shard].WriteAt(place.offset + offset, bytes);
}

Status VersionWriter::Close() {
  for (OutputFile& file : files_) SEGUE_RETURN_IF_ERROR(file.Close());
  SEGUE_ASSIGN_OR_RETURN(OutputFile index,
                         OutputFile::Create(JoinPath(directory_, kIndexFileName)));
  SEGUE_RETURN_IF_ERROR(index.Append(AsBytes(layout_->index_json())));
  return index.Close();
}

}  // namespace segue::workload
