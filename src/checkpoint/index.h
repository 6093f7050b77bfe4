// SPDX-License-Identifier: Apache-2.0
//
// Index file (model.safetensors.index.json): which shard holds which tensor. It alone says which
// files belong to a sharded checkpoint. Shard names are checked here, before anybody opens a file
// (case B5).
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "segue/status.h"

namespace segue {

inline constexpr char kIndexFileName[] = "model.safetensors.index.json";

struct IndexEntry {
  std::string tensor;
  std::uint32_t shard = 0;  // Number into IndexFile::shards.
};

struct IndexFile {
  std::vector<std::string> shards;  // Ascending, each once.
  std::vector<IndexEntry> entries;  // Ascending by tensor, each once.
};

// Parses "weight_map"; other keys are ignored but must be JSON. Corruption naming `path` and the
// fault, all bad shard names in one message; ResourceExhausted where a named limit is exceeded.
Result<IndexFile> ParseIndex(ByteSpan json, const std::string& path);

// A tensor as a shard's header has it.
struct IndexedTensor {
  std::string_view name;
  std::uint32_t shard = 0;
};

// Checks that tensors found in the shards (ascending by name; the shards are `index.shards`) are
// the index's, each in the shard that the index says. Corruption naming the tensor and the shards.
Status CheckIndexMatches(const IndexFile& index, std::span<const IndexedTensor> tensors,
                         const std::string& path);

// Corruption naming the tensor and both shards when a name appears twice in `tensors` (ascending).
Status CheckNoTensorTwice(std::span<const IndexedTensor> tensors,
                          std::span<const std::string> shards, const std::string& path);

// A shard's file name as a writer may use it: one component ending in ".safetensors", not hidden,
// no
// '/', '\\', NUL or control characters, at most 255 bytes (case B5). InvalidArgument otherwise.
Status CheckShardName(std::string_view name);

}  // namespace segue
