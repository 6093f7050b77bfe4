// SPDX-License-Identifier: Apache-2.0
//
// Delta builder, versions in the memory of a device: the device compares and makes `sparse` rows,
// threads of the processor take them in, encode every other chunk from its bytes, and compress the
// groups of the payload that are complete.
#include <algorithm>
#include <vector>

#include "base/threads.h"
#include "delta/delta_builder.h"

namespace segue {
namespace {

// Chunks that one thread takes at a time.
constexpr std::size_t kBatchChunks = 64;

}  // namespace

class DeltaBuilder::DeviceChanges final : public DiffConsumer {
 public:
  DeviceChanges(DeltaBuilder& builder, std::span<const TensorChange> changes, bool base_on_host);

  std::span<const DiffWork> work() const { return work_; }
  const ChunkEncoder::Sums& sums() const { return sums_; }

  DiffForm Choose(std::size_t index, const host::DiffSums& sums) override;
  Status Take(std::span<const DiffResult> results) override;

 private:
  Status TakeBatch(std::span<const DiffResult> results, Scratch& scratch);
  Status Encode(const DiffResult& result, Scratch& scratch);

  DeltaBuilder& builder_;
  std::vector<DiffWork> work_;
  std::vector<std::uint64_t> chunks_;  // Their numbers.
  ChunkEncoder::Sums sums_;
};

DeltaBuilder::DeviceChanges::DeviceChanges(DeltaBuilder& builder,
                                           std::span<const TensorChange> changes, bool base_on_host)
    : builder_(builder) {
  for (const TensorChange& change : changes) {
    const PlanTensor& tensor = builder.plan_.tensors()[change.tensor];
    for (std::uint64_t i = 0; i < tensor.chunk_count; ++i) {
      const ChunkPlace place = builder.plan_.Chunk(tensor.first_chunk + i);
      chunks_.push_back(tensor.first_chunk + i);
      work_.push_back({.base = change.base + place.offset,
                       .target = change.target + place.offset,
                       .size = place.size,
                       .width = place.width,
                       .key = {place.tensor, place.offset / kDigestBlockSize},
                       .base_on_host = base_on_host});
    }
  }
}

DiffForm DeltaBuilder::DeviceChanges::Choose(std::size_t index, const host::DiffSums& sums) {
  sums_.before += sums.before;
  sums_.after += sums.after;
  if (sums.change_count == 0) return DiffForm::kNothing;
  const bool is_sparse = builder_.profile_ == Profile::kSparseZstd &&
                         IsSparse(sums.change_count, builder_.plan_.Chunk(chunks_[index]));
  return is_sparse ? DiffForm::kSparse : DiffForm::kBytes;
}

Status DeltaBuilder::DeviceChanges::Take(std::span<const DiffResult> results) {
  const std::size_t batches = DivideUp(results.size(), kBatchChunks);
  const std::size_t first_row = builder_.staged_.rows().size();
  SEGUE_RETURN_IF_ERROR(
      ParallelFor(batches, builder_.threads_, [&](std::size_t batch, unsigned thread) {
        const std::size_t first = batch * kBatchChunks;
        return TakeBatch(results.subspan(first, std::min(kBatchChunks, results.size() - first)),
                         builder_.ScratchOf(thread));
      }));
  return builder_.early_.Add(builder_.staged_, first_row);
}

Status DeltaBuilder::DeviceChanges::TakeBatch(std::span<const DiffResult> results,
                                              Scratch& scratch) {
  scratch.group.Clear();  // A batch before may have failed halfway.
  for (const DiffResult& result : results) {
    const std::uint64_t size = work_[result.index].size;
    if (!scratch.group.HasRoomFor(size)) builder_.Keep(scratch.group);
    if (result.form == DiffForm::kSparse) {
      const host::DiffSums& sums = result.sums;
      scratch.group.AddSparseStreams(chunks_[result.index],
                                     {sums.before, sums.after, sums.touched, sums.change_count},
                                     result.sparse);
    } else {
      SEGUE_RETURN_IF_ERROR(Encode(result, scratch));
    }
    if (scratch.group.IsFull()) builder_.Keep(scratch.group);
  }
  builder_.Keep(scratch.group);
  return {};
}

// The device has summed up these bytes where they lay.
Status DeltaBuilder::DeviceChanges::Encode(const DiffResult& result, Scratch& scratch) {
  const std::uint64_t number = chunks_[result.index];
  const auto sums = scratch.chunk.Encode(number, builder_.plan_.Chunk(number), result.base,
                                         result.target, scratch.group);
  if (sums.before == result.sums.before && sums.after == result.sums.after) return {};
  return Internal(
      "the device sent other bytes than it had compared: a buffer changed while it was compared, "
      "or the device fails");
}

Result<ChunkEncoder::Sums> DeltaBuilder::AddOnDevice(std::span<const TensorChange> changes,
                                                     Differ& differ, bool base_on_host) {
  DeviceChanges consumer(*this, changes, base_on_host);
  SEGUE_RETURN_IF_ERROR(differ.Diff(consumer.work(), consumer));
  return consumer.sums();
}

}  // namespace segue
