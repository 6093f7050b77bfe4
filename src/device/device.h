// SPDX-License-Identifier: Apache-2.0
//
// Device: where live weights are. Two operations over a batch of chunks, preflight and apply, the
// same arithmetic with and without the store. The host device is the reference; a CUDA device
// follows the same contract. A device knows bytes, chunks and digests, no tensor names and no
// versions.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "base/bytes.h"
#include "base/digest.h"
#include "device/host/kernels.h"
#include "segue/status.h"

namespace segue {

// How a chunk's data is coded on the device; the numbers of docs/format.md, section 6.
enum class DeviceEncoding : std::uint8_t { kSparse = 1, kPlanes, kSnappy, kLz4, kZstd, kRaw };

class ViewMap;

// What the part of a chunk that a view holds adds to the chunk's sums.
struct PartSums {
  Digest before;              // Of the part's base bytes; zero where `touched` proves them.
  Digest difference;          // Digest at the target minus digest at the base.
  std::uint64_t touched = 0;  // As in ChunkWork, of the part's changed elements.
};

// One changed chunk: staged data and live bytes.
struct ChunkWork {
  DeviceEncoding encoding = DeviceEncoding::kSparse;
  unsigned width = 1;
  host::ChunkKey key;
  host::SparseChunk sparse;  // For kSparse; for kPlanes its planes and constants.
  ByteSpan dense;            // For the others.
  std::byte* live = nullptr;
  std::uint64_t size = 0;
  std::uint64_t touched = 0;  // 0: not recorded.
  Digest before;
  Digest after;
  // Where the chunk does not lie at `live` as it is: which of its elements lie where in the buffer
  // at `live`. A part's sums say nothing alone. Preflight writes them to `part`, for the caller to
  // add up with those of the other parts; Apply proves that the same difference comes out again.
  const ViewMap* view = nullptr;
  std::uint64_t first_element = 0;  // Of the chunk, in its tensor.
  PartSums* part = nullptr;
};

enum class ChunkVerdict {
  kBaseDiffers,     // The live bytes are not the base.
  kPayloadDiffers,  // The staged data does not lead to the target.
  kDeviceFailed,    // The device could not say, for the reason in `detail`.
};

struct ChunkFault {
  std::size_t index = 0;  // Into the batch.
  ChunkVerdict verdict = ChunkVerdict::kBaseDiffers;
  Status detail;  // What a decoder had to say, or OK.
};

class Device {
 public:
  virtual ~Device() = default;

  // Allocates what Preflight and Apply need for chunks of up to `chunk_size_max` bytes, so that
  // they allocate nothing themselves.
  virtual void Reserve(std::uint64_t chunk_size_max) = 0;
  // The same for chunks with views, besides.
  virtual void ReserveForViews(std::uint64_t chunk_size_max) = 0;
  // Brings what Preflight and Apply read of the batch to where the device reads it. They then take
  // this batch, Apply also its beginning. A device that reads the host's memory has nothing to do.
  virtual Status Load(std::span<const ChunkWork>) { return {}; }
  // Gives back what Load() took.
  virtual void Unload() {}
  // Proves that every chunk's live bytes are its base and that applying yields its target; writes
  // nothing. The first fault found, or nothing.
  virtual std::optional<ChunkFault> Preflight(std::span<const ChunkWork> batch) = 0;
  // Applies a batch that passed the preflight and proves the result. A fault means that live bytes
  // are no longer known.
  virtual std::optional<ChunkFault> Apply(std::span<const ChunkWork> batch) = 0;
};

// `threads`: 0 for every core.
std::unique_ptr<Device> MakeHostDevice(unsigned threads);

// The chunk's mask for encodings 2 to 5, into `mask` (work.size bytes). Used by the device itself,
// by composition and by the journal.
class MaskDecoder {
 public:
  MaskDecoder();
  ~MaskDecoder();
  Status Decode(const ChunkWork& work, std::byte* mask);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace segue
