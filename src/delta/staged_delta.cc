// SPDX-License-Identifier: Apache-2.0
//
// Staging: frames are decoded in parallel, then every row gets pointers to its parts.
#include "delta/staged_delta.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <string>

#include "base/check.h"
#include "base/threads.h"
#include "codec/block_codec.h"

namespace segue {
namespace {

Status DecodeFrame(const Frame& frame, ByteSpan outer, std::byte* target, ZstdDecompressor& zstd) {
  if (frame.outer == Outer::kStored) {
    std::memcpy(target, outer.data(), outer.size());
  } else {
    SEGUE_RETURN_IF_ERROR(
        zstd.Decompress(outer, MutableByteSpan(target, frame.inner_size), ZstdChecksum::kRequired));
  }
  std::memset(target + frame.inner_size, 0, host::kStreamSlack);
  return {};
}

}  // namespace

Status StagedDelta::VerifyPayload(const PayloadEntry& entry, ByteSpan payload) {
  if (payload.size() != entry.size) {
    return Corruption("payload '" + entry.object + "' has " + std::to_string(payload.size()) +
                      " bytes, the manifest says " + std::to_string(entry.size));
  }
  const Sha256 found = HashSha256(payload);
  if (found == entry.sha256) return {};
  return Corruption("payload '" + entry.object + "' has SHA-256 " + found.ToHex() +
                    ", the manifest says " + entry.sha256.ToHex());
}

Result<StagedDelta> StagedDelta::Stage(const Plan& plan, std::span<const ByteSpan> payloads,
                                       unsigned threads) {
  StagedDelta staged;
  for (const ByteSpan payload : payloads) {
    SEGUE_RETURN_IF_ERROR(staged.StagePayload(plan, payload, threads));
  }
  SEGUE_RETURN_IF_ERROR(staged.SortRows());
  SEGUE_RETURN_IF_ERROR(staged.CheckRows(plan, threads));
  return staged;
}

Status StagedDelta::StagePayload(const Plan& plan, ByteSpan payload, unsigned threads) {
  SEGUE_ASSIGN_OR_RETURN(const PayloadTable table, ReadPayloadTable(payload, plan));
  std::vector<std::uint64_t> offsets;
  std::vector<const std::byte*> frames;
  const std::size_t first = frames_.size();
  std::uint64_t offset = kPreludeSize;
  for (const Frame& frame : table.frames) {
    offsets.push_back(offset);
    offset += frame.outer_size;
    staged_bytes_ += frame.inner_size;
    frames_.push_back(
        std::make_unique_for_overwrite<std::byte[]>(frame.inner_size + host::kStreamSlack));
    frames.push_back(frames_.back().get());
  }
  std::vector<ZstdDecompressor> zstd(ThreadCount(threads));
  const Status status =
      ParallelFor(table.frames.size(), threads, [&](std::size_t i, unsigned thread) {
        const ByteSpan outer = payload.subspan(offsets[i], table.frames[i].outer_size);
        return DecodeFrame(table.frames[i], outer, frames_[first + i].get(), zstd[thread]);
      });
  if (!status.ok()) return status.WithContext("payload frame");
  PlaceRows(plan, table, frames);
  return {};
}

void StagedDelta::AddGroup(const Plan& plan, std::span<const ChunkRow> rows,
                           std::span<const ByteVector, kStreamCount> streams) {
  PayloadTable table;
  Group group;
  group.row_count = static_cast<std::uint32_t>(rows.size());
  std::vector<const std::byte*> frames;
  for (unsigned s = 0; s < kStreamCount; ++s) {
    const std::size_t size = streams[s].size();
    if (size == 0) continue;
    group.stream_mask = static_cast<std::uint16_t>(group.stream_mask | 1u << s);
    frames_.push_back(std::make_unique_for_overwrite<std::byte[]>(size + host::kStreamSlack));
    std::memcpy(frames_.back().get(), streams[s].data(), size);
    std::memset(frames_.back().get() + size, 0, host::kStreamSlack);
    frames.push_back(frames_.back().get());
    staged_bytes_ += size;
  }
  table.groups.push_back(group);
  table.rows.assign(rows.begin(), rows.end());
  PlaceRows(plan, table, frames);
}

void StagedDelta::PlaceRows(const Plan& plan, const PayloadTable& table,
                            const std::vector<const std::byte*>& frames) {
  std::size_t row = 0;
  std::size_t frame = 0;
  for (const Group& group : table.groups) {
    PartPointers next{};
    for (unsigned s = 0; s < kStreamCount; ++s) {
      if ((group.stream_mask >> s & 1) != 0) next[s] = frames[frame++];
    }
    for (std::uint32_t i = 0; i < group.row_count; ++i, ++row) {
      const StreamSizes sizes = RowStreamSizes(table.rows[row], plan.Chunk(table.rows[row].chunk));
      parts_.push_back(next);
      for (unsigned s = 0; s < kStreamCount; ++s) {
        if (sizes[s] != 0) next[s] += sizes[s];
      }
    }
  }
  rows_.insert(rows_.end(), table.rows.begin(), table.rows.end());
}

Status StagedDelta::SortRows() {
  std::vector<std::size_t> order(rows_.size());
  std::iota(order.begin(), order.end(), 0);
  std::sort(order.begin(), order.end(),
            [&](std::size_t a, std::size_t b) { return rows_[a].chunk < rows_[b].chunk; });
  std::vector<ChunkRow> rows;
  std::vector<PartPointers> parts;
  rows.reserve(order.size());
  parts.reserve(order.size());
  for (const std::size_t i : order) {
    if (!rows.empty() && rows.back().chunk == rows_[i].chunk) {
      return Corruption("chunk " + std::to_string(rows_[i].chunk) + " is in two payloads");
    }
    rows.push_back(rows_[i]);
    parts.push_back(parts_[i]);
  }
  rows_ = std::move(rows);
  parts_ = std::move(parts);
  return {};
}

Status StagedDelta::CheckRows(const Plan& plan, unsigned threads) const {
  return ParallelFor(rows_.size(), threads, [&](std::size_t i, unsigned) -> Status {
    if (rows_[i].encoding != Encoding::kSparse) return {};
    const auto parts = Parts(plan, i);
    const Status status = CheckSparse(RowShape(rows_[i], plan.Chunk(rows_[i].chunk)),
                                      parts[kStreamLow], parts[kStreamHigh]);
    return status.WithContext("chunk " + std::to_string(rows_[i].chunk));
  });
}

std::array<ByteSpan, kStreamCount> StagedDelta::Parts(const Plan& plan, std::size_t row) const {
  const StreamSizes sizes = RowStreamSizes(rows_[row], plan.Chunk(rows_[row].chunk));
  std::array<ByteSpan, kStreamCount> parts;
  for (unsigned s = 0; s < kStreamCount; ++s) {
    if (sizes[s] != 0) parts[s] = ByteSpan(parts_[row][s], sizes[s]);
  }
  return parts;
}

ChunkWork StagedDelta::Work(const Plan& plan, std::size_t number, std::byte* live) const {
  const ChunkRow& row = rows_[number];
  const ChunkPlace place = plan.Chunk(row.chunk);
  const auto parts = Parts(plan, number);
  ChunkWork work;
  work.encoding = static_cast<DeviceEncoding>(row.encoding);
  work.width = place.width;
  work.key = {place.tensor, place.offset / kDigestBlockSize};
  work.sparse.low = parts_[number][kStreamLow];
  work.sparse.high = parts_[number][kStreamHigh];
  // Without low bits the decoder still loads (and masks away) a word: any readable one will do.
  if (work.sparse.low == nullptr) work.sparse.low = work.sparse.high;
  for (unsigned p = 0; p < place.width; ++p) work.sparse.plane[p] = parts[kStreamPlane0 + p].data();
  work.sparse.constants = row.constants;
  work.sparse.change_count = row.change_count;
  work.sparse.element_count = static_cast<std::uint32_t>(place.size / place.width);
  work.sparse.low_bits = row.low_bits;
  work.sparse.width = place.width;
  work.dense = parts[kStreamDense];
  work.live = live;
  work.size = place.size;
  work.touched = row.touched;
  work.before = row.before;
  work.after = row.after;
  return work;
}

std::vector<ChunkWork> StagedDelta::AllWork(const Plan& plan, const MutableModelView& live) const {
  std::vector<ChunkWork> work;
  work.reserve(rows_.size());
  for (std::size_t i = 0; i < rows_.size(); ++i) {
    work.push_back(Work(plan, i, live.Chunk(plan.Chunk(rows_[i].chunk))));
  }
  return work;
}

std::uint64_t StagedDelta::changed_elements() const {
  std::uint64_t count = 0;
  for (const ChunkRow& row : rows_) count += row.change_count;
  return count;
}

Digest StagedDelta::difference() const {
  Digest sum;
  for (const ChunkRow& row : rows_) sum += row.after - row.before;
  return sum;
}

}  // namespace segue
