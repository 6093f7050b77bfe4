// SPDX-License-Identifier: Apache-2.0
//
// Which blocks, and where to.
#include "device/cuda/block_stage.h"

#include <algorithm>
#include <cstring>
#include <optional>

#include "base/bytes.h"
#include "device/cuda/block_walk.h"

namespace segue::cuda {
namespace {

constexpr std::uint64_t kBlockAlignment = 256;

std::uint64_t Aligned(std::uint64_t size) {
  return DivideUp(size, kBlockAlignment) * kBlockAlignment;
}

// Bytes of the length in front of a Snappy block, which the engine takes without; nothing where it
// is not the chunk's: the processor then says what is wrong with it.
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
// engine gets no block that would decode to another size than the chunk's.
std::optional<std::uint64_t> SkipFor(Decoder decoder, const DecoderReach& reach,
                                     const ChunkWork& work) {
  if (decoder == Decoder::kProcessor || !reach.Takes(work)) return std::nullopt;
  if (decoder == Decoder::kMultiprocessors) return 0;
  const bool has_length = work.encoding == DeviceEncoding::kSnappy;
  const std::optional<std::uint64_t> skip = has_length ? SizeOfLength(work) : 0;
  if (!skip) return skip;
  const ByteSpan block = work.dense.subspan(*skip);
  const bool fills =
      has_length ? SnappyBodyFills(block, work.size) : Lz4BlockFills(block, work.size);
  return fills ? skip : std::nullopt;
}

}  // namespace

void BlockStage::Plan(Decoder decoder, const DecoderReach& reach, std::span<const ChunkWork> batch,
                      std::span<const std::size_t> items, WorkerPool& pool) {
  decoder_ = decoder;
  host_node_ = reach.host_node;
  items_.clear();
  others_.clear();
  skips_.clear();
  std::vector<std::optional<std::uint64_t>> skips(items.size());
  (void)ParallelFor(items.size(), pool, [&](std::size_t i, unsigned) -> Status {
    skips[i] = SkipFor(decoder, reach, batch[items[i]]);
    return {};
  });
  for (std::size_t i = 0; i < items.size(); ++i) {
    (skips[i] ? items_ : others_).push_back(items[i]);
    if (skips[i]) skips_.push_back(*skips[i]);
  }
}

std::uint64_t BlockStage::Room() const {
  std::uint64_t size = 0;
  for (const StagedBlock& block : blocks_) size += Aligned(block.size);
  return size;
}

void BlockStage::Forget() {
  items_.clear();
  others_.clear();
  skips_.clear();
  blocks_.clear();
}

Status BlockStage::Load(const StagingMemory& memory, CUdevice device, Slots& slots, CUstream stream,
                        std::span<const ChunkWork> batch) {
  blocks_.clear();
  for (std::size_t i = 0; i < items_.size(); ++i) {
    blocks_.push_back({0, batch[items_[i]].dense.size() - skips_[i]});
  }
  if (blocks_.empty()) return {};
  if (decoder_ == Decoder::kEngine) return LoadEngine(memory, device, batch);
  if (memory_.size < Room()) {
    memory_ = {};  // Not both at a time.
    SEGUE_ASSIGN_OR_RETURN(memory_, memory.Device(Room()));
  }
  Uploader uploader(memory.driver(), slots, memory_.address(), stream);
  for (std::size_t i = 0; i < items_.size(); ++i) {
    const std::byte* const bytes = batch[items_[i]].dense.data() + skips_[i];
    SEGUE_ASSIGN_OR_RETURN(blocks_[i].address,
                           uploader.Append(bytes, blocks_[i].size, kBlockAlignment));
  }
  return uploader.Finish();
}

Status BlockStage::LoadEngine(const StagingMemory& memory, CUdevice device,
                              std::span<const ChunkWork> batch) {
  if (arena_.size() < Room()) {
    arena_ = {};
    SEGUE_ASSIGN_OR_RETURN(arena_, EngineArena::Make(memory, device, host_node_, Room()));
  }
  std::uint64_t place = 0;
  for (std::size_t i = 0; i < items_.size(); ++i) {
    std::memcpy(arena_.data() + place, batch[items_[i]].dense.data() + skips_[i], blocks_[i].size);
    blocks_[i].address = arena_.address() + place;
    place += Aligned(blocks_[i].size);
  }
  return {};
}

const StagedBlock& BlockStage::Of(std::size_t item) const {
  return blocks_[static_cast<std::size_t>(std::ranges::lower_bound(items_, item) - items_.begin())];
}

}  // namespace segue::cuda
