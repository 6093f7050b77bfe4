// SPDX-License-Identifier: Apache-2.0
//
// Block stage: the compressed chunks of a batch that the GPU decodes, where its decoder reads them,
// before the pause: device memory for the multiprocessors, the engine's arena for the engine.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/worker_pool.h"
#include "device/cuda/decoders.h"
#include "device/cuda/engine_arena.h"
#include "device/cuda/slots.h"

namespace segue::cuda {

// One compressed chunk, without what its decoder does not want to see.
struct StagedBlock {
  CUdeviceptr address = 0;
  std::uint64_t size = 0;
};

class BlockStage {
 public:
  // Plans: of `items`, those that the decoder takes; for the engine `pool` walks them first. The
  // batch's bytes must stay until Load().
  void Plan(Decoder decoder, const DecoderReach& reach, std::span<const ChunkWork> batch,
            std::span<const std::size_t> items, WorkerPool& pool);
  // Brings what is planned to its place. Everything is enqueued on `stream`.
  Status Load(const StagingMemory& memory, CUdevice device, Slots& slots, CUstream stream,
              std::span<const ChunkWork> batch);

  // The blocks are gone; their memory stays for the next ones.
  void Forget();

  Decoder decoder() const { return decoder_; }
  // Numbers into the batch, ascending: those that are here, and the others.
  std::span<const std::size_t> items() const { return items_; }
  std::span<const std::size_t> others() const { return others_; }
  const StagedBlock& Of(std::size_t item) const;

 private:
  Status LoadEngine(const StagingMemory& memory, CUdevice device, std::span<const ChunkWork> batch);
  std::uint64_t Room() const;

  Decoder decoder_ = Decoder::kProcessor;
  int host_node_ = 0;
  std::vector<std::size_t> items_;
  std::vector<std::size_t> others_;
  std::vector<std::uint64_t>
      skips_;  // Bytes in front of each block that its decoder does not want.
  std::vector<StagedBlock> blocks_;
  DeviceBuffer memory_;
  EngineArena arena_;
};

}  // namespace segue::cuda
