// SPDX-License-Identifier: Apache-2.0
//
// Plan: the tensors of a lineage and how they are cut into chunks (docs/format.md, "Plan").
// Immutable and content-addressed; two checkpoints with the same plan differ in bytes alone.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/hash.h"
#include "base/limits.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/tensor.h"
#include "segue/status.h"

namespace segue {

struct PlanTensor {
  TensorSpec spec;
  std::uint64_t size = 0;
  std::uint64_t first_chunk = 0;  // Chunk number of the first chunk (of the next one, if none).
  std::uint64_t chunk_count = 0;
};

// Where a chunk lies.
struct ChunkPlace {
  std::uint32_t tensor = 0;
  std::uint64_t offset = 0;  // In the tensor; a multiple of the chunk size.
  std::uint64_t size = 0;
  unsigned width = 1;
};

class Plan {
 public:
  // `chunk_size`: a power of two within limits. `tensors` in ascending order of names.
  static Result<Plan> Make(std::vector<TensorSpec> tensors,
                           std::uint64_t chunk_size = limits::kChunkSizeDefault);
  static Result<Plan> FromCheckpoint(const Checkpoint& checkpoint,
                                     std::uint64_t chunk_size = limits::kChunkSizeDefault);
  static Result<Plan> Parse(ByteSpan object);

  const std::vector<PlanTensor>& tensors() const { return tensors_; }
  std::uint64_t chunk_size() const { return chunk_size_; }
  std::uint64_t chunk_count() const { return chunk_count_; }
  std::uint64_t model_size() const { return model_size_; }
  // `chunk` must be below chunk_count(). O(log tensors).
  ChunkPlace Chunk(std::uint64_t chunk) const;
  // Object bytes and their SHA-256.
  ByteSpan object() const { return object_; }
  const Sha256& digest() const { return digest_; }

 private:
  Status Add(TensorSpec spec);

  std::vector<PlanTensor> tensors_;
  std::uint64_t chunk_size_ = 0;
  std::uint64_t chunk_count_ = 0;
  std::uint64_t model_size_ = 0;
  ByteVector object_;
  Sha256 digest_;
};

// OK when both hold the same tensors with the same dtypes and shapes; otherwise InvalidArgument
// that names the first differences (tensor, both dtypes and shapes; case C4), and how many more
// there are. `base_name`, `target_name`: what to call the two in the message.
Status ComparePlans(const Plan& base, const Plan& target, const std::string& base_name,
                    const std::string& target_name);

}  // namespace segue
