// SPDX-License-Identifier: Apache-2.0
//
// Group slots: kernels that read whole chunks work on a group of them at a time, in one of two
// slots that take turns. A row is a chunk, or a segment of one where the group has few chunks: one
// warp works on a row, and a GPU wants many. What is found of segments adds up. A slot is a buffer
// of the host, its counterpart on the device, and room for what the kernel found. Knows rows and
// launches, not how the bytes of chunks come about.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "device/cuda/kernel_set.h"
#include "device/cuda/loaded_batch.h"
#include "device/cuda/slots.h"
#include "device/device.h"

namespace segue::cuda {

// A chunk whose data does not decode, with what the decoder said.
struct Undecodable {
  std::size_t index = 0;  // Into the batch.
  Status reason;          // Corruption; anything else: not the data is at fault, but the device.
};

// One run of a kernel over some of a batch's chunks.
struct DenseRun {
  Kernel kernel = Kernel::kDenseScan;
  const LoadedBatch* loaded = nullptr;
  std::span<const ChunkWork> batch;
  std::span<const std::size_t> items;  // Numbers into the batch.
  std::function<void(std::size_t index, const RowSums& sums)> take;
};

// What one slot holds: the bytes of some chunks, then their rows.
struct Group {
  std::span<const std::size_t> items;
  std::uint64_t segment_size = 0;  // What a row has of a chunk, at most.
  std::size_t row_count = 0;
  std::vector<std::uint64_t> offsets;  // Of each chunk's bytes.
  std::uint64_t rows_offset = 0;
};

// Groups whose bytes come from the host, and groups that come about on the device.
struct GroupSizes {
  std::uint64_t host = 0;
  std::uint64_t device = 0;  // At least as many.
};

class GroupSlots {
 public:
  static constexpr std::uint64_t kGroupCountMax = 2048;  // Chunks of a group.
  static constexpr std::uint64_t kRowsWanted = 1024;
  static constexpr std::uint64_t kGroupRowsMax = kGroupCountMax + 2 * kRowsWanted;

  // For groups of `wish` bytes, or of less where there is no memory for that, but of at least one
  // chunk of `chunk_size_max` bytes.
  static Result<GroupSlots> Make(const StagingMemory& memory, std::uint64_t chunk_size_max,
                                 const GroupSizes& wish);
  // Of exactly that room, which `charge` (of slots before) has in the budget already.
  static Result<GroupSlots> MakeAgain(const StagingMemory& memory, const GroupSizes& room,
                                      std::shared_ptr<const void> charge);

  // Bytes of the smallest slots for such chunks.
  static std::uint64_t LeastSize(std::uint64_t chunk_size_max);

  // In the budget; whoever holds it may have these slots again.
  const std::shared_ptr<const void>& charge() const { return charge_; }
  // Bytes of chunks that a group may have.
  const GroupSizes& room() const { return room_; }
  // As many of `items` as go into one group of up to `room` bytes, from the first on.
  static Group NextGroup(const DenseRun& run, std::span<const std::size_t> items,
                         std::uint64_t room);

  Slots& host() { return host_; }
  CUdeviceptr device() const { return device(host_.current()); }
  CUdeviceptr device(unsigned slot) const { return device_[slot].address(); }
  // Writes the group's rows to `rows` (in the current slot). The chunks' bytes are at the group's
  // offsets in the device's slot.
  void WriteRows(const DenseRun& run, const Group& group, std::byte* rows) const;
  // The run's kernel over the group, all of which is in slot `slot` of the device.
  Status Launch(const KernelSet& kernels, const DenseRun& run, const Group& group, unsigned slot,
                CUstream stream);
  // What Launch() found goes to run.take, once; all that it enqueued has run.
  void Collect(const DenseRun& run, unsigned slot);
  void Forget() { running_ = {}; }

 private:
  static Result<GroupSlots> MakeOf(const StagingMemory& memory, const GroupSizes& sizes);

  DriverPointer driver_;
  std::shared_ptr<const void> charge_;  // Of all of it.
  GroupSizes room_;
  Slots host_;
  std::array<DeviceBuffer, 2> device_;
  std::array<DeviceBuffer, 2> device_sums_;
  std::array<PinnedBuffer, 2> sums_;
  struct Running {
    std::span<const std::size_t> items;
    std::uint64_t segment_size = 0;
  };
  std::array<Running, 2> running_;
};

}  // namespace segue::cuda
