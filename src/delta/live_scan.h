// SPDX-License-Identifier: Apache-2.0
//
// Live scan: all bytes of live weights, read for their digest or filled from a model, outside of
// updates. Bytes of this process are read in place; those of an accelerator by itself, and then a
// call may fail.
#pragma once

#include <cstdint>

#include "base/bytes.h"
#include "base/digest.h"
#include "checkpoint/plan.h"
#include "delta/live_map.h"
#include "delta/model_view.h"
#include "delta/rank_sums.h"
#include "segue/status.h"

namespace segue {

struct LiveDigest {
  Digest all;     // Of every part here, copies and tied ones included.
  RankSums sums;  // first: digest, number: bytes.
};

// Digests chunk by chunk, for one thread.
class ChunkScanner {
 public:
  // Both must outlive the scanner.
  ChunkScanner(const Plan& plan, const LiveMap& live) : plan_(plan), live_(live) {}
  // The bytes that were read.
  Result<std::uint64_t> Add(std::uint64_t chunk) { return Add(chunk, chunk + 1); }
  // Of chunks [first, end): an accelerator takes them at once.
  Result<std::uint64_t> Add(std::uint64_t first, std::uint64_t end);
  const LiveDigest& digest() const { return digest_; }

 private:
  std::uint64_t ReadPart(const LiveMap::Part& part, const ChunkPlace& place);
  Result<std::uint64_t> ReadOnAccelerator(std::uint64_t first, std::uint64_t end);
  std::uint64_t Count(const LiveMap::Part& part, std::uint64_t size, const Digest& digest);

  const Plan& plan_;
  const LiveMap& live_;
  ByteVector buffer_;  // For parts that do not lie as they are.
  LiveDigest digest_;
};

Result<LiveDigest> DigestLive(const Plan& plan, const LiveMap& live, unsigned threads);

// The model's bytes into their places.
Status CopyInto(const Plan& plan, const ModelView& source, const LiveMap& live, unsigned threads);

}  // namespace segue
