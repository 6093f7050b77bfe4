// SPDX-License-Identifier: Apache-2.0
//
// Groups, rows, copies. Memory of a pass is one stretch, its parts one after the other.
#include "device/cuda/diff_passes.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"

namespace segue::cuda {
namespace {

constexpr std::uint64_t kFindRowRoom = sizeof(FindRow) + sizeof(FindSums);
constexpr std::uint64_t kPackRowRoom = sizeof(PackRow) + sizeof(PackSums);
static_assert(kFindRowRoom % 16 == 0 && sizeof(FindRow) % 8 == 0);
static_assert(kPackRowRoom % 8 == 0 && sizeof(PackRow) % 8 == 0);
// Segments of a group, for rows and sums wait in pinned memory: 8 GiB of model.
constexpr std::uint64_t kGroupSegmentsMax = 65536;

std::uint64_t SegmentsMax(std::uint64_t size) {
  return std::min(kGroupSegmentsMax, size / kFindRowRoom);
}

std::uint64_t Aligned(std::uint64_t size) { return DivideUp(size, 16) * 16; }

// Of all segments but the last of a chunk; bits begin at multiples of 8.
std::uint64_t SegmentBits(const DiffWork& work) { return BitsSize(kSegmentSize, work.width); }

std::uint64_t ChunkBits(const DiffWork& work) {
  const std::uint64_t segments = SegmentCount(work.size);
  const std::uint64_t last = work.size - (segments - 1) * kSegmentSize;
  return (segments - 1) * SegmentBits(work) + BitsSize(last, work.width);
}

}  // namespace

std::uint64_t FindPass::SizeMin(std::uint64_t chunk_size_max) {
  return SegmentCount(chunk_size_max) * (kFindRowRoom + BitsSize(kSegmentSize, 1));
}

Result<FindPass> FindPass::Make(const DriverPointer& driver, std::uint64_t size) {
  FindPass pass;
  pass.driver_ = driver;
  SEGUE_ASSIGN_OR_RETURN(pass.device_, AllocateDevice(driver, size));
  SEGUE_ASSIGN_OR_RETURN(pass.host_, AllocatePinned(driver, SegmentsMax(size) * kFindRowRoom));
  SEGUE_ASSIGN_OR_RETURN(pass.done_, MakeEvent(driver));
  return pass;
}

// Fills starts_; returns the count of segments.
std::uint64_t FindPass::CutGroup(std::span<const DiffWork> work) {
  starts_.assign(1, 0);
  std::uint64_t segments = 0;
  std::uint64_t bits = 0;
  for (const DiffWork& chunk : work) {
    segments += SegmentCount(chunk.size);
    bits += ChunkBits(chunk);
    const bool fits =
        segments <= SegmentsMax(device_.size) && segments * kFindRowRoom + bits <= device_.size;
    if (!fits) break;
    starts_.push_back(segments);
  }
  SEGUE_CHECK(count() != 0);
  return starts_.back();
}

Status FindPass::Begin(const KernelSet& kernels, std::span<const DiffWork> work, std::size_t first,
                       CUstream stream) {
  first_ = first;
  const std::uint64_t segments = CutGroup(work.subspan(first));
  auto* row = reinterpret_cast<FindRow*>(host_.data());
  std::byte* bits = device_.as<std::byte>() + segments * kFindRowRoom;
  for (std::size_t item = 0; item < count(); ++item) {
    const DiffWork& chunk = work[first + item];
    for (std::uint64_t segment = 0; segment < SegmentCount(chunk.size); ++segment) {
      *row++ = MakeFindRow(chunk, segment, bits + segment * SegmentBits(chunk));
    }
    bits += ChunkBits(chunk);
  }
  const std::uint64_t rows_size = segments * sizeof(FindRow);
  const CUdeviceptr sums = device_.address() + rows_size;
  SEGUE_CUDA_TRY(driver_, cuMemcpyHtoDAsync, device_.address(), host_.data(), rows_size, stream);
  SEGUE_RETURN_IF_ERROR(
      kernels.Launch(Kernel::kDiffFind, device_.address(), segments, sums, stream));
  SEGUE_CUDA_TRY(driver_, cuMemcpyDtoHAsync, host_.data() + rows_size, sums,
                 segments * sizeof(FindSums), stream);
  SEGUE_CUDA_TRY(driver_, cuEventRecord, done_.get(), stream);
  is_running_ = true;
  return {};
}

Status FindPass::Wait() {
  SEGUE_CUDA_TRY(driver_, cuEventSynchronize, done_.get());
  return {};
}

std::span<const FindRow> FindPass::rows(std::size_t item) const {
  const auto* const all = reinterpret_cast<const FindRow*>(host_.data());
  return {all + starts_[item], all + starts_[item + 1]};
}

std::span<const FindSums> FindPass::sums(std::size_t item) const {
  const auto* const all =
      reinterpret_cast<const FindSums*>(host_.data() + starts_.back() * sizeof(FindRow));
  return {all + starts_[item], all + starts_[item + 1]};
}

// `sparse` costs no more than the chunk (IsSparse() in delta/encoder.h), but for paddings.
std::uint64_t PackPass::SizeMin(std::uint64_t chunk_size_max) {
  return SegmentCount(chunk_size_max) * kPackRowRoom + 2 * Aligned(chunk_size_max) + 64;
}

Result<PackPass> PackPass::Make(const DriverPointer& driver, std::uint64_t size) {
  PackPass pass;
  pass.driver_ = driver;
  SEGUE_ASSIGN_OR_RETURN(pass.device_, AllocateDevice(driver, size));
  SEGUE_ASSIGN_OR_RETURN(pass.host_, AllocatePinned(driver, size));
  SEGUE_ASSIGN_OR_RETURN(pass.done_, MakeEvent(driver));
  return pass;
}

bool PackPass::Add(std::size_t index, const DiffWork& work, DiffForm form, const ChunkFound& found,
                   std::span<const FindRow> rows, std::span<const FindSums> sums) {
  Item item;
  item.work = &work;
  std::uint64_t streams = 0;
  std::uint64_t bytes = 0;
  if (form == DiffForm::kSparse) {
    item.layout = StreamLayout::Of(work, found);
    streams = Aligned(item.layout.size());
    item.rows = rows;
    item.sums = sums;
  } else {
    bytes = Aligned(work.size) * (work.base_on_host ? 1 : 2);
  }
  const auto changed = static_cast<std::size_t>(std::ranges::count_if(
      item.sums, [](const FindSums& segment) { return segment.change_count != 0; }));
  const std::size_t rows_after = row_count_ + changed;
  if (rows_after * kPackRowRoom + streams_size_ + streams + bytes_size_ + bytes > host_.size) {
    return false;
  }
  item.place = form == DiffForm::kSparse ? streams_size_ : bytes_size_;
  item.first_row = row_count_;
  row_count_ = rows_after;
  streams_size_ += streams;
  bytes_size_ += bytes;
  items_.push_back(item);
  DiffResult result;
  result.index = index;
  result.form = form;
  result.sums = found.sums;
  results_.push_back(result);
  return true;
}

void PackPass::WriteRows() {
  auto* row = reinterpret_cast<PackRow*>(host_.data());
  for (const Item& item : items_) {
    std::byte* const streams = device_.as<std::byte>() + StreamsOffset() + item.place;
    std::uint32_t first_change = 0;
    for (std::size_t i = 0; i < item.rows.size(); ++i) {
      if (item.sums[i].change_count == 0) continue;
      *row++ = MakePackRow(item.rows[i], i, item.layout, streams, first_change);
      first_change += static_cast<std::uint32_t>(item.sums[i].change_count);
    }
  }
}

Status PackPass::CopyBytes(CUstream stream) {
  for (std::size_t i = 0; i < items_.size(); ++i) {
    if (results_[i].form != DiffForm::kBytes) continue;
    const DiffWork& work = *items_[i].work;
    std::byte* const place = host_.data() + BytesOffset() + items_[i].place;
    std::byte* const base = place + Aligned(work.size);
    results_[i].target = place;
    results_[i].base = work.base_on_host ? work.base : base;
    SEGUE_CUDA_TRY(driver_, cuMemcpyDtoHAsync, place, reinterpret_cast<CUdeviceptr>(work.target),
                   work.size, stream);
    if (work.base_on_host) continue;
    SEGUE_CUDA_TRY(driver_, cuMemcpyDtoHAsync, base, reinterpret_cast<CUdeviceptr>(work.base),
                   work.size, stream);
  }
  return {};
}

Status PackPass::Begin(const KernelSet& kernels, CUstream stream) {
  if (row_count_ != 0) {
    WriteRows();
    const CUdeviceptr sums = device_.address() + SumsOffset();
    const std::uint64_t back = BytesOffset() - SumsOffset();
    SEGUE_CUDA_TRY(driver_, cuMemcpyHtoDAsync, device_.address(), host_.data(), SumsOffset(),
                   stream);
    SEGUE_CUDA_TRY(driver_, cuMemsetD8Async, device_.address() + StreamsOffset(), 0, streams_size_,
                   stream);
    SEGUE_RETURN_IF_ERROR(
        kernels.Launch(Kernel::kDiffPack, device_.address(), row_count_, sums, stream));
    SEGUE_CUDA_TRY(driver_, cuMemcpyDtoHAsync, host_.data() + SumsOffset(), sums, back, stream);
  }
  SEGUE_RETURN_IF_ERROR(CopyBytes(stream));
  SEGUE_CUDA_TRY(driver_, cuEventRecord, done_.get(), stream);
  is_running_ = true;
  return {};
}

Status PackPass::CheckSums(const Item& item) const {
  const auto* packed =
      reinterpret_cast<const PackSums*>(host_.data() + SumsOffset()) + item.first_row;
  for (const FindSums& found : item.sums) {
    if (found.change_count == 0) continue;
    bool is_same = packed->change_count == found.change_count;
    for (unsigned k = 0; k < 2; ++k) {
      is_same = is_same && packed->difference[k] == found.after[k] - found.before[k];
    }
    ++packed;
    if (is_same) continue;
    return Internal(
        "the device sent other changes than it had found: a buffer changed while it was compared, "
        "or the device fails");
  }
  return {};
}

Result<std::span<const DiffResult>> PackPass::Wait() {
  SEGUE_CUDA_TRY(driver_, cuEventSynchronize, done_.get());
  for (std::size_t i = 0; i < items_.size(); ++i) {
    if (results_[i].form != DiffForm::kSparse) continue;
    SEGUE_RETURN_IF_ERROR(CheckSums(items_[i]));
    results_[i].sparse = items_[i].layout.At(host_.data() + StreamsOffset() + items_[i].place);
  }
  return std::span<const DiffResult>(results_);
}

void PackPass::Clear() {
  is_running_ = false;
  items_.clear();
  results_.clear();
  row_count_ = 0;
  streams_size_ = 0;
  bytes_size_ = 0;
}

}  // namespace segue::cuda
