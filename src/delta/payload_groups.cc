// SPDX-License-Identifier: Apache-2.0
//
// Cutting, and compressing early or in the end.
#include "delta/payload_groups.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "base/threads.h"

namespace segue {
namespace {

// Rows of one group of a payload; as in the encoder, tiny chunks must not make endless groups.
constexpr std::size_t kGroupRowsMax = 4096;

struct RowRange {
  std::size_t begin = 0;
  std::size_t end = 0;
};

std::uint64_t InnerSize(const Plan& plan, const ChunkRow& row) {
  std::uint64_t size = 0;
  for (const std::uint64_t part : RowStreamSizes(row, plan.Chunk(row.chunk))) size += part;
  return size;
}

std::vector<RowRange> CutIntoGroups(const Plan& plan, std::span<const ChunkRow> rows) {
  std::vector<RowRange> groups;
  GroupCutter cutter;
  for (std::size_t row = 0; row < rows.size(); ++row) {
    if (cutter.Begins(plan, rows[row])) groups.push_back({row, row});
    groups.back().end = row + 1;
  }
  return groups;
}

// Whether a group that was compressed early has the rows of `range`. Rows are only ever added, so
// first, last and count tell.
bool IsSame(const EncodedGroup& early, std::span<const ChunkRow> rows, const RowRange& range) {
  return early.rows.size() == range.end - range.begin &&
         early.rows.front().chunk == rows[range.begin].chunk &&
         early.rows.back().chunk == rows[range.end - 1].chunk;
}

}  // namespace

bool GroupCutter::Begins(const Plan& plan, const ChunkRow& row) {
  const std::uint64_t inner = InnerSize(plan, row);
  const bool is_full =
      size_ >= kGroupInnerSize || size_ + inner > kFrameInnerSizeAim || count_ == kGroupRowsMax;
  const bool begins = count_ == 0 || is_full;
  if (begins) {
    size_ = 0;
    count_ = 0;
  }
  size_ += inner;
  ++count_;
  return begins;
}

Status EarlyGroups::Add(const StagedDelta& staged, std::size_t first) {
  if (!is_in_order_) return {};
  const std::span<const ChunkRow> rows = staged.rows();
  std::vector<std::size_t> added(rows.size() - first);
  std::iota(added.begin(), added.end(), first);
  std::ranges::sort(added, {}, [&](std::size_t row) { return rows[row].chunk; });
  if (!added.empty() && rows[added.front()].chunk < next_chunk_) {
    groups_.clear();
    open_.clear();
    is_in_order_ = false;
    return {};
  }
  std::vector<std::vector<std::size_t>> complete;
  for (const std::size_t row : added) {
    if (cutter_.Begins(plan_, rows[row]) && !open_.empty()) {
      complete.push_back(std::exchange(open_, {}));
    }
    open_.push_back(row);
    next_chunk_ = rows[row].chunk + 1;
  }
  return Encode(staged, complete);
}

Status EarlyGroups::Encode(const StagedDelta& staged,
                           const std::vector<std::vector<std::size_t>>& groups) {
  std::vector<EncodedGroup> encoded(groups.size());
  SEGUE_RETURN_IF_ERROR(ParallelFor(groups.size(), static_cast<unsigned>(builders_.size()),
                                    [&](std::size_t group, unsigned thread) -> Status {
                                      GroupBuilder& builder = builders_[thread];
                                      builder.Clear();  // A group before may have failed.
                                      for (const std::size_t row : groups[group]) {
                                        builder.AddRow(staged.rows()[row],
                                                       staged.Parts(plan_, row));
                                      }
                                      SEGUE_ASSIGN_OR_RETURN(encoded[group], builder.Finish());
                                      return {};
                                    }));
  for (EncodedGroup& group : encoded) groups_[group.rows.front().chunk] = std::move(group);
  return {};
}

EncodedGroups EarlyGroups::Take() {
  cutter_ = {};
  open_.clear();
  next_chunk_ = 0;
  is_in_order_ = true;
  return std::exchange(groups_, {});
}

Result<PayloadSummary> WriteStagedDelta(const Plan& plan, const StagedDelta& staged,
                                        unsigned threads, PayloadWriter::Sink sink,
                                        EncodedGroups early) {
  const std::span<const ChunkRow> rows = staged.rows();
  const auto groups = CutIntoGroups(plan, rows);
  std::vector<GroupBuilder> builders(ThreadCount(threads));
  PayloadWriter writer(std::move(sink));
  const auto produce = [&](std::size_t group, unsigned thread) -> Result<EncodedGroup> {
    const auto found = early.find(rows[groups[group].begin].chunk);
    if (found != early.end() && IsSame(found->second, rows, groups[group])) {
      return std::move(found->second);
    }
    GroupBuilder& builder = builders[thread];
    for (std::size_t row = groups[group].begin; row < groups[group].end; ++row) {
      builder.AddRow(rows[row], staged.Parts(plan, row));
    }
    return builder.Finish();
  };
  SEGUE_RETURN_IF_ERROR(ParallelOrdered<EncodedGroup>(
      groups.size(), threads, produce,
      [&](std::size_t, EncodedGroup group) { return writer.Append(std::move(group)); }));
  return writer.Finish();
}

}  // namespace segue
