// SPDX-License-Identifier: Apache-2.0
//
// Generated layout: how a model lies in files whose publisher has none (docs/format.md, section 3).
// It follows from the plan and the shard size alone, so that all owners of a version agree on it.
#include <algorithm>
#include <cstdio>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "base/limits.h"
#include "checkpoint/index.h"
#include "checkpoint/layout.h"
#include "checkpoint/safetensors.h"

namespace segue {
namespace {

using ShardTensors = std::vector<const PlanTensor*>;

std::vector<ShardTensors> CutIntoShards(const Plan& plan, std::uint64_t shard_size) {
  std::vector<ShardTensors> shards(1);
  std::uint64_t size = 0;
  for (const PlanTensor& tensor : plan.tensors()) {
    const bool is_full = size + tensor.size > shard_size ||
                         shards.back().size() == limits::kGeneratedShardTensorsMax;
    if (is_full && !shards.back().empty()) {
      shards.emplace_back();
      size = 0;
    }
    shards.back().push_back(&tensor);
    size += tensor.size;
  }
  return shards;
}

// Widest elements first: every tensor then begins at a multiple of its width.
std::string MakeHeader(ShardTensors tensors) {
  std::stable_sort(tensors.begin(), tensors.end(), [](const PlanTensor* a, const PlanTensor* b) {
    return DtypeWidth(a->spec.dtype) > DtypeWidth(b->spec.dtype);
  });
  std::vector<SafetensorsEntry> entries;
  entries.reserve(tensors.size());
  std::uint64_t offset = 0;
  for (const PlanTensor* tensor : tensors) {
    entries.push_back({tensor->spec, offset, tensor->size});
    offset += tensor->size;
  }
  return MakeSafetensorsHeader(entries, {{"format", "pt"}});
}

std::string ShardName(std::size_t shard, std::size_t count) {
  if (count == 1) return "model.safetensors";
  char name[64];
  (void)std::snprintf(name, sizeof(name), "model-%05zu-of-%05zu.safetensors", shard + 1, count);
  return name;
}

std::string MakeIndex(const std::vector<ShardTensors>& shards, std::uint64_t total_size) {
  std::string text = "{\n  \"metadata\": {\n    \"total_size\": " + std::to_string(total_size) +
                     "\n  },\n  \"weight_map\": {";
  const char* separator = "\n    ";
  for (std::size_t shard = 0; shard < shards.size(); ++shard) {
    for (const PlanTensor* tensor : shards[shard]) {  // In the plan's order.
      text += separator;
      AppendJsonString(text, tensor->spec.name);
      text += ": \"" + ShardName(shard, shards.size()) + "\"";
      separator = ",\n    ";
    }
  }
  return text + "\n  }\n}\n";
}

Status CheckLimit(const std::string& what, std::uint64_t found, std::uint64_t max) {
  if (found <= max) return {};
  return ResourceExhausted("a layout for this plan has " + what + " " + std::to_string(found) +
                           ", the limit is " + std::to_string(max));
}

}  // namespace

Result<Layout> Layout::Generate(const Plan& plan, std::uint64_t shard_size) {
  const auto shards = CutIntoShards(plan, shard_size);
  SEGUE_RETURN_IF_ERROR(CheckLimit("a count of shards of", shards.size(), limits::kShardCountMax));
  Layout layout;
  for (std::size_t shard = 0; shard < shards.size(); ++shard) {
    layout.shards_.push_back({ShardName(shard, shards.size()), MakeHeader(shards[shard])});
    SEGUE_RETURN_IF_ERROR(CheckLimit("a header of", layout.shards_.back().header_json.size(),
                                     limits::kSafetensorsHeaderSizeMax));
  }
  if (shards.size() > 1) layout.index_json_ = MakeIndex(shards, plan.model_size());
  SEGUE_RETURN_IF_ERROR(
      CheckLimit("an index of", layout.index_json_.size(), limits::kIndexSizeMax));
  layout.Seal();
  return layout;
}

}  // namespace segue
