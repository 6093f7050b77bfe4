// SPDX-License-Identifier: Apache-2.0
//
// Encoder: chunks to rows by cost, units of chunks in parallel, groups in order.
#include "delta/encoder.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <mutex>
#include <utility>

#include "base/check.h"
#include "base/threads.h"

namespace segue {
namespace {

// Chunks are taken in units of about this many model bytes: enough rows in a group for Zstd's
// tables to pay off, little enough that two units a thread fit in the memory promised.
constexpr std::uint64_t kUnitSize = 32ull << 20;
constexpr std::uint64_t kUnitChunksMax = 4096;

// Above this share of changed elements a chunk is sent as `planes`. Measured at width 2
// (docs/performance.md): from 10 % on planes are applied faster, but up to about 25 % sparse is
// smaller, and it stages a seventh.
constexpr std::uint64_t kSparseShareDivisor = 8;

std::uint32_t SparseCountMax(std::uint64_t element_count) {
  return static_cast<std::uint32_t>(element_count / kSparseShareDivisor);
}

// Whether sparse may cost more than the chunk's own bytes: whole 64-bit words weigh on tiny chunks.
bool SparseIsOverRaw(std::uint32_t change_count, const ChunkPlace& place) {
  if (change_count == 0) return false;
  const auto element_count = static_cast<std::uint32_t>(place.size / place.width);
  const SparseShape shape = {change_count, element_count,
                             ChooseLowBits(change_count, element_count)};
  const std::uint64_t values = std::uint64_t{change_count} * place.width;
  return shape.LowSize() + shape.HighSize() + values > place.size;
}

// Whether bytes look like noise: order-0 entropy of a sample, in bits a byte.
bool IsIncompressible(const std::byte* bytes, std::uint64_t size) {
  constexpr std::uint64_t kSampleCount = 16384;
  if (size < kSampleCount) return false;
  std::uint32_t histogram[256] = {};
  // A stride that is odd visits every byte plane.
  const std::uint64_t stride = (size / kSampleCount) | 1;
  std::uint64_t count = 0;
  for (std::uint64_t i = 0; i < size; i += stride, ++count)
    ++histogram[std::to_integer<int>(bytes[i])];
  double bits = 0;
  for (const std::uint32_t n : histogram) {
    if (n != 0) bits -= n * std::log2(static_cast<double>(n) / static_cast<double>(count));
  }
  return bits / static_cast<double>(count) > 7.9;
}

host::ChunkKey KeyOf(const ChunkPlace& place) {
  return {place.tensor, place.offset / kDigestBlockSize};
}

struct EncodedUnit {
  std::vector<EncodedGroup> groups;
  Digest before;
  Digest after;
  std::uint64_t model_bytes = 0;
};

// Scratch of one thread.
struct UnitEncoder {
  ChunkEncoder chunk;
  GroupBuilder group;

  Result<EncodedUnit> Encode(const Plan& plan, const ModelView& base, const ModelView& target,
                             ChunkRange range) {
    EncodedUnit unit;
    for (std::uint64_t number = range.begin; number < range.end; ++number) {
      const ChunkPlace place = plan.Chunk(number);
      if (!group.HasRoomFor(place.size)) {
        SEGUE_RETURN_IF_ERROR(CloseGroup(unit));
      }
      const auto sums = chunk.Encode(number, place, base.Chunk(place), target.Chunk(place), group);
      unit.before += sums.before;
      unit.after += sums.after;
      unit.model_bytes += place.size;
      if (!group.IsFull() && number + 1 < range.end) continue;
      SEGUE_RETURN_IF_ERROR(CloseGroup(unit));
    }
    return unit;
  }

  Status CloseGroup(EncodedUnit& unit) {
    if (group.empty()) return {};
    SEGUE_ASSIGN_OR_RETURN(EncodedGroup encoded, group.Finish());
    unit.groups.push_back(std::move(encoded));
    return {};
  }
};

}  // namespace

bool IsSparse(std::uint32_t change_count, const ChunkPlace& place) {
  return change_count <= SparseCountMax(place.size / place.width) &&
         !SparseIsOverRaw(change_count, place);
}

std::vector<ChunkRange> CutIntoUnits(const Plan& plan, const std::vector<ChunkRange>& ranges) {
  std::vector<ChunkRange> units;
  for (const ChunkRange& range : ranges) {
    ChunkRange unit{range.begin, range.begin};
    std::uint64_t size = 0;
    while (unit.end < range.end) {
      size += plan.Chunk(unit.end).size;
      ++unit.end;
      if (size < kUnitSize && unit.end - unit.begin < kUnitChunksMax) continue;
      units.push_back(unit);
      unit.begin = unit.end;
      size = 0;
    }
    if (unit.begin < unit.end) units.push_back(unit);
  }
  return units;
}

std::vector<ChunkRange> OwnerRanges(const Plan& plan, std::uint32_t owner,
                                    std::uint32_t owner_count) {
  SEGUE_CHECK(owner < owner_count);
  std::vector<ChunkRange> ranges;
  for (const PlanTensor& tensor : plan.tensors()) {
    if (tensor.chunk_count == 0) continue;
    if (MultiplyDivide(tensor.first_chunk, owner_count, plan.chunk_count()) != owner) continue;
    const ChunkRange range{tensor.first_chunk, tensor.first_chunk + tensor.chunk_count};
    if (!ranges.empty() && ranges.back().end == range.begin) {
      ranges.back().end = range.end;
    } else {
      ranges.push_back(range);
    }
  }
  return ranges;
}

ChunkEncoder::ChunkEncoder(Profile profile, std::uint64_t chunk_size_max)
    : profile_(profile),
      positions_(chunk_size_max + kDigestBlockSize),
      values_(chunk_size_max + kDigestBlockSize),
      mask_(chunk_size_max),
      compressed_(std::max(
          {ZstdBound(chunk_size_max), SnappyBound(chunk_size_max), Lz4Bound(chunk_size_max)})) {}

ChunkEncoder::Sums ChunkEncoder::Encode(std::uint64_t chunk, const ChunkPlace& place,
                                        const std::byte* base, const std::byte* target,
                                        GroupBuilder& group) {
  if (profile_ == Profile::kSparseZstd) {
    return EncodeSparseProfile(chunk, place, base, target, group);
  }
  const host::DiffSums sums = host::ActiveKernels().diff_dense(
      KeyOf(place), base, target, place.size, place.width, mask_.data());
  const RowSums row = {sums.before, sums.after, 0, sums.change_count};
  if (sums.change_count != 0 && !AddCompressedMask(chunk, place, row, group)) {
    group.AddDense(chunk, place, row, Encoding::kRaw, ByteSpan(target, place.size));
  }
  return {sums.before, sums.after};
}

ChunkEncoder::Sums ChunkEncoder::EncodeSparseProfile(std::uint64_t chunk, const ChunkPlace& place,
                                                     const std::byte* base, const std::byte* target,
                                                     GroupBuilder& group) {
  const host::Kernels& kernels = host::ActiveKernels();
  const std::uint32_t count_max = SparseCountMax(place.size / place.width);
  host::DiffSums sums = kernels.diff_sparse(KeyOf(place), base, target, place.size, place.width,
                                            count_max, positions_.data(), values_.data());
  if (!sums.overflow && !SparseIsOverRaw(sums.change_count, place)) {
    if (sums.change_count != 0) {
      group.AddSparse(chunk, place, {sums.before, sums.after, sums.touched, sums.change_count},
                      std::span(positions_).first(sums.change_count), values_.data());
    }
    return {sums.before, sums.after};
  }
  sums = kernels.diff_dense(KeyOf(place), base, target, place.size, place.width, mask_.data());
  AddDenseMask(chunk, place, {sums.before, sums.after, 0, sums.change_count}, target, group);
  return {sums.before, sums.after};
}

// `target` may be null where only the mask is known.
void ChunkEncoder::AddDenseMask(std::uint64_t chunk, const ChunkPlace& place, const RowSums& sums,
                                const std::byte* target, GroupBuilder& group) {
  if (target != nullptr && IsIncompressible(mask_.data(), place.size)) {
    group.AddDense(chunk, place, sums, Encoding::kRaw, ByteSpan(target, place.size));
  } else {
    group.AddPlanes(chunk, place, sums, ByteSpan(mask_).first(place.size));
  }
}

bool ChunkEncoder::AddCompressedMask(std::uint64_t chunk, const ChunkPlace& place,
                                     const RowSums& sums, GroupBuilder& group) {
  const ByteSpan mask = ByteSpan(mask_).first(place.size);
  std::size_t size = 0;
  Encoding encoding = Encoding::kSnappy;
  if (profile_ == Profile::kSnappyZstd) {
    size = SnappyCompress(mask, compressed_);
  } else if (profile_ == Profile::kLz4Zstd) {
    encoding = Encoding::kLz4;
    size = Lz4Compress(mask, compressed_);
  } else {
    encoding = Encoding::kZstd;
    Result<std::size_t> written = zstd_.Compress(mask, compressed_);
    if (!written.ok()) return false;
    size = *written;
  }
  if (size >= place.size) return false;
  group.AddDense(chunk, place, sums, encoding, ByteSpan(compressed_).first(size));
  return true;
}

void ChunkEncoder::EncodeMask(std::uint64_t chunk, const ChunkPlace& place, const std::byte* mask,
                              Digest before, Digest after, GroupBuilder& group) {
  zeros_.resize(std::max<std::size_t>(zeros_.size(), place.size));
  const auto count_max = static_cast<std::uint32_t>(place.size / place.width);
  const host::DiffSums found =
      host::ActiveKernels().diff_sparse(KeyOf(place), zeros_.data(), mask, place.size, place.width,
                                        count_max, positions_.data(), values_.data());
  if (found.change_count == 0) return;
  const RowSums sums = {before, after, 0, found.change_count};
  std::memcpy(mask_.data(), mask, place.size);
  if (profile_ != Profile::kSparseZstd && AddCompressedMask(chunk, place, sums, group)) return;
  if (IsSparse(found.change_count, place)) {
    group.AddSparse(chunk, place, sums, std::span(positions_).first(found.change_count),
                    values_.data());
  } else {
    AddDenseMask(chunk, place, sums, nullptr, group);
  }
}

Result<EncodeReport> EncodeDelta(const Plan& plan, const ModelView& base, const ModelView& target,
                                 const EncodeOptions& options, PayloadWriter::Sink sink) {
  const auto units = CutIntoUnits(plan, OwnerRanges(plan, options.owner, options.owner_count));
  const unsigned threads = ThreadCount(options.threads);
  std::vector<std::unique_ptr<UnitEncoder>> encoders(threads);
  PayloadWriter writer(std::move(sink));
  EncodeReport report;
  std::uint64_t done = 0;
  const auto produce = [&](std::size_t unit, unsigned thread) {
    if (encoders[thread] == nullptr) {
      encoders[thread] = std::make_unique<UnitEncoder>(
          UnitEncoder{ChunkEncoder(options.profile, plan.chunk_size()), GroupBuilder()});
    }
    return encoders[thread]->Encode(plan, base, target, units[unit]);
  };
  const auto consume = [&](std::size_t, EncodedUnit unit) -> Status {
    report.base_digest += unit.before;
    report.target_digest += unit.after;
    for (EncodedGroup& group : unit.groups) SEGUE_RETURN_IF_ERROR(writer.Append(std::move(group)));
    done += unit.model_bytes;
    if (options.progress) options.progress(done);
    return {};
  };
  SEGUE_RETURN_IF_ERROR(ParallelOrdered<EncodedUnit>(units.size(), threads, produce, consume));
  SEGUE_ASSIGN_OR_RETURN(report.payload, writer.Finish());
  return report;
}

Digest DigestModel(const Plan& plan, const ModelView& view, unsigned threads) {
  Digest total;
  std::mutex mutex;
  const auto units = CutIntoUnits(plan, {{0, plan.chunk_count()}});
  const Status status = ParallelFor(units.size(), threads, [&](std::size_t unit, unsigned) {
    Digest sum;
    for (std::uint64_t number = units[unit].begin; number < units[unit].end; ++number) {
      const ChunkPlace place = plan.Chunk(number);
      sum += host::ActiveKernels().digest(KeyOf(place), view.Chunk(place), place.size);
    }
    const std::lock_guard lock(mutex);
    total += sum;
    return Status();
  });
  SEGUE_CHECK(status.ok());
  return total;
}

}  // namespace segue
