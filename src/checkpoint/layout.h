// SPDX-License-Identifier: Apache-2.0
//
// Layout: how a checkpoint's tensors lie in files (docs/format.md, "Layout"): shard names, header
// texts and the index, so that a rebuilt checkpoint equals the trainer's byte for byte (case C6).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/hash.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/plan.h"
#include "segue/status.h"

namespace segue {

struct LayoutShard {
  std::string name;
  std::string header_json;  // With its padding.
};

class Layout {
 public:
  static Layout FromCheckpoint(const Checkpoint& checkpoint);
  // The layout of a publisher that has no files (docs/format.md, "Layout"): it follows from the
  // plan and the size that a shard's data may have. ResourceExhausted beyond a named limit.
  static Result<Layout> Generate(const Plan& plan, std::uint64_t shard_size);
  // Checks everything that docs/format.md demands, shard names included; headers are parsed and
  // must be valid, and no tensor may be in two shards.
  static Result<Layout> Parse(ByteSpan object);

  const std::vector<LayoutShard>& shards() const { return shards_; }
  const std::string& index_json() const { return index_json_; }
  // SHA-256 of the inner bytes.
  const Sha256& digest() const { return digest_; }
  // The object as stored (Zstd-compressed).
  Result<ByteVector> MakeObject() const;

 private:
  void Seal();  // Forms the digest.

  std::vector<LayoutShard> shards_;
  std::string index_json_;
  Sha256 digest_;
};

}  // namespace segue
