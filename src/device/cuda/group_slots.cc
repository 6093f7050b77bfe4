// SPDX-License-Identifier: Apache-2.0
//
// Sizes of slots, rows, launches.
#include "device/cuda/group_slots.h"

#include <algorithm>
#include <cstring>
#include <string>

#include "base/bytes.h"

namespace segue::cuda {
namespace {

constexpr std::uint64_t kAlignment = 256;
// Of a decoder too, whose rows and results lie behind those of the kernel.
constexpr std::uint64_t kRowsRoom =
    GroupSlots::kGroupCountMax * (sizeof(DenseRow) + sizeof(DecodeRow) + sizeof(DecodeResult));
constexpr std::uint64_t kSumsSize = GroupSlots::kGroupCountMax * sizeof(RowSums);

std::uint64_t Aligned(std::uint64_t size) { return DivideUp(size, kAlignment) * kAlignment; }

}  // namespace

Result<GroupSlots> GroupSlots::MakeOf(const StagingMemory& memory, const GroupSizes& sizes) {
  const std::uint64_t all = 2 * (sizes.host + sizes.device + 2 * kRowsRoom + 2 * kSumsSize);
  std::shared_ptr<const void> charge;
  SEGUE_ASSIGN_OR_RETURN(charge, memory.Charge(all, "slots"));
  return MakeAgain(memory, sizes, std::move(charge));
}

Result<GroupSlots> GroupSlots::MakeAgain(const StagingMemory& budget, const GroupSizes& sizes,
                                         std::shared_ptr<const void> charge) {
  const StagingMemory memory = budget.Charged();
  GroupSlots slots;
  slots.driver_ = memory.driver();
  slots.charge_ = std::move(charge);
  slots.room_ = sizes;
  SEGUE_ASSIGN_OR_RETURN(slots.host_, Slots::Make(memory, sizes.host + kRowsRoom));
  for (unsigned i = 0; i < 2; ++i) {
    SEGUE_ASSIGN_OR_RETURN(slots.device_[i], memory.Device(sizes.device + kRowsRoom));
    SEGUE_ASSIGN_OR_RETURN(slots.device_sums_[i], memory.Device(kSumsSize));
    SEGUE_ASSIGN_OR_RETURN(slots.sums_[i], memory.Host(kSumsSize));
  }
  return slots;
}

Result<GroupSlots> GroupSlots::Make(const StagingMemory& memory, std::uint64_t chunk_size_max,
                                    const GroupSizes& wish) {
  const std::uint64_t least = Aligned(chunk_size_max);
  GroupSizes sizes = {std::max(wish.host, least), std::max({wish.device, wish.host, least})};
  while (true) {
    Result<GroupSlots> slots = MakeOf(memory, sizes);
    if (slots.ok() || slots.status().code() != StatusCode::kResourceExhausted) return slots;
    if (sizes.device == least) return slots.status().WithContext("slots for one chunk each");
    const GroupSizes smaller = {std::max(least, Aligned(sizes.host / 2)),
                                std::max(least, Aligned(sizes.device / 2))};
    memory.Say("staging in groups of " + std::to_string(smaller.device) + " bytes instead of " +
                   std::to_string(sizes.device),
               slots.status().message());
    sizes = smaller;
  }
}

Group GroupSlots::NextGroup(const DenseRun& run, std::span<const std::size_t> items,
                            std::uint64_t room) {
  const bool has_bytes = run.kernel != Kernel::kDenseScan;
  Group group;
  std::size_t count = 0;
  while (count < items.size() && count < kGroupCountMax) {
    const std::uint64_t more = has_bytes ? Aligned(run.batch[items[count]].size) : 0;
    if (group.rows_offset + more > room) break;
    group.offsets.push_back(group.rows_offset);
    group.rows_offset += more;
    ++count;
  }
  group.items = items.first(count);
  return group;
}

void GroupSlots::WriteRows(const DenseRun& run, const Group& group, std::byte* rows) const {
  for (std::size_t i = 0; i < group.items.size(); ++i) {
    const ChunkWork& work = run.batch[group.items[i]];
    DenseRow row = {};
    row.place = run.loaded->Place(work);
    row.bytes = reinterpret_cast<const std::byte*>(device() + group.offsets[i]);
    row.replaces = work.encoding == DeviceEncoding::kRaw;
    std::memcpy(rows + i * sizeof(row), &row, sizeof(row));
  }
}

Status GroupSlots::Launch(const KernelSet& kernels, const DenseRun& run, const Group& group,
                          unsigned slot, CUstream stream) {
  const CUdeviceptr sums = device_sums_[slot].address();
  SEGUE_RETURN_IF_ERROR(kernels.Launch(run.kernel, device_[slot].address() + group.rows_offset,
                                       group.items.size(), sums, stream));
  SEGUE_CUDA_TRY(driver_, cuMemcpyDtoHAsync, sums_[slot].data(), sums,
                 group.items.size() * sizeof(RowSums), stream);
  running_[slot] = group.items;
  return {};
}

void GroupSlots::Collect(const DenseRun& run, unsigned slot) {
  for (std::size_t i = 0; i < running_[slot].size(); ++i) {
    RowSums sums;
    std::memcpy(&sums, sums_[slot].data() + i * sizeof(sums), sizeof(sums));
    run.take(running_[slot][i], sums);
  }
  running_[slot] = {};
}

}  // namespace segue::cuda
