// SPDX-License-Identifier: Apache-2.0
//
// Fuzz target: an index file. Asserts that what the parser takes is sorted, without doubles, names
// no shard that could lead out of its directory, and agrees with itself.
#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "base/check.h"
#include "checkpoint/index.h"

namespace segue {
namespace {

void CheckIndex(const IndexFile& index) {
  SEGUE_CHECK(!index.entries.empty());
  SEGUE_CHECK(index.shards.size() <= index.entries.size());
  for (std::size_t i = 0; i < index.shards.size(); ++i) {
    const std::string& name = index.shards[i];
    SEGUE_CHECK(CheckShardName(name).ok());
    SEGUE_CHECK(name.find('/') == std::string::npos && name.find('\0') == std::string::npos);
    SEGUE_CHECK(i == 0 || index.shards[i - 1] < name);
  }
  std::vector<IndexedTensor> tensors;
  for (std::size_t i = 0; i < index.entries.size(); ++i) {
    SEGUE_CHECK(index.entries[i].shard < index.shards.size());
    SEGUE_CHECK(i == 0 || index.entries[i - 1].tensor < index.entries[i].tensor);
    tensors.push_back({index.entries[i].tensor, index.entries[i].shard});
  }
  SEGUE_CHECK(CheckIndexMatches(index, tensors, "fuzz").ok());
  tensors.pop_back();
  SEGUE_CHECK(!CheckIndexMatches(index, tensors, "fuzz").ok());
}

}  // namespace
}  // namespace segue

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto index = segue::ParseIndex(std::as_bytes(std::span(data, size)), "fuzz");
  if (index.ok()) segue::CheckIndex(index.value());
  return 0;
}
