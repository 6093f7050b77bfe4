// SPDX-License-Identifier: Apache-2.0
//
// Applier: brings one staged delta into live weights. Preflight proves that the live bytes are the
// base and writes nothing; Apply is the point of no return and proves the result. Everything that
// Apply needs is made in the constructor, so that the pause holds nothing else.
#pragma once

#include <memory>
#include <vector>

#include "delta/model_view.h"
#include "delta/staged_delta.h"
#include "device/device.h"
#include "segue/status.h"

namespace segue {

class Applier {
 public:
  // All must outlive the applier.
  Applier(const Plan& plan, const StagedDelta& staged, const MutableModelView& live,
          Device& device);

  // VersionMismatch: the live bytes are not the base. Corruption: the payload does not lead to the
  // target that it states. Both name tensor and chunk.
  Status Preflight() { return PreflightOn(device_); }
  // The same on another device of the same memory, one of fewer threads. Reserve()d by the caller.
  Status PreflightOn(Device& device);
  // Tainted on any fault: live bytes may be mixed and must be resolved or rebuilt.
  Status Apply();

  std::span<const ChunkWork> work() const { return work_; }

 private:
  Status Describe(const ChunkFault& fault) const;

  const Plan& plan_;
  const StagedDelta& staged_;
  Device& device_;
  std::vector<ChunkWork> work_;
};

// "tensor 'w' chunk 3": for messages about a chunk number.
std::string DescribeChunk(const Plan& plan, std::uint64_t chunk);

}  // namespace segue
