// SPDX-License-Identifier: Apache-2.0
//
// Decoding on threads, and order.
#include "device/cuda/dense_path.h"

#include <cstring>
#include <mutex>

#include "base/bytes.h"

namespace segue::cuda {

DensePath::DensePath(unsigned threads)
    : pool_(std::make_unique<WorkerPool>(threads)), decoders_(pool_->size()) {}

std::optional<Undecodable> DensePath::Decode(const DenseRun& run, const Group& group,
                                             std::byte* slot) {
  std::optional<Undecodable> first;
  if (run.kernel == Kernel::kDenseScan) return first;
  std::mutex mutex;
  (void)ParallelFor(group.items.size(), *pool_, [&](std::size_t i, unsigned thread) -> Status {
    const ChunkWork& work = run.batch[group.items[i]];
    std::byte* const target = slot + group.offsets[i];
    if (work.encoding == DeviceEncoding::kRaw) {
      std::memcpy(target, work.dense.data(), work.size);
      return {};
    }
    Status status = decoders_[thread].Decode(work, target);
    if (status.ok()) return {};
    const std::lock_guard lock(mutex);
    if (!first || group.items[i] < first->index) first = Undecodable{group.items[i], status};
    return status;
  });
  return first;
}

Status DensePath::Examine(const ChunkWork& work) {
  ByteVector mask(work.size);
  return decoders_.front().Decode(work, mask.data());
}

Status DensePath::Enqueue(const KernelSet& kernels, GroupSlots& slots, const DenseRun& run,
                          const Group& group, std::byte* slot, CUstream stream) {
  slots.WriteRows(run, group, slot + group.rows_offset);
  const DriverPointer& driver = slots.host().driver();
  SEGUE_CUDA_TRY(driver, cuMemcpyHtoDAsync, slots.device(), slot,
                 group.rows_offset + group.row_count * sizeof(DenseRow), stream);
  SEGUE_RETURN_IF_ERROR(slots.Launch(kernels, run, group, slots.host().current(), stream));
  return slots.host().Release(stream);
}

Result<std::optional<Undecodable>> DensePath::Run(const KernelSet& kernels, GroupSlots& slots,
                                                  const DenseRun& run, CUstream stream) {
  slots.Forget();
  std::optional<Undecodable> undecodable;
  for (auto left = run.items; !left.empty() && !undecodable;) {
    std::byte* slot = nullptr;
    SEGUE_ASSIGN_OR_RETURN(slot, slots.host().Next());
    slots.Collect(run, slots.host().current());
    const Group group = GroupSlots::NextGroup(run, left, slots.room().host);
    if (group.items.empty()) return Internal("a chunk is larger than a slot");
    undecodable = Decode(run, group, slot);
    if (!undecodable) {
      SEGUE_RETURN_IF_ERROR(Enqueue(kernels, slots, run, group, slot, stream));
    }
    left = left.subspan(group.items.size());
  }
  const DriverPointer& driver = slots.host().driver();
  SEGUE_CUDA_TRY(driver, cuStreamSynchronize, stream);
  slots.Collect(run, 0);
  slots.Collect(run, 1);
  return undecodable;
}

}  // namespace segue::cuda
