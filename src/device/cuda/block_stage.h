// SPDX-License-Identifier: Apache-2.0
//
// Block stage: the compressed chunks of a batch that the GPU decodes, where its decoder reads them,
// before the pause: device memory for the multiprocessors, the engine's arena for the engine; and
// what the decoder needs besides.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/worker_pool.h"
#include "device/cuda/decoders.h"
#include "device/cuda/engine_arena.h"
#include "device/cuda/slots.h"

namespace segue::cuda {

class BlockStage {
 public:
  // Plans: of `items`, those that the decoder takes; for decoders that are not ours `pool` walks
  // them first. The batch's bytes must stay until Load().
  void Plan(const DecoderUse& use, std::span<const ChunkWork> batch,
            std::span<const std::size_t> items, WorkerPool& pool);
  // Brings what is planned to its place. Everything is enqueued on `stream`. `group_max`: bytes
  // that a group of chunks decodes to, at most.
  Status Load(const StagingMemory& memory, CUdevice device, Slots& slots, CUstream stream,
              std::span<const ChunkWork> batch, std::uint64_t group_max);

  // The blocks are gone; their memory stays for the next ones.
  void Forget();

  // Of blocks that are here.
  const BlockDecoder& how() const { return *use_.how; }
  const DeviceBuffer& scratch() const { return scratch_; }
  // Numbers into the batch, ascending: those that are here, and the others.
  std::span<const std::size_t> items() const { return items_; }
  std::span<const std::size_t> others() const { return others_; }
  // What the decoder is to do with one of items().
  DecodeJob Job(std::size_t item, const ChunkWork& work, CUdeviceptr target) const;

 private:
  Status LoadEngine(const StagingMemory& memory, CUdevice device, std::span<const ChunkWork> batch);
  Status LoadScratch(const StagingMemory& memory, std::span<const ChunkWork> batch,
                     std::uint64_t group_max);
  std::uint64_t Room() const;

  DecoderUse use_;
  std::vector<std::size_t> items_;
  std::vector<std::size_t> others_;
  std::vector<std::uint64_t>
      skips_;  // Bytes in front of each block that its decoder does not want.
  // One compressed chunk, without what its decoder does not want to see.
  struct Block {
    CUdeviceptr address = 0;
    std::uint64_t size = 0;
  };
  std::vector<Block> blocks_;
  DeviceBuffer memory_;
  DeviceBuffer scratch_;
  EngineArena arena_;
};

}  // namespace segue::cuda
