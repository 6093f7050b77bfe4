// SPDX-License-Identifier: Apache-2.0
//
// Delta chain: the directories of consecutive versions of a source, and what they make of one
// tensor. Each version's checksum of the tensor is checked on the way, so bytes that come out are
// those that the last writer had (docs/protocol.md, section 14).
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "checkpoint/plan.h"
#include "interop/delta_directory.h"
#include "interop/delta_frame.h"
#include "interop/tensor_checksum.h"
#include "segue/status.h"

namespace segue {

// Asked before a directory of a source is opened, for the path to open it by; may be empty.
using PathPin = std::function<Result<std::string>(const std::string& path)>;

// Reads with it, one thread at a time.
struct FoldScratch {
  DeltaFrameReader frames;
  TensorHasher hasher;
};

class DeltaChain {
 public:
  // Versions first to last, each a delta on the one before; none where first > last. `plan`
  // outlives it. NotFound naming a directory that is missing; VersionMismatch where a base version
  // is another.
  static Result<DeltaChain> Open(const std::string& source, std::uint64_t first, std::uint64_t last,
                                 const Plan& plan, const PathPin& pin = {});

  // Numbers in the plan, ascending.
  const std::vector<std::uint32_t>& changed() const { return changed_; }
  bool Changes(std::size_t tensor) const;
  // Turns the tensor's bytes at the version before the first into those at the last. Corruption
  // naming version and tensor; `bytes` are then of no use.
  Status Fold(std::size_t tensor, MutableByteSpan bytes, FoldScratch& scratch) const;

 private:
  explicit DeltaChain(const Plan& plan) : plan_(&plan) {}
  std::span<const TensorDiff> DiffsOf(std::size_t tensor) const;
  Status Apply(const TensorDiff& diff, MutableByteSpan bytes, FoldScratch& scratch) const;

  const Plan* plan_;
  std::vector<DeltaDirectory> versions_;
  std::vector<TensorDiff> diffs_;  // By tensor, then by version.
  std::vector<std::uint32_t> changed_;
};

// A tensor's number in the plan, and its new bytes.
struct FoldedTensor {
  std::uint32_t tensor = 0;
  ByteVector bytes;
};
// Folds the chain's tensors a few at a time, on several threads. `base` gives a tensor's bytes
// before; `consume` gets one batch after the other, which is good until it returns. Memory: a
// tensor and a diff for each thread.
Status FoldAll(const DeltaChain& chain, unsigned threads,
               const std::function<ByteSpan(std::size_t tensor)>& base,
               const std::function<Status(std::span<const FoldedTensor>)>& consume);

}  // namespace segue
