// SPDX-License-Identifier: Apache-2.0
//
// Update staging: all that an update has on the device and pinned on the host before the pause: its
// loaded batch, the compressed chunks that the GPU decodes, the slots, the sums. Knows sizes and
// what to do where they do not fit, no kernels. In the context's scope, one call at a time.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <span>

#include "device/cuda/block_stage.h"
#include "device/cuda/cuda_device.h"
#include "device/cuda/group_slots.h"
#include "device/cuda/loaded_batch.h"

namespace segue::cuda {

class UpdateStaging {
 public:
  UpdateStaging(ContextPointer context, std::uint64_t memory_max)
      : context_(std::move(context)), memory_(context_->driver(), memory_max) {}

  // By name, as Decoders::Choose() takes it, which tries it in `stream`. `decoders` outlives this,
  // and so does `pool`, which looks at chunks in Load().
  Status Choose(Decoders& decoders, const std::string& name, WorkerPool& pool, CUstream stream);
  void Reserve(std::uint64_t chunk_size_max);

  // Everything is enqueued on `stream`, and has run when this returns. ResourceExhausted: it does
  // not fit, even where everything is as small as can be; nothing is held then.
  Status Load(std::span<const ChunkWork> batch, CUstream stream);
  // The decoder refuses the batch that is loaded, for that reason: somebody else decodes it, which
  // is said. Everything has run when this returns; ResourceExhausted as above, but the batch stays.
  Status Replace(std::span<const ChunkWork> batch, const Status& reason, CUstream stream);
  // The same inside the pause, where nothing is taken: the processor decodes what is left.
  void ReplaceInPause(const Status& reason);
  // Forgets the batch; its memory stays for the next one.
  void Unload();
  // Slots as the batch wants them, or as large as usual.
  Status MakeSlots();
  // Between calls: the slots go, and while a batch is loaded their place in the budget stays, so
  // that nobody else has it when the apply takes them again.
  void ParkSlots();
  // The batch and its memory go.
  void ReleaseBatch();
  // The slots too.
  void Release();

  // Of slots, for an update of next to nothing.
  std::uint64_t least_size() const { return GroupSlots::LeastSize(chunk_size_max_); }
  const StagingMemory& memory() const { return memory_; }
  const LoadedBatch& loaded() const { return loaded_; }
  std::size_t loaded_count() const { return loaded_count_; }  // Chunks.
  const BlockStage& blocks() const { return blocks_; }
  GroupSlots& slots() { return *slots_; }
  const DeviceBuffer& device_sums() const { return device_sums_; }
  const PinnedBuffer& host_sums() const { return host_sums_; }
  // Who decodes for the batch that was loaded last; before, who would.
  Decoder decoder() const { return decoder_used_; }

 private:
  Status MakeSlots(const GroupSizes& wish);
  Status LoadWith(std::span<const ChunkWork> batch, CUstream stream, Decoder decoder,
                  bool smallest);
  Status LoadBlocks(std::span<const ChunkWork> batch, CUstream stream, Decoder decoder,
                    bool smallest);
  Status StageBlocks(std::span<const ChunkWork> batch, CUstream stream, Decoder decoder);

  const ContextPointer context_;
  const StagingMemory memory_;
  std::atomic<std::uint64_t> chunk_size_max_{0};
  Decoder decoder_ = Decoder::kProcessor;                   // As chosen.
  std::atomic<Decoder> decoder_used_{Decoder::kProcessor};  // For a batch.
  std::optional<GroupSlots> slots_;
  GroupSizes wish_;                     // Of the batch.
  GroupSizes asked_;                    // As which the slots were made.
  std::shared_ptr<const void> parked_;  // Of slots that are not there now,
  GroupSizes parked_room_;              // which had this room.
  const Decoders* decoders_ = nullptr;
  WorkerPool* pool_ = nullptr;
  LoadedBatch loaded_;
  BlockStage blocks_;
  std::size_t loaded_count_ = 0;
  bool holds_more_ = false;  // Memory of a batch before.
  DeviceBuffer device_sums_;
  PinnedBuffer host_sums_;
};

}  // namespace segue::cuda
