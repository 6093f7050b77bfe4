// SPDX-License-Identifier: Apache-2.0
//
// Delta builder: the difference of two versions tensor by tensor, in any order, kept in memory as a
// staged delta. For a publisher whose buffers are there for one tensor at a time: once Add()
// returns, the target's bytes are no longer needed. Memory: the delta's inner bytes, and buffers of
// a few chunks for each thread.
#pragma once

#include <cstddef>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "base/digest.h"
#include "checkpoint/plan.h"
#include "delta/encoder.h"
#include "delta/payload_groups.h"
#include "delta/payload_writer.h"
#include "delta/profile.h"
#include "delta/staged_delta.h"
#include "device/differ.h"
#include "segue/status.h"

namespace segue {

// One tensor before and after; both have the size that the plan says.
struct TensorChange {
  std::size_t tensor = 0;  // Number in the plan.
  const std::byte* base = nullptr;
  const std::byte* target = nullptr;
};

class DeltaBuilder {
 public:
  // `plan` outlives it. `threads`: 0 for every core.
  DeltaBuilder(const Plan& plan, Profile profile, unsigned threads);

  // Digests of what was compared: ChunkEncoder::Sums over all chunks of these tensors. No tensor
  // may be added twice before Take().
  Result<ChunkEncoder::Sums> Add(std::span<const TensorChange> changes);
  // The same where targets lie in the memory of `differ`'s device, and bases too, or in its memory
  // of the host. The processor encodes what the device does not, while the device goes on.
  Result<ChunkEncoder::Sums> AddOnDevice(std::span<const TensorChange> changes, Differ& differ,
                                         bool base_on_host);
  // All that was added, and the builder is empty again. `early`, which may be null, gets what is
  // compressed already for WriteStagedDelta(): the device's changes are while it goes on, as long
  // as tensors come in the order of the plan.
  Result<StagedDelta> Take(EncodedGroups* early = nullptr);

 private:
  struct Scratch {
    ChunkEncoder chunk;
    GroupBuilder group;
  };
  class DeviceChanges;

  ChunkEncoder::Sums EncodeUnit(const TensorChange& change, ChunkRange unit, Scratch& scratch);
  Scratch& ScratchOf(unsigned thread);
  void Keep(GroupBuilder& group);

  const Plan& plan_;
  const Profile profile_;
  const unsigned threads_;
  std::vector<std::unique_ptr<Scratch>> scratch_;  // One a thread, made when it is used first.
  std::mutex mutex_;
  StagedDelta staged_;
  EarlyGroups early_;
};

}  // namespace segue
