// SPDX-License-Identifier: Apache-2.0
//
// SimDevice: the real host device, chunk by chunk, so that the world can come in between: the
// process may die with one or several chunks half written (several threads), the device may be slow
// or stop. Half written means what it means on the machine: a chunk is at its target up to some
// element and at its base from there; a raw chunk, which is copied, may be any mixture.
//
// Checkers here: nothing is applied but behind a closed, empty gate, and no chunk twice; a
// preflight writes nothing.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "device/device.h"
#include "sim/sim_weights.h"
#include "sim/world.h"

namespace segue::sim {

class SimDevice final : public Device {
 public:
  // `segment`: which of those that its process works on has this byte; asked at each call.
  SimDevice(World& world, SegmentAt segment)
      : world_(world), segment_(std::move(segment)), real_(MakeHostDevice(1)) {}

  void Reserve(std::uint64_t chunk_size_max) override { real_->Reserve(chunk_size_max); }
  void ReserveForViews(std::uint64_t chunk_size_max) override {
    real_->ReserveForViews(chunk_size_max);
  }
  std::optional<ChunkFault> Preflight(std::span<const ChunkWork> batch) override;
  std::optional<ChunkFault> Apply(std::span<const ChunkWork> batch) override;

 private:
  std::vector<std::size_t> Order(std::size_t count);
  void CheckGate(SimSegment& segment);
  void ApplyPart(const ChunkWork& work);
  std::optional<ChunkFault> ApplyOne(std::span<const ChunkWork> batch, std::size_t index,
                                     SimSegment& segment);

  World& world_;
  const SegmentAt segment_;
  const std::unique_ptr<Device> real_;
};

}  // namespace segue::sim
