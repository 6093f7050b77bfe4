// SPDX-License-Identifier: Apache-2.0
//
// Encoder: one pass over base and target that finds what changed, proves both sides by digest and
// writes a payload. Chunk-parallel; the bytes that come out do not depend on the number of threads.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "base/digest.h"
#include "checkpoint/plan.h"
#include "delta/model_view.h"
#include "delta/payload_writer.h"
#include "delta/profile.h"
#include "segue/status.h"

namespace segue {

// A run of chunk numbers.
struct ChunkRange {
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
};

// What owner `owner` of `owner_count` covers: ranges of whole tensors (docs/format.md, "Store").
std::vector<ChunkRange> OwnerRanges(const Plan& plan, std::uint32_t owner,
                                    std::uint32_t owner_count);

// The ranges cut into pieces of work for threads: enough rows in a group for Zstd's tables to pay
// off, little enough that two a thread fit in the memory promised.
std::vector<ChunkRange> CutIntoUnits(const Plan& plan, const std::vector<ChunkRange>& ranges);

// Whether the profile sparse-zstd sends so many changes of a chunk as `sparse`. At least one.
bool IsSparse(std::uint32_t change_count, const ChunkPlace& place);

struct EncodeOptions {
  Profile profile = Profile::kSparseZstd;
  std::uint32_t owner = 0;
  std::uint32_t owner_count = 1;
  unsigned threads = 0;  // 0: every core.
  // Called from one thread at a time with the model bytes done so far; may be empty.
  std::function<void(std::uint64_t)> progress = {};
};

struct EncodeReport {
  PayloadSummary payload;
  Digest base_digest;  // Of the tensors that the owner covers.
  Digest target_digest;
};

// Writes the payload of base -> target to `sink`.
Result<EncodeReport> EncodeDelta(const Plan& plan, const ModelView& base, const ModelView& target,
                                 const EncodeOptions& options, PayloadWriter::Sink sink);

// Digest of everything the view holds.
Digest DigestModel(const Plan& plan, const ModelView& view, unsigned threads);

// Adds the difference of one chunk to a group, in the encoding that the profile and the cost
// choose. Holds buffers of a few chunks. Not thread-safe.
class ChunkEncoder {
 public:
  ChunkEncoder(Profile profile, std::uint64_t chunk_size_max);

  // Digests of base and target. Adds a row to `group` if they differ.
  struct Sums {
    Digest before;
    Digest after;
  };
  Sums Encode(std::uint64_t chunk, const ChunkPlace& place, const std::byte* base,
              const std::byte* target, GroupBuilder& group);

  // The same from a mask alone, with digests that are known (composition). Nothing is added for a
  // mask of zeros. `touched` stays unrecorded.
  void EncodeMask(std::uint64_t chunk, const ChunkPlace& place, const std::byte* mask,
                  Digest before, Digest after, GroupBuilder& group);

 private:
  Sums EncodeSparseProfile(std::uint64_t chunk, const ChunkPlace& place, const std::byte* base,
                           const std::byte* target, GroupBuilder& group);
  void AddDenseMask(std::uint64_t chunk, const ChunkPlace& place, const RowSums& sums,
                    const std::byte* target, GroupBuilder& group);
  bool AddCompressedMask(std::uint64_t chunk, const ChunkPlace& place, const RowSums& sums,
                         GroupBuilder& group);

  Profile profile_;
  std::vector<std::uint32_t> positions_;
  ByteVector values_;
  ByteVector mask_;
  ByteVector compressed_;
  ByteVector zeros_;
  ZstdCompressor zstd_{1};
};

}  // namespace segue
