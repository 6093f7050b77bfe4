// SPDX-License-Identifier: Apache-2.0
//
// Differ: compares two versions whose bytes lie in the memory of a device, and brings what changed
// to the host: streams of `sparse` rows, made on the device, or a chunk's bytes for encodings that
// the host makes. What becomes of a chunk is for the consumer to say. The trainer's side of an
// accelerator; like that one it knows bytes, chunks and digests, no tensor names and no versions.
// One thread at a time calls it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "device/host/kernels.h"
#include "segue/status.h"

namespace segue {

// One chunk in both versions; both have `size` bytes. `target` is an address of the device, `base`
// too, or one of memory that the differ allocated.
struct DiffWork {
  const std::byte* base = nullptr;
  const std::byte* target = nullptr;
  std::uint64_t size = 0;
  unsigned width = 1;
  host::ChunkKey key;
  bool base_on_host = false;
};

// What is to come back of a chunk.
enum class DiffForm {
  kNothing,
  kSparse,  // Streams of a `sparse` row.
  kBytes,   // Its bytes at base and target.
};

// One chunk as it came back, all pointers into memory of the host.
struct DiffResult {
  std::size_t index = 0;  // Into the work.
  DiffForm form = DiffForm::kNothing;
  host::DiffSums sums;
  host::SparseChunk sparse;         // kSparse. Without slack behind `low`.
  const std::byte* base = nullptr;  // kBytes.
  const std::byte* target = nullptr;
};

class DiffConsumer {
 public:
  virtual ~DiffConsumer() = default;
  // Called once for each chunk, in the order of the work, with sums over all of it. Nothing comes
  // back of a chunk that has not changed, whatever is said.
  virtual DiffForm Choose(std::size_t index, const host::DiffSums& sums) = 0;
  // Several chunks that came back, in order. Their bytes are good during the call; the device goes
  // on meanwhile. What it fails with ends the diff.
  virtual Status Take(std::span<const DiffResult> results) = 0;
};

struct DiffCopy {
  const std::byte* from = nullptr;
  std::byte* to = nullptr;
  std::uint64_t size = 0;
};

enum class DiffMemory { kDevice, kHost };

class Differ {
 public:
  virtual ~Differ() = default;

  // InvalidArgument unless `size` bytes from `address` on are memory of this device.
  virtual Status CheckMemory(const std::byte* address, std::uint64_t size) = 0;
  // Memory of the device, or of the host where the device reads it too. ResourceExhausted. Not
  // counted in the differ's own.
  virtual Result<std::shared_ptr<std::byte>> Allocate(DiffMemory kind, std::uint64_t size) = 0;
  // Between any memory of host and device; done when it returns. Waits first for all that this
  // process has launched on the device.
  virtual Status Copy(std::span<const DiffCopy> copies) = 0;
  // Waits first for all that this process has launched on the device: it may be what writes the
  // target. Internal where a target changes meanwhile, as far as that is seen, or the device fails.
  virtual Status Diff(std::span<const DiffWork> work, DiffConsumer& consumer) = 0;
};

struct DifferOptions {
  std::uint64_t chunk_size_max = 0;
  // Bytes of the device that it may take for itself; the host's pinned memory is less.
  std::uint64_t memory_max = 256 << 20;
};

// Names as of OpenAccelerator(). Unsupported: there is none of this name here, or this library was
// built without. InvalidArgument: `memory_max` is too little, and the least is said.
Result<std::shared_ptr<Differ>> OpenDiffer(const std::string& name, const DifferOptions& options);

}  // namespace segue
