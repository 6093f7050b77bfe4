// SPDX-License-Identifier: Apache-2.0
//
// Groups, slots, launches.
#include "device/cuda/dense_path.h"

#include <algorithm>
#include <cstring>
#include <mutex>

#include "base/bytes.h"

namespace segue::cuda {
namespace {

constexpr std::uint64_t kSlotSizeMin = 32 << 20;
constexpr std::uint64_t kGroupCountMax = 4096;  // Chunks of a group.
constexpr std::uint64_t kAlignment = 16;
constexpr std::uint64_t kRowsRoom = kGroupCountMax * sizeof(DenseRow);

std::uint64_t Aligned(std::uint64_t size) { return DivideUp(size, kAlignment) * kAlignment; }

bool HasBytes(const DenseRun& run) { return run.kernel != Kernel::kDenseScan; }

}  // namespace

Result<DensePath> DensePath::Make(const DriverPointer& driver, std::uint64_t chunk_size_max,
                                  unsigned threads) {
  DensePath path;
  path.driver_ = driver;
  path.pool_ = std::make_unique<WorkerPool>(threads);
  path.decoders_ = std::vector<MaskDecoder>(path.pool_->size());
  const std::uint64_t size = std::max(kSlotSizeMin, Aligned(chunk_size_max)) + kRowsRoom;
  SEGUE_ASSIGN_OR_RETURN(path.slots_, Slots::Make(driver, size));
  constexpr std::uint64_t kSumsSize = kGroupCountMax * sizeof(RowSums);
  for (unsigned i = 0; i < 2; ++i) {
    SEGUE_ASSIGN_OR_RETURN(path.device_[i], AllocateDevice(driver, size));
    SEGUE_ASSIGN_OR_RETURN(path.device_sums_[i], AllocateDevice(driver, kSumsSize));
    SEGUE_ASSIGN_OR_RETURN(path.sums_[i], AllocatePinned(driver, kSumsSize));
  }
  return path;
}

std::uint64_t DensePath::group_size_max() const { return slots_.size() - kRowsRoom; }

DensePath::Group DensePath::NextGroup(const DenseRun& run,
                                      std::span<const std::size_t> items) const {
  Group group;
  std::uint64_t size = 0;
  std::size_t count = 0;
  while (count < items.size() && count < kGroupCountMax) {
    const std::uint64_t more = HasBytes(run) ? Aligned(run.batch[items[count]].size) : 0;
    if (size + more > group_size_max()) break;
    group.offsets.push_back(size);
    size += more;
    ++count;
  }
  group.items = items.first(count);
  group.rows_offset = size;
  group.size = size + count * sizeof(DenseRow);
  return group;
}

std::optional<Undecodable> DensePath::Decode(const DenseRun& run, const Group& group,
                                             std::byte* slot) {
  std::optional<Undecodable> first;
  if (!HasBytes(run)) return first;
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

Status DensePath::Enqueue(const KernelSet& kernels, const DenseRun& run, const Group& group,
                          std::byte* slot, CUstream stream) {
  const unsigned current = slots_.current();
  const CUdeviceptr target = device_[current].address();
  for (std::size_t i = 0; i < group.items.size(); ++i) {
    const ChunkWork& work = run.batch[group.items[i]];
    DenseRow row = {};
    row.place = run.loaded->Place(work);
    row.bytes = reinterpret_cast<const std::byte*>(target + group.offsets[i]);
    row.replaces = work.encoding == DeviceEncoding::kRaw;
    std::memcpy(slot + group.rows_offset + i * sizeof(row), &row, sizeof(row));
  }
  SEGUE_CUDA_TRY(driver_, cuMemcpyHtoDAsync, target, slot, group.size, stream);
  const CUdeviceptr sums = device_sums_[current].address();
  SEGUE_RETURN_IF_ERROR(
      kernels.Launch(run.kernel, target + group.rows_offset, group.items.size(), sums, stream));
  SEGUE_CUDA_TRY(driver_, cuMemcpyDtoHAsync, sums_[current].data(), sums,
                 group.items.size() * sizeof(RowSums), stream);
  SEGUE_RETURN_IF_ERROR(slots_.Release(stream));
  running_[current] = group.items;
  return {};
}

// The slot's group has run.
void DensePath::Collect(const DenseRun& run, unsigned slot) {
  for (std::size_t i = 0; i < running_[slot].size(); ++i) {
    RowSums sums;
    std::memcpy(&sums, sums_[slot].data() + i * sizeof(sums), sizeof(sums));
    run.take(running_[slot][i], sums);
  }
  running_[slot] = {};
}

Result<std::optional<Undecodable>> DensePath::Run(const KernelSet& kernels, const DenseRun& run,
                                                  CUstream stream) {
  running_ = {};
  std::optional<Undecodable> undecodable;
  for (auto left = run.items; !left.empty() && !undecodable;) {
    std::byte* slot = nullptr;
    SEGUE_ASSIGN_OR_RETURN(slot, slots_.Next());
    Collect(run, slots_.current());
    const Group group = NextGroup(run, left);
    undecodable = Decode(run, group, slot);
    if (!undecodable) SEGUE_RETURN_IF_ERROR(Enqueue(kernels, run, group, slot, stream));
    left = left.subspan(group.items.size());
  }
  SEGUE_CUDA_TRY(driver_, cuStreamSynchronize, stream);
  Collect(run, 0);
  Collect(run, 1);
  return undecodable;
}

}  // namespace segue::cuda
