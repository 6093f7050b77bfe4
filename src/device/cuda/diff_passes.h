// SPDX-License-Identifier: Apache-2.0
//
// Diff passes: the memory and the calls of a differ's two passes. A FindPass takes a group of
// chunks, as many as its memory has room for, and says what differs; a PackPass takes chunks of
// that group and brings their streams, or their bytes, to the host. Of each there are two that take
// turns, so that copies, kernels and the host work at the same time.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "device/cuda/diff_layout.h"
#include "device/cuda/kernel_set.h"
#include "device/differ.h"

namespace segue::cuda {

class FindPass {
 public:
  // Device memory that a group of one chunk needs.
  static std::uint64_t SizeMin(std::uint64_t chunk_size_max);
  static Result<FindPass> Make(const DriverPointer& driver, std::uint64_t size);

  // Enqueues the pass over chunks from `first` on; count() of them, at least one.
  Status Begin(const KernelSet& kernels, std::span<const DiffWork> work, std::size_t first,
               CUstream stream);
  bool is_running() const { return is_running_; }
  // Until it has run. What it found is there until the next Begin().
  Status Wait();
  void Forget() { is_running_ = false; }

  std::size_t first() const { return first_; }
  std::size_t count() const { return starts_.size() - 1; }
  // Of the chunk of this number in the group, one a segment.
  std::span<const FindRow> rows(std::size_t item) const;
  std::span<const FindSums> sums(std::size_t item) const;

 private:
  std::uint64_t CutGroup(std::span<const DiffWork> work);

  DriverPointer driver_;
  DeviceBuffer device_;  // Rows, sums, bits.
  PinnedBuffer host_;    // Rows, sums.
  Event done_;
  bool is_running_ = false;
  std::size_t first_ = 0;
  std::vector<std::size_t> starts_;  // Segments before each chunk, and behind the last.
};

class PackPass {
 public:
  // Room that a chunk of any form needs.
  static std::uint64_t SizeMin(std::uint64_t chunk_size_max);
  static Result<PackPass> Make(const DriverPointer& driver, std::uint64_t size);

  // False where there is no more room. All that is given, spans included, stays where it is until
  // Wait() has returned.
  bool Add(std::size_t index, const DiffWork& work, DiffForm form, const ChunkFound& found,
           std::span<const FindRow> rows, std::span<const FindSums> sums);
  bool empty() const { return items_.empty(); }
  // Enqueues what was added.
  Status Begin(const KernelSet& kernels, CUstream stream);
  bool is_running() const { return is_running_; }
  // Until it has run; the results are good until Clear(). Internal where the passes differ.
  Result<std::span<const DiffResult>> Wait();
  void Clear();

 private:
  struct Item {
    const DiffWork* work = nullptr;
    StreamLayout layout;
    std::uint64_t place = 0;  // Of its streams among all streams, or bytes among all bytes.
    // Of all segments; those with changes get a row of this pass, `first_row` and those behind it.
    std::span<const FindRow> rows;
    std::span<const FindSums> sums;
    std::size_t first_row = 0;
  };
  std::uint64_t SumsOffset() const { return row_count_ * sizeof(PackRow); }
  std::uint64_t StreamsOffset() const { return SumsOffset() + row_count_ * sizeof(PackSums); }
  std::uint64_t BytesOffset() const { return StreamsOffset() + streams_size_; }
  void WriteRows();
  Status CopyBytes(CUstream stream);
  Status CheckSums(const Item& item) const;

  DriverPointer driver_;
  DeviceBuffer device_;  // Rows, sums, streams.
  PinnedBuffer host_;    // The same, then bytes of chunks.
  Event done_;
  bool is_running_ = false;
  std::vector<Item> items_;
  std::vector<DiffResult> results_;
  std::size_t row_count_ = 0;
  std::uint64_t streams_size_ = 0;
  std::uint64_t bytes_size_ = 0;
};

}  // namespace segue::cuda
