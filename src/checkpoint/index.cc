// SPDX-License-Identifier: Apache-2.0
//
// Index file parser and the checks that hold an index against the shards' headers.
#include "checkpoint/index.h"

#include <algorithm>
#include <unordered_map>
#include <utility>

#include "base/limits.h"
#include "checkpoint/json.h"
#include "checkpoint/tensor.h"

namespace segue {
namespace {

namespace ondemand = simdjson::ondemand;

constexpr std::string_view kShardSuffix = ".safetensors";

// Reads one index; shard numbers follow first appearance until SortShards.
class IndexParser {
 public:
  IndexParser(const std::string& path, IndexFile& index) : path_(path), index_(index) {}

  Status Parse(ByteSpan json);

 private:
  Status ParseWeightMap(ondemand::value value);
  Status AddEntry(std::string_view tensor, std::string_view shard);
  Result<std::uint32_t> ShardNumber(std::string_view shard);
  Status CheckShardNames();
  void SortShards();
  Status SortEntries();

  const std::string& path_;
  IndexFile& index_;
  JsonObjectReader json_;
  // Keys live in json_.
  std::unordered_map<std::string_view, std::uint32_t> shard_numbers_;
};

Status IndexParser::Parse(ByteSpan json) {
  SEGUE_RETURN_IF_ERROR(json_.Open(json, path_));
  bool seen = false;
  for (auto item : json_.root()) {
    ondemand::field field;
    if (const auto error = std::move(item).get(field))
      return json_.Fault("is not valid JSON", error);
    std::string_view key;
    if (const auto error = field.unescaped_key().get(key)) {
      return json_.Fault("holds a broken key", error);
    }
    if (key != "weight_map") {
      if (const auto error = SkipJsonValue(field.value())) {
        return json_.Fault("key " + Quoted(key), error);
      }
      continue;
    }
    if (std::exchange(seen, true)) return json_.Fault("'weight_map' appears twice");
    SEGUE_RETURN_IF_ERROR(ParseWeightMap(field.value()));
  }
  SEGUE_RETURN_IF_ERROR(json_.Finish());
  if (!seen) return json_.Fault("'weight_map' is missing");
  if (index_.entries.empty()) return json_.Fault("'weight_map' names no tensors");
  SEGUE_RETURN_IF_ERROR(CheckShardNames());
  SortShards();
  return SortEntries();
}

Status IndexParser::ParseWeightMap(ondemand::value value) {
  ondemand::object object;
  if (const auto error = value.get_object().get(object)) {
    return json_.Fault("'weight_map' is not an object", error);
  }
  for (auto item : object) {
    ondemand::field field;
    if (const auto error = std::move(item).get(field)) {
      return json_.Fault("'weight_map' is not valid JSON", error);
    }
    std::string_view tensor, shard;
    if (const auto error = field.unescaped_key().get(tensor)) {
      return json_.Fault("'weight_map' holds a broken key", error);
    }
    if (const auto error = field.value().get_string().get(shard)) {
      return json_.Fault("tensor " + Quoted(tensor) + ": the shard name is not a string", error);
    }
    SEGUE_RETURN_IF_ERROR(AddEntry(tensor, shard));
  }
  return {};
}

Status IndexParser::AddEntry(std::string_view tensor, std::string_view shard) {
  if (tensor.empty()) return json_.Fault("'weight_map' holds an empty tensor name");
  if (tensor.size() > limits::kTensorNameSizeMax) {
    return ResourceExhausted(Quoted(path_) + ": tensor " + Quoted(tensor) + ": the limit is " +
                             std::to_string(limits::kTensorNameSizeMax) + " bytes");
  }
  if (index_.entries.size() >= limits::kTensorCountMax) {
    return ResourceExhausted(Quoted(path_) + ": holds more than " +
                             std::to_string(limits::kTensorCountMax) + " tensors");
  }
  SEGUE_ASSIGN_OR_RETURN(const std::uint32_t number, ShardNumber(shard));
  index_.entries.push_back({std::string(tensor), number});
  return {};
}

Result<std::uint32_t> IndexParser::ShardNumber(std::string_view shard) {
  const auto number = static_cast<std::uint32_t>(index_.shards.size());
  const auto [place, added] = shard_numbers_.emplace(shard, number);
  if (!added) return place->second;
  if (index_.shards.size() >= limits::kShardCountMax) {
    return ResourceExhausted(Quoted(path_) + ": holds more than " +
                             std::to_string(limits::kShardCountMax) + " shards");
  }
  index_.shards.emplace_back(shard);
  return number;
}

Status IndexParser::CheckShardNames() {
  constexpr std::size_t kShownMax = 20;
  std::string faults;
  std::size_t count = 0;
  for (const std::string& shard : index_.shards) {
    const Status status = CheckShardName(shard);
    if (status.ok() || ++count > kShownMax) continue;
    faults += (count == 1 ? "" : "; ") + status.message();
  }
  if (count == 0) return {};
  if (count > kShownMax) faults += "; and " + std::to_string(count - kShownMax) + " more";
  return json_.Fault(faults);
}

void IndexParser::SortShards() {
  std::vector<std::string> sorted = index_.shards;
  std::sort(sorted.begin(), sorted.end());
  std::vector<std::uint32_t> places(sorted.size());
  for (std::size_t i = 0; i < sorted.size(); ++i) {
    places[shard_numbers_.at(sorted[i])] = static_cast<std::uint32_t>(i);
  }
  for (IndexEntry& entry : index_.entries) entry.shard = places[entry.shard];
  index_.shards = std::move(sorted);
}

Status IndexParser::SortEntries() {
  std::vector<IndexEntry>& entries = index_.entries;
  const auto before = [](const IndexEntry& a, const IndexEntry& b) { return a.tensor < b.tensor; };
  if (!std::is_sorted(entries.begin(), entries.end(), before)) {
    std::sort(entries.begin(), entries.end(), before);
  }
  const auto same = [](const IndexEntry& a, const IndexEntry& b) { return a.tensor == b.tensor; };
  const auto twice = std::adjacent_find(entries.begin(), entries.end(), same);
  if (twice == entries.end()) return {};
  return json_.Fault("tensor " + Quoted(twice->tensor) + ": appears twice in 'weight_map'");
}

}  // namespace

Result<IndexFile> ParseIndex(ByteSpan json, const std::string& path) {
  if (json.size() > limits::kIndexSizeMax) {
    return ResourceExhausted(Quoted(path) + ": has " + std::to_string(json.size()) +
                             " bytes, the limit is " + std::to_string(limits::kIndexSizeMax));
  }
  IndexFile index;
  SEGUE_RETURN_IF_ERROR(IndexParser(path, index).Parse(json));
  return index;
}

Status CheckIndexMatches(const IndexFile& index, std::span<const IndexedTensor> tensors,
                         const std::string& path) {
  SEGUE_RETURN_IF_ERROR(CheckNoTensorTwice(tensors, index.shards, path));
  const auto fault = [&path](std::string_view tensor, const std::string& reason) {
    return Corruption(Quoted(path) + ": tensor " + Quoted(tensor) + ": " + reason);
  };
  std::size_t i = 0;
  for (const IndexEntry& entry : index.entries) {
    const std::string& wanted = index.shards[entry.shard];
    if (i < tensors.size() && tensors[i].name < entry.tensor) break;
    if (i == tensors.size() || tensors[i].name != entry.tensor) {
      return fault(entry.tensor,
                   "'weight_map' says shard " + Quoted(wanted) + ", no shard holds it");
    }
    if (tensors[i].shard != entry.shard) {
      return fault(entry.tensor, "'weight_map' says shard " + Quoted(wanted) + ", found in shard " +
                                     Quoted(index.shards[tensors[i].shard]));
    }
    ++i;
  }
  if (i == tensors.size()) return {};
  return fault(tensors[i].name, "found in shard " + Quoted(index.shards[tensors[i].shard]) +
                                    ", 'weight_map' does not name it");
}

Status CheckNoTensorTwice(std::span<const IndexedTensor> tensors,
                          std::span<const std::string> shards, const std::string& path) {
  const auto same = [](const IndexedTensor& a, const IndexedTensor& b) { return a.name == b.name; };
  const auto twice = std::adjacent_find(tensors.begin(), tensors.end(), same);
  if (twice == tensors.end()) return {};
  return Corruption(Quoted(path) + ": tensor " + Quoted(twice->name) + ": found in two shards, " +
                    Quoted(shards[twice->shard]) + " and " + Quoted(shards[(twice + 1)->shard]));
}

Status CheckShardName(std::string_view name) {
  const auto fault = [name](const char* reason) {
    return InvalidArgument("shard name " + Quoted(name) + " " + reason);
  };
  if (name.empty()) return fault("is empty");
  if (name.size() > limits::kShardNameSizeMax) return fault("is longer than 255 bytes");
  if (name.front() == '.') return fault("begins with '.'");
  for (const char c : name) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '/' || c == '\\') return fault("is a path, expected a plain file name");
    if (byte < 0x20 || byte == 0x7f) return fault("holds a control character");
  }
  if (!name.ends_with(kShardSuffix)) return fault("does not end in '.safetensors'");
  return {};
}

}  // namespace segue
