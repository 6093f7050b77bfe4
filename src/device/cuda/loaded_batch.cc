// SPDX-License-Identifier: Apache-2.0
//
// Packing a batch. Streams begin at multiples of 8, rows and views at multiples of 16.
#include "device/cuda/loaded_batch.h"

#include "base/random.h"
#include "codec/sparse.h"
#include "device/cuda/kernel_view.h"

namespace segue::cuda {
namespace {

constexpr std::uint64_t kStreamAlignment = 8;
constexpr std::uint64_t kRowAlignment = 16;

SparseShape ShapeOf(const host::SparseChunk& chunk) {
  return {chunk.change_count, chunk.element_count, chunk.low_bits};
}

// Room for the streams of a row, paddings included.
std::uint64_t StreamRoom(const host::SparseChunk& chunk) {
  const SparseShape shape = ShapeOf(chunk);
  std::uint64_t room = shape.LowSize() + shape.HighSize();
  for (unsigned p = 0; p < chunk.width; ++p) {
    if (chunk.plane[p] != nullptr) room += chunk.change_count + kStreamAlignment;
  }
  return room + kStreamAlignment;
}

Status LoadStreams(Uploader& uploader, const host::SparseChunk& chunk, SparseRow& row) {
  const SparseShape shape = ShapeOf(chunk);
  CUdeviceptr address = 0;
  SEGUE_ASSIGN_OR_RETURN(address, uploader.Append(chunk.low, shape.LowSize(), kStreamAlignment));
  row.low = reinterpret_cast<const std::uint64_t*>(address);
  SEGUE_ASSIGN_OR_RETURN(address, uploader.Append(chunk.high, shape.HighSize(), kStreamAlignment));
  row.high = reinterpret_cast<const std::uint32_t*>(address);
  for (unsigned p = 0; p < chunk.width; ++p) {
    if (chunk.plane[p] == nullptr) continue;
    SEGUE_ASSIGN_OR_RETURN(address, uploader.Append(chunk.plane[p], chunk.change_count, 1));
    row.plane[p] = reinterpret_cast<const std::byte*>(address);
  }
  row.constants = chunk.constants;
  row.change_count = chunk.change_count;
  row.element_count = chunk.element_count;
  row.low_bits = chunk.low_bits;
  return {};
}

}  // namespace

Status LoadedBatch::Load(const StagingMemory& memory, Slots& slots, CUstream stream,
                         std::span<const ChunkWork> batch) {
  const std::uint64_t views = PlanViews(batch);
  SEGUE_RETURN_IF_ERROR(Allocate(memory, views + PlanSparse(batch)));
  Uploader uploader(memory.driver(), slots, memory_.address(), stream);
  SEGUE_RETURN_IF_ERROR(UploadViews(uploader, batch));
  SEGUE_RETURN_IF_ERROR(UploadSparse(uploader, batch));
  return uploader.Finish();
}

Status LoadedBatch::LoadViews(const StagingMemory& memory, Slots& slots, CUstream stream,
                              std::span<const ChunkWork> batch) {
  SEGUE_RETURN_IF_ERROR(Allocate(memory, PlanViews(batch)));
  Uploader uploader(memory.driver(), slots, memory_.address(), stream);
  SEGUE_RETURN_IF_ERROR(UploadViews(uploader, batch));
  return uploader.Finish();
}

std::uint64_t LoadedBatch::SizeOf(std::span<const ChunkWork> batch) {
  LoadedBatch planned;
  return planned.PlanViews(batch) + planned.PlanSparse(batch);
}

std::uint64_t LoadedBatch::SizeOfViews(std::span<const ChunkWork> batch) {
  return LoadedBatch().PlanViews(batch);
}

void LoadedBatch::Forget() {
  views_.clear();
  sparse_.clear();
  dense_.clear();
  sparse_rows_ = 0;
}

Status LoadedBatch::Allocate(const StagingMemory& memory, std::uint64_t size) {
  if (memory_.size >= size) return {};
  memory_ = {};  // Not both at a time.
  SEGUE_ASSIGN_OR_RETURN(memory_, memory.Device(size));
  return {};
}

// Room for what goes to the device, paddings included.
std::uint64_t LoadedBatch::PlanViews(std::span<const ChunkWork> batch) {
  views_.clear();
  for (const ChunkWork& work : batch) {
    if (work.view != nullptr) views_.emplace(work.view, 0);
  }
  return views_.size() * (sizeof(KernelView) + kRowAlignment);
}

std::uint64_t LoadedBatch::PlanSparse(std::span<const ChunkWork> batch) {
  sparse_.clear();
  dense_.clear();
  std::uint64_t size = kRowAlignment;
  for (std::size_t i = 0; i < batch.size(); ++i) {
    const bool is_sparse = batch[i].encoding == DeviceEncoding::kSparse;
    (is_sparse ? sparse_ : dense_).push_back(i);
    if (is_sparse) size += StreamRoom(batch[i].sparse) + sizeof(SparseRow);
  }
  return size;
}

Status LoadedBatch::UploadViews(Uploader& uploader, std::span<const ChunkWork> batch) {
  for (const ChunkWork& work : batch) {
    if (work.view == nullptr || views_[work.view] != 0) continue;
    const KernelView view = MakeKernelView(*work.view);
    SEGUE_ASSIGN_OR_RETURN(views_[work.view], uploader.Append(&view, sizeof(view), kRowAlignment));
  }
  return {};
}

Status LoadedBatch::UploadSparse(Uploader& uploader, std::span<const ChunkWork> batch) {
  sparse_rows_ = 0;
  if (sparse_.empty()) return {};
  std::vector<SparseRow> rows(sparse_.size());
  for (std::size_t i = 0; i < sparse_.size(); ++i) {
    const ChunkWork& work = batch[sparse_[i]];
    rows[i] = {};
    rows[i].place = Place(work);
    SEGUE_RETURN_IF_ERROR(LoadStreams(uploader, work.sparse, rows[i]));
  }
  SEGUE_ASSIGN_OR_RETURN(
      sparse_rows_, uploader.Append(rows.data(), rows.size() * sizeof(SparseRow), kRowAlignment));
  return {};
}

ChunkPlaceRow LoadedBatch::Place(const ChunkWork& work) const {
  ChunkPlaceRow place = {};
  place.live = work.live;
  if (work.view != nullptr) {
    place.view = reinterpret_cast<const KernelView*>(views_.at(work.view));
  }
  place.first_element = work.first_element;
  place.size = work.size;
  for (unsigned lane = 0; lane < 2; ++lane) {
    place.tensor_key[lane] = Mix64(work.key.tensor << 1 | lane);
  }
  place.first_block = work.key.first_block;
  place.width = work.width;
  return place;
}

}  // namespace segue::cuda
