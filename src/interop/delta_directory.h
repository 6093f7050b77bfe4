// SPDX-License-Identifier: Apache-2.0
//
// One directory of a disk delta, opened and checked against the tensors that it is for
// (docs/format.md, section 10). Frames are read one by one, never mapped: somebody else writes the
// files, and one that shrinks must be an error of this read alone.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "checkpoint/plan.h"
#include "interop/delta_index.h"
#include "interop/tensor_checksum.h"
#include "segue/status.h"

namespace segue {

// The difference of one tensor.
struct TensorDiff {
  std::uint32_t tensor = 0;   // Number in the plan.
  std::uint32_t version = 0;  // For who keeps those of several versions.
  std::uint64_t offset = 0;   // Of the frame in its shard.
  std::uint64_t size = 0;     // Of the frame.
  std::uint32_t shard = 0;    // Into DeltaDirectory::shards.
  TensorChecksum checksum;    // Of the new bytes.
};

struct DeltaDirectory {
  std::string path;
  std::uint64_t version = 0;
  std::uint64_t base_version = 0;
  DeltaEncoding encoding = DeltaEncoding::kXor;
  ChecksumKind checksum = ChecksumKind::kXxh3;
  std::vector<std::string> shards;  // Names.

  // The frame's bytes as they are now.
  Result<ByteVector> ReadFrame(const TensorDiff& diff) const;
};

// Whether `path` is a delta's directory; a full checkpoint otherwise. NotFound where there is no
// such directory.
Result<bool> IsDeltaDirectory(const std::string& path);

// Opens it and appends its diffs to `diffs`, in the plan's order, with `number` as their version.
// Corruption naming the file and the fault: a tensor that the plan has not, shards that are not the
// index's, a diff without checksum, a frame too large for its tensor. Links are not followed.
Result<DeltaDirectory> OpenDeltaDirectory(const std::string& path, const Plan& plan,
                                          std::uint32_t number, std::vector<TensorDiff>& diffs);

}  // namespace segue
