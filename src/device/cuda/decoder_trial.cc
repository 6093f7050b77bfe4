// SPDX-License-Identifier: Apache-2.0
//
// The blocks, their way there and back, and the comparison.
#include "device/cuda/decoder_trial.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <numeric>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "device/cuda/block_stage.h"

namespace segue::cuda {
namespace {

// Both decode to Content(): literals, long runs of one byte and of three, a copy from far back.
constexpr std::uint64_t kContentSize = 1000;
constexpr std::uint8_t kSnappyBlock[] = {
    0xe8, 0x07, 0xa8, 0x01, 0x04, 0x07, 0x0a, 0x0d, 0x10, 0x13, 0x16, 0x19, 0x1c, 0x1f, 0x22,
    0x25, 0x28, 0x2b, 0x2e, 0x31, 0x34, 0x37, 0x3a, 0x3d, 0x40, 0x43, 0x46, 0x49, 0x4c, 0x4f,
    0x52, 0x55, 0x58, 0x5b, 0x5e, 0x61, 0x64, 0x67, 0x6a, 0x6d, 0x70, 0x73, 0x76, 0x00, 0x00,
    0x00, 0xfe, 0x02, 0x00, 0xfe, 0x02, 0x00, 0xfe, 0x02, 0x00, 0xfe, 0x02, 0x00, 0xfe, 0x02,
    0x00, 0xfe, 0x02, 0x00, 0xfe, 0x02, 0x00, 0xfe, 0x02, 0x00, 0xfe, 0x02, 0x00, 0x52, 0x02,
    0x00, 0x9e, 0x80, 0x02, 0x08, 0xa3, 0xa5, 0xa4, 0xfe, 0x03, 0x00, 0xfe, 0x03, 0x00, 0xfe,
    0x03, 0x00, 0xfe, 0x03, 0x00, 0xde, 0x03, 0x00, 0x10, 0xe3, 0xe4, 0xe5, 0xe6, 0xe7};
constexpr std::uint8_t kLz4Block[] = {
    0xff, 0x1a, 0x01, 0x04, 0x07, 0x0a, 0x0d, 0x10, 0x13, 0x16, 0x19, 0x1c, 0x1f, 0x22,
    0x25, 0x28, 0x2b, 0x2e, 0x31, 0x34, 0x37, 0x3a, 0x3d, 0x40, 0x43, 0x46, 0x49, 0x4c,
    0x4f, 0x52, 0x55, 0x58, 0x5b, 0x5e, 0x61, 0x64, 0x67, 0x6a, 0x6d, 0x70, 0x73, 0x76,
    0x00, 0x01, 0x00, 0xff, 0xff, 0x46, 0x0f, 0x80, 0x02, 0x15, 0x3f, 0xa3, 0xa5, 0xa4,
    0x03, 0x00, 0xff, 0x26, 0x50, 0xe3, 0xe4, 0xe5, 0xe6, 0xe7};

constexpr std::uint8_t kNeverWritten = 0xc5;
constexpr std::uint64_t kTargetSize = DivideUp(kContentSize, kDecodeAlignment) * kDecodeAlignment;
constexpr std::size_t kBlockCountMax = 2;
constexpr std::uint64_t kRoom = kBlockCountMax * (kTargetSize + BlockDecoder::kBytesPerJobMax);

// What a target must hold afterwards, up to its alignment's end.
ByteVector Content() {
  ByteVector content(kTargetSize, std::byte{kNeverWritten});
  for (std::size_t i = 0; i < kContentSize; ++i) {
    const std::size_t value = i < 40    ? 3 * i + 1
                              : i < 640 ? 0
                              : i < 680 ? 3 * (i - 640) + 1
                              : i < 995 ? 0xa5 - i % 3
                                        : i % 256;
    content[i] = static_cast<std::byte>(value);
  }
  return content;
}

std::vector<ChunkWork> BlocksFor(const DecoderReach& reach) {
  std::vector<ChunkWork> blocks;
  const auto add = [&](DeviceEncoding encoding, std::span<const std::uint8_t> bytes) {
    ChunkWork work;
    work.encoding = encoding;
    work.dense = std::as_bytes(bytes);
    work.size = kContentSize;
    blocks.push_back(work);
  };
  if (reach.snappy) add(DeviceEncoding::kSnappy, kSnappyBlock);
  if (reach.lz4) add(DeviceEncoding::kLz4, kLz4Block);
  return blocks;
}

// Targets first, then what the decoder reads and says.
class Trial {
 public:
  Trial(const DriverPointer& driver, const BlockStage& stage, std::span<const ChunkWork> blocks,
        const DeviceBuffer& room, const PinnedBuffer& host)
      : driver_(driver), stage_(stage), room_(room), host_(host) {
    for (std::size_t i = 0; i < blocks.size(); ++i) {
      jobs_.push_back(stage.Job(i, blocks[i], room.address() + i * kTargetSize));
    }
  }

  Status Enqueue(CUstream stream) const {
    const BlockDecoder& how = stage_.how();
    const std::uint64_t targets = jobs_.size() * kTargetSize;
    std::memset(host_.data(), kNeverWritten, targets);
    how.Write(jobs_, host_.data() + targets);
    SEGUE_CUDA_TRY(driver_, cuMemcpyHtoDAsync, room_.address(), host_.data(), size(), stream);
    std::optional<Refusal> refusal;
    SEGUE_ASSIGN_OR_RETURN(refusal,
                           how.Enqueue(jobs_, room_.address() + targets, stage_.scratch(), stream));
    if (refusal) return refusal->reason;
    SEGUE_CUDA_TRY(driver_, cuMemcpyDtoHAsync, host_.data(), room_.address(), size(), stream);
    return {};
  }

  Status Examine() const {
    const ByteVector content = Content();
    const std::byte* const results =
        host_.data() + jobs_.size() * kTargetSize + stage_.how().InputSize(jobs_.size());
    for (std::size_t k = 0; k < jobs_.size(); ++k) {
      const std::string codec = jobs_[k].is_snappy ? "Snappy" : "LZ4";
      const Status said = stage_.how().Examine(jobs_, k, results);
      if (!said.ok()) return Unsupported("of a known block of " + codec + ", " + said.message());
      const bool is_right =
          std::equal(content.begin(), content.end(), host_.data() + k * kTargetSize);
      if (!is_right) return Unsupported("a known block of " + codec + " decodes to other bytes");
    }
    return {};
  }

 private:
  std::uint64_t size() const {
    return jobs_.size() * kTargetSize + stage_.how().InputSize(jobs_.size()) +
           stage_.how().ResultSize(jobs_.size());
  }

  const DriverPointer& driver_;
  const BlockStage& stage_;
  const DeviceBuffer& room_;
  const PinnedBuffer& host_;
  std::vector<DecodeJob> jobs_;
};

}  // namespace

Status TryDecoder(const DecoderUse& use, CUdevice device, const StagingMemory& memory,
                  WorkerPool& pool, CUstream stream) {
  const std::vector<ChunkWork> blocks = BlocksFor(use.reach);
  std::vector<std::size_t> items(blocks.size());
  std::iota(items.begin(), items.end(), std::size_t{0});
  BlockStage stage;
  stage.Plan(use, blocks, items, pool);
  if (stage.items().size() != blocks.size()) {
    return Unsupported("it takes no blocks of " + std::to_string(kContentSize) + " bytes");
  }
  Slots slots;
  SEGUE_ASSIGN_OR_RETURN(slots, Slots::Make(memory, kTargetSize));
  DeviceBuffer room;
  SEGUE_ASSIGN_OR_RETURN(room, memory.Device(kRoom));
  PinnedBuffer host;
  SEGUE_ASSIGN_OR_RETURN(host, memory.Host(kRoom));
  Status status = stage.Load(memory, device, slots, stream, blocks, kBlockCountMax * kContentSize);
  const Trial trial(memory.driver(), stage, blocks, room, host);
  if (status.ok()) status = trial.Enqueue(stream);
  // Whatever came of it, nobody may still use the memory.
  SEGUE_CUDA_TRY(memory.driver(), cuStreamSynchronize, stream);
  SEGUE_RETURN_IF_ERROR(status);
  return trial.Examine();
}

}  // namespace segue::cuda
