// SPDX-License-Identifier: Apache-2.0
//
// SimDevice.
#include "sim/sim_device.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"

namespace segue::sim {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kSlowChunkMax(20);
// Threads of the imitated device: so many chunks may be half written at once.
constexpr std::uint64_t kLanesMax = 3;

}  // namespace

std::optional<ChunkFault> SimDevice::Preflight(std::span<const ChunkWork> batch) {
  world_.Point("preflight");
  for (std::size_t i = 0; i < batch.size(); ++i) {
    if (world_.Fault(world_.rates().device_slow)) world_.Sleep(world_.UpTo(kSlowChunkMax));
    const ChunkWork& work = batch[i];
    const ByteVector before(work.live, work.live + work.size);
    auto fault = real_->Preflight(batch.subspan(i, 1));
    if (world_.Sabotaged(Sabotage::kDirtyPreflight)) work.live[0] ^= std::byte{1};
    if (!std::equal(before.begin(), before.end(), work.live)) {
      world_.Violate("preflight", "a preflight has written");
    }
    if (!fault && world_.Sabotaged(Sabotage::kDirtyRefusal) && world_.Chance(0.02)) {
      work.live[0] ^= std::byte{1};
      fault = ChunkFault{0, ChunkVerdict::kBaseDiffers, {}};
    }
    if (!fault) continue;
    world_.Note("preflight refuses chunk " + std::to_string(i));
    fault->index = i;
    return fault;
  }
  world_.Note("preflight of " + std::to_string(batch.size()) + " chunks");
  return std::nullopt;
}

void SimDevice::CheckGate(SimSegment& segment) {
  if (!segment.closed()) world_.Violate("gate", "bytes are written with the gate open");
  segment.Bury();
  if (world_.Sabotaged(Sabotage::kOpenGate)) return;
  if (!segment.empty()) world_.Violate("gate", "bytes are written with an engine inside");
}

// How several threads would take the chunks: in order, but not one after the other.
std::vector<std::size_t> SimDevice::Order(std::size_t count) {
  std::vector<std::size_t> order(count);
  for (std::size_t i = 0; i < count; ++i) order[i] = i;
  const std::size_t lanes = 1 + world_.Below(kLanesMax);
  for (std::size_t i = 0; lanes > 1 && i + 1 < count; ++i) {
    std::swap(order[i], order[std::min(count - 1, i + world_.Below(lanes))]);
  }
  return order;
}

std::optional<ChunkFault> SimDevice::Apply(std::span<const ChunkWork> batch) {
  SimSegment& segment = *segment_(batch.front().live);
  world_.Point("apply");
  const std::vector<std::size_t> order = Order(batch.size());
  const bool device_dies = world_.Fault(world_.rates().device_dies);
  const std::size_t last = device_dies ? world_.Below(order.size()) : order.size();
  for (std::size_t k = 0; k < order.size(); ++k) {
    if (world_.Fault(world_.rates().device_slow)) world_.Sleep(world_.UpTo(kSlowChunkMax));
    world_.Await([] { return true; });
    CheckGate(segment);
    const bool dies = world_.MustDie();
    if (dies || k == last) {
      const std::size_t lanes =
          std::min<std::size_t>(1 + world_.Below(kLanesMax), order.size() - k);
      for (std::size_t i = 0; i < lanes; ++i) ApplyPart(batch[order[k + i]]);
      const std::string where = "inside the apply, " + std::to_string(k) + " chunks whole, " +
                                std::to_string(lanes) + " between";
      if (dies) world_.Die(where.c_str());
      world_.Note("device stops: " + where);
      return ChunkFault{order[k], ChunkVerdict::kPayloadDiffers, Internal("the device stopped")};
    }
    if (auto fault = ApplyOne(batch, order[k], segment)) return fault;
  }
  world_.Note("applied " + std::to_string(batch.size()) + " chunks");
  return std::nullopt;
}

std::optional<ChunkFault> SimDevice::ApplyOne(std::span<const ChunkWork> batch, std::size_t index,
                                              SimSegment& segment) {
  const ChunkWork& work = batch[index];
  unsigned& count = segment.applied[work.live];
  auto fault = real_->Apply(batch.subspan(index, 1));
  ++count;
  if (world_.Sabotaged(Sabotage::kApplyTwice)) {
    (void)real_->Apply(batch.subspan(index, 1));
    ++count;
  }
  if (world_.Sabotaged(Sabotage::kSkipProof) && world_.Chance(0.1)) {
    work.live[world_.Below(work.size)] ^= std::byte{4};
  }
  if (count > 1) world_.Violate("twice", "chunk " + std::to_string(index) + " was applied twice");
  if (!fault) return std::nullopt;
  fault->index = index;
  return fault;
}

void SimDevice::ApplyPart(const ChunkWork& work) {
  ByteVector target(work.live, work.live + work.size);
  ChunkWork copy = work;
  copy.live = target.data();
  SEGUE_CHECK(!real_->Apply(std::span(&copy, 1)));
  if (work.encoding == DeviceEncoding::kRaw) {
    for (std::size_t i = 0; i < work.size; ++i) {
      if (world_.Chance(0.5)) work.live[i] = target[i];
    }
    return;
  }
  const std::size_t cut = world_.Below(work.size / work.width + 1) * work.width;
  std::memcpy(work.live, target.data(), cut);
}

}  // namespace segue::sim
