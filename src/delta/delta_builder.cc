// SPDX-License-Identifier: Apache-2.0
//
// Delta builder: units of chunks in parallel, rows put together in any order and sorted at the end.
#include "delta/delta_builder.h"

#include <algorithm>
#include <utility>

#include "base/threads.h"

namespace segue {
DeltaBuilder::DeltaBuilder(const Plan& plan, Profile profile, unsigned threads)
    : plan_(plan),
      profile_(profile),
      threads_(ThreadCount(threads)),
      scratch_(threads_),
      early_(plan, threads_) {}

DeltaBuilder::Scratch& DeltaBuilder::ScratchOf(unsigned thread) {
  if (scratch_[thread] == nullptr) {
    scratch_[thread] = std::make_unique<Scratch>(
        Scratch{ChunkEncoder(profile_, plan_.chunk_size()), GroupBuilder()});
  }
  return *scratch_[thread];
}

void DeltaBuilder::Keep(GroupBuilder& group) {
  if (group.empty()) return;
  {
    const std::lock_guard lock(mutex_);
    staged_.AddGroup(plan_, group.rows(), group.streams());
  }
  group.Clear();
}

ChunkEncoder::Sums DeltaBuilder::EncodeUnit(const TensorChange& change, ChunkRange unit,
                                            Scratch& scratch) {
  ChunkEncoder::Sums total;
  scratch.group.Clear();  // A unit before may have failed halfway.
  for (std::uint64_t number = unit.begin; number < unit.end; ++number) {
    const ChunkPlace place = plan_.Chunk(number);
    if (!scratch.group.HasRoomFor(place.size)) Keep(scratch.group);
    const auto sums = scratch.chunk.Encode(number, place, change.base + place.offset,
                                           change.target + place.offset, scratch.group);
    total.before += sums.before;
    total.after += sums.after;
    if (scratch.group.IsFull()) Keep(scratch.group);
  }
  Keep(scratch.group);
  return total;
}

Result<ChunkEncoder::Sums> DeltaBuilder::Add(std::span<const TensorChange> changes) {
  struct Unit {
    const TensorChange* change;
    ChunkRange chunks;
  };
  std::vector<Unit> units;
  for (const TensorChange& change : changes) {
    const PlanTensor& tensor = plan_.tensors()[change.tensor];
    const ChunkRange all{tensor.first_chunk, tensor.first_chunk + tensor.chunk_count};
    for (const ChunkRange& chunks : CutIntoUnits(plan_, {all})) units.push_back({&change, chunks});
  }
  ChunkEncoder::Sums total;
  std::mutex total_mutex;
  SEGUE_RETURN_IF_ERROR(
      ParallelFor(units.size(), threads_, [&](std::size_t unit, unsigned thread) -> Status {
        const auto sums = EncodeUnit(*units[unit].change, units[unit].chunks, ScratchOf(thread));
        const std::lock_guard lock(total_mutex);
        total.before += sums.before;
        total.after += sums.after;
        return {};
      }));
  return total;
}

Result<StagedDelta> DeltaBuilder::Take(EncodedGroups* early) {
  EncodedGroups groups = early_.Take();
  if (early != nullptr) *early = std::move(groups);
  StagedDelta staged = std::exchange(staged_, {});
  SEGUE_RETURN_IF_ERROR(staged.SortRows());
  return staged;
}

}  // namespace segue
