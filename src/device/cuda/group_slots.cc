// SPDX-License-Identifier: Apache-2.0
//
// Sizes of slots, rows, launches.
#include "device/cuda/group_slots.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <string>

#include "base/bytes.h"
#include "device/cuda/block_decoder.h"
#include "device/cuda/diff_rows.h"

namespace segue::cuda {
namespace {

constexpr std::uint64_t kAlignment = kDecodeAlignment;
// Of a decoder too, whose rows and results lie behind those of the kernel.
constexpr std::uint64_t kRowsRoom = GroupSlots::kGroupRowsMax * sizeof(DenseRow) +
                                    GroupSlots::kGroupCountMax * BlockDecoder::kBytesPerJobMax;
constexpr std::uint64_t kSumsSize = GroupSlots::kGroupRowsMax * sizeof(RowSums);

std::uint64_t Aligned(std::uint64_t size) { return DivideUp(size, kAlignment) * kAlignment; }

// Two of everything, on either side.
std::uint64_t SizeOf(const GroupSizes& sizes) {
  return 2 * (sizes.host + sizes.device + 2 * kRowsRoom + 2 * kSumsSize);
}

std::uint64_t RowCount(std::uint64_t chunk_size, std::uint64_t segment_size) {
  return std::max<std::uint64_t>(DivideUp(chunk_size, segment_size), 1);
}

// Cuts chunks of `size` bytes together so that there are rows enough, and not many more.
std::uint64_t SegmentSize(std::uint64_t size) {
  return std::max(kSegmentSize, std::bit_floor(size / GroupSlots::kRowsWanted));
}

// Bytes `offset` to `offset + size` of a chunk, which are whole digest blocks or its last ones.
DenseRow SegmentOf(const DenseRow& chunk, std::uint64_t offset, std::uint64_t size) {
  DenseRow row = chunk;
  // Under a view the elements say where the bytes are.
  if (chunk.place.view == nullptr) row.place.live += offset;
  row.place.first_element += offset / chunk.place.width;
  row.place.first_block += offset / kDigestBlockSize;
  row.place.size = size;
  row.bytes += offset;
  return row;
}

void AddTo(RowSums& sums, const RowSums& segment) {
  for (unsigned k = 0; k < 2; ++k) {
    sums.before[k] += segment.before[k];
    sums.difference[k] += segment.difference[k];
  }
}

}  // namespace

std::uint64_t GroupSlots::LeastSize(std::uint64_t chunk_size_max) {
  return SizeOf({Aligned(chunk_size_max), Aligned(chunk_size_max)});
}

Result<GroupSlots> GroupSlots::MakeOf(const StagingMemory& memory, const GroupSizes& sizes) {
  std::shared_ptr<const void> charge;
  SEGUE_ASSIGN_OR_RETURN(charge, memory.Charge(SizeOf(sizes), "slots"));
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
  std::uint64_t size = 0;
  std::size_t count = 0;
  while (count < items.size() && count < kGroupCountMax) {
    const std::uint64_t more = has_bytes ? Aligned(run.batch[items[count]].size) : 0;
    if (group.rows_offset + more > room) break;
    group.offsets.push_back(group.rows_offset);
    group.rows_offset += more;
    size += run.batch[items[count]].size;
    ++count;
  }
  group.items = items.first(count);
  group.segment_size = SegmentSize(size);
  for (const std::size_t item : group.items) {
    group.row_count += RowCount(run.batch[item].size, group.segment_size);
  }
  return group;
}

void GroupSlots::WriteRows(const DenseRun& run, const Group& group, std::byte* rows) const {
  for (std::size_t i = 0; i < group.items.size(); ++i) {
    const ChunkWork& work = run.batch[group.items[i]];
    DenseRow row = {};
    row.place = run.loaded->Place(work);
    row.bytes = reinterpret_cast<const std::byte*>(device() + group.offsets[i]);
    row.replaces = work.encoding == DeviceEncoding::kRaw;
    for (std::uint64_t k = 0; k < RowCount(work.size, group.segment_size); ++k) {
      const std::uint64_t offset = k * group.segment_size;
      const DenseRow segment =
          SegmentOf(row, offset, std::min(group.segment_size, work.size - offset));
      std::memcpy(rows, &segment, sizeof(segment));
      rows += sizeof(segment);
    }
  }
}

Status GroupSlots::Launch(const KernelSet& kernels, const DenseRun& run, const Group& group,
                          unsigned slot, CUstream stream) {
  const CUdeviceptr sums = device_sums_[slot].address();
  SEGUE_RETURN_IF_ERROR(kernels.Launch(run.kernel, device_[slot].address() + group.rows_offset,
                                       group.row_count, sums, stream));
  SEGUE_CUDA_TRY(driver_, cuMemcpyDtoHAsync, sums_[slot].data(), sums,
                 group.row_count * sizeof(RowSums), stream);
  running_[slot] = {group.items, group.segment_size};
  return {};
}

void GroupSlots::Collect(const DenseRun& run, unsigned slot) {
  const std::byte* found = sums_[slot].data();
  for (const std::size_t item : running_[slot].items) {
    RowSums sums = {};
    for (std::uint64_t k = RowCount(run.batch[item].size, running_[slot].segment_size); k > 0;
         --k) {
      RowSums segment;
      std::memcpy(&segment, found, sizeof(segment));
      AddTo(sums, segment);
      found += sizeof(segment);
    }
    run.take(item, sums);
  }
  running_[slot] = {};
}

}  // namespace segue::cuda
