// SPDX-License-Identifier: Apache-2.0
//
// Which blocks, and where to.
#include "device/cuda/block_stage.h"

#include <algorithm>
#include <cstring>
#include <optional>

#include "base/bytes.h"
#include "device/cuda/block_walk.h"
#include "device/cuda/group_slots.h"

namespace segue::cuda {
namespace {

std::uint64_t Aligned(std::uint64_t size) {
  return DivideUp(size, kDecodeAlignment) * kDecodeAlignment;
}

// Bytes of the length in front of a Snappy block; nothing where it is not the chunk's: the
// processor then says what is wrong with it.
std::optional<std::uint64_t> SizeOfLength(const ChunkWork& work) {
  std::uint64_t length = 0;
  for (std::size_t i = 0; i < work.dense.size() && i < 5; ++i) {
    const auto byte = std::to_integer<std::uint64_t>(work.dense[i]);
    length |= (byte & 0x7f) << 7 * i;
    if (byte >= 0x80) continue;
    return length == work.size ? std::optional(i + 1) : std::nullopt;
  }
  return std::nullopt;
}

// Bytes in front of the block that the decoder does not want; nothing: the block is not for it. The
// engine takes Snappy without its length. Decoders that are not ours get no block that would decode
// to another size than the chunk's, or that breaks a rule: what they do then is not said.
std::optional<std::uint64_t> SkipFor(const DecoderUse& use, const ChunkWork& work) {
  if (use.how == nullptr || !use.reach.Takes(work)) return std::nullopt;
  if (use.decoder == Decoder::kMultiprocessors) return 0;
  const bool has_length = work.encoding == DeviceEncoding::kSnappy;
  const std::optional<std::uint64_t> length = has_length ? SizeOfLength(work) : 0;
  if (!length) return length;
  const ByteSpan block = work.dense.subspan(*length);
  const bool fills =
      has_length ? SnappyBodyFills(block, work.size) : Lz4BlockFills(block, work.size);
  if (!fills) return std::nullopt;
  return use.decoder == Decoder::kEngine ? *length : 0;
}

}  // namespace

void BlockStage::Plan(const DecoderUse& use, std::span<const ChunkWork> batch,
                      std::span<const std::size_t> items, WorkerPool& pool) {
  use_ = use;
  items_.clear();
  others_.clear();
  skips_.clear();
  std::vector<std::optional<std::uint64_t>> skips(items.size());
  (void)ParallelFor(items.size(), pool, [&](std::size_t i, unsigned) -> Status {
    skips[i] = SkipFor(use, batch[items[i]]);
    return {};
  });
  for (std::size_t i = 0; i < items.size(); ++i) {
    (skips[i] ? items_ : others_).push_back(items[i]);
    if (skips[i]) skips_.push_back(*skips[i]);
  }
}

std::uint64_t BlockStage::Room() const {
  std::uint64_t size = 0;
  for (const Block& block : blocks_) size += Aligned(block.size);
  return size;
}

void BlockStage::Forget() {
  items_.clear();
  others_.clear();
  skips_.clear();
  blocks_.clear();
}

Status BlockStage::Load(const StagingMemory& memory, CUdevice device, Slots& slots, CUstream stream,
                        std::span<const ChunkWork> batch, std::uint64_t group_max) {
  blocks_.clear();
  for (std::size_t i = 0; i < items_.size(); ++i) {
    blocks_.push_back({0, batch[items_[i]].dense.size() - skips_[i]});
  }
  if (blocks_.empty()) return {};
  SEGUE_RETURN_IF_ERROR(LoadScratch(memory, batch, group_max));
  if (use_.decoder == Decoder::kEngine) return LoadEngine(memory, device, batch);
  if (memory_.size < Room()) {
    memory_ = {};  // Not both at a time.
    SEGUE_ASSIGN_OR_RETURN(memory_, memory.Device(Room()));
  }
  Uploader uploader(memory.driver(), slots, memory_.address(), stream);
  for (std::size_t i = 0; i < items_.size(); ++i) {
    const std::byte* const bytes = batch[items_[i]].dense.data() + skips_[i];
    SEGUE_ASSIGN_OR_RETURN(blocks_[i].address,
                           uploader.Append(bytes, blocks_[i].size, kDecodeAlignment));
  }
  return uploader.Finish();
}

Status BlockStage::LoadEngine(const StagingMemory& memory, CUdevice device,
                              std::span<const ChunkWork> batch) {
  if (arena_.size() < Room()) {
    arena_ = {};
    SEGUE_ASSIGN_OR_RETURN(arena_, EngineArena::Make(memory, device, use_.reach.host_node, Room()));
  }
  std::uint64_t place = 0;
  for (std::size_t i = 0; i < items_.size(); ++i) {
    std::memcpy(arena_.data() + place, batch[items_[i]].dense.data() + skips_[i], blocks_[i].size);
    blocks_[i].address = arena_.address() + place;
    place += Aligned(blocks_[i].size);
  }
  return {};
}

// Enough for any group.
Status BlockStage::LoadScratch(const StagingMemory& memory, std::span<const ChunkWork> batch,
                               std::uint64_t group_max) {
  JobsBound bound;
  bound.count = std::min<std::uint64_t>(items_.size(), GroupSlots::kGroupCountMax);
  for (const std::size_t item : items_) {
    bound.size_max = std::max(bound.size_max, batch[item].size);
    bound.size += batch[item].size;
  }
  bound.size = std::min(bound.size, std::max(group_max, bound.size_max));
  SEGUE_ASSIGN_OR_RETURN(const std::uint64_t size, how().ScratchSize(bound));
  if (scratch_.size >= size) return {};
  scratch_ = {};
  SEGUE_ASSIGN_OR_RETURN(scratch_, memory.Device(size));
  return {};
}

DecodeJob BlockStage::Job(std::size_t item, const ChunkWork& work, CUdeviceptr target) const {
  const auto place = std::ranges::lower_bound(items_, item) - items_.begin();
  const Block& block = blocks_[static_cast<std::size_t>(place)];
  return {block.address, block.size, target, work.size, work.encoding == DeviceEncoding::kSnappy};
}

}  // namespace segue::cuda
