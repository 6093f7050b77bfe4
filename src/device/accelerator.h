// SPDX-License-Identifier: Apache-2.0
//
// Accelerator: a device whose memory this process cannot reach by address, so that it also reads
// and writes live bytes outside of updates: when weights are bound, scrubbed and rebuilt. Threads
// may share one; each call has the device to itself.
#pragma once

#include <memory>
#include <span>
#include <string>

#include "device/device.h"

namespace segue {

// Bytes of the accelerator's memory and of the host's, together, that are taken to stage updates.
struct StagingUse {
  std::uint64_t bytes = 0;  // Now.
  std::uint64_t peak = 0;
  std::uint64_t max = 0;  // The budget; 0: none.
};

class Accelerator : public Device {
 public:
  virtual StagingUse staging_use() const = 0;
  // Who undoes codecs for the update that was loaded last, by name.
  virtual std::string decoder() const = 0;
  // Gives all of it back, unless a call is under way; the next one takes what it needs again.
  virtual void ReleaseStaging() = 0;
  // With the gate closed: all of an apply that can fail before it writes anything. Waits for what
  // this process has launched on the device, and takes what the next Apply() needs. On failure
  // nothing has changed; where it is not called Apply() does the same.
  virtual Status BeginApply() = 0;
  // InvalidArgument unless `size` bytes from `address` on are memory of this device.
  virtual Status CheckMemory(const std::byte* address, std::uint64_t size) = 0;
  // The digest of each chunk's live bytes (of the part that its view holds) into part->before.
  virtual Status Scan(std::span<const ChunkWork> batch) = 0;
  // The bytes of `dense` (encoding raw; work.size of them) become the live bytes, whatever those
  // were; of a part, its own.
  virtual Status Write(std::span<const ChunkWork> batch) = 0;
};

struct AcceleratorOptions {
  // As in segue/receiver.h, DeviceOptions.
  std::string decoder = {};
  std::uint64_t memory_max = 0;
  bool keep_slots = true;
  // Whether what a batch took stays for the next one: the driver makes the whole device wait to
  // take memory back.
  bool keep_batch = true;
};

// By name: "cuda:0", "cuda:1", ... as the CUDA driver counts; "cuda" is the first. `threads`, which
// undo codecs: 0 for every core. Unsupported: there is none of this name here, or this library was
// built without.
Result<std::shared_ptr<Accelerator>> OpenAccelerator(const std::string& name, unsigned threads,
                                                     const AcceleratorOptions& options = {});

}  // namespace segue
