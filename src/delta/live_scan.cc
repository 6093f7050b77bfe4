// SPDX-License-Identifier: Apache-2.0
//
// Live scan: chunks by threads, or in batches by an accelerator.
#include "delta/live_scan.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "base/check.h"
#include "base/threads.h"
#include "device/accelerator.h"
#include "device/host/mapped_chunk.h"

namespace segue {
namespace {

// Chunks that an accelerator gets at a time.
constexpr std::uint64_t kBatchMax = 4096;

// The part of a chunk that a binding holds, as a device takes it.
ChunkWork WorkOn(const LiveMap::Part& part, const ChunkPlace& place) {
  ChunkWork work;
  work.encoding = DeviceEncoding::kRaw;
  work.width = place.width;
  work.key = {place.tensor, place.offset / kDigestBlockSize};
  work.size = place.size;
  work.first_element = FirstElement(place);
  work.live = part.Contiguous(place);
  if (work.live == nullptr) {
    work.live = part.data;
    work.view = part.map.get();
  }
  return work;
}

// Calls use(part, place) for every part of chunks [first, end) that holds any of it.
template <typename Use>
void ForEachPart(const Plan& plan, const LiveMap& live, std::uint64_t first, std::uint64_t end,
                 Use use) {
  for (std::uint64_t chunk = first; chunk < end; ++chunk) {
    const ChunkPlace place = plan.Chunk(chunk);
    for (const LiveMap::Part& part : live.PartsOf(place.tensor)) {
      if (part.SizeIn(place) != 0) use(part, place);
    }
  }
}

Status CopyToAccelerator(const Plan& plan, const ModelView& source, const LiveMap& live) {
  live.accelerator()->Reserve(plan.chunk_size());
  for (std::uint64_t first = 0; first < plan.chunk_count(); first += kBatchMax) {
    std::vector<ChunkWork> batch;
    ForEachPart(plan, live, first, std::min(first + kBatchMax, plan.chunk_count()),
                [&](const LiveMap::Part& part, const ChunkPlace& place) {
                  batch.push_back(WorkOn(part, place));
                  batch.back().dense = ByteSpan(source.Chunk(place), place.size);
                });
    SEGUE_RETURN_IF_ERROR(live.accelerator()->Write(batch));
  }
  return {};
}

}  // namespace

Result<std::uint64_t> ChunkScanner::Add(std::uint64_t first, std::uint64_t end) {
  if (live_.accelerator() != nullptr) return ReadOnAccelerator(first, end);
  std::uint64_t size = 0;
  ForEachPart(plan_, live_, first, end, [&](const LiveMap::Part& part, const ChunkPlace& place) {
    size += ReadPart(part, place);
  });
  return size;
}

std::uint64_t ChunkScanner::ReadPart(const LiveMap::Part& part, const ChunkPlace& place) {
  const std::byte* bytes = part.Contiguous(place);
  std::uint64_t size = place.size;
  if (bytes == nullptr) {
    size = part.SizeIn(place);
    buffer_.resize(plan_.chunk_size());
    GatherPart(*part.map, part.data, FirstElement(place), place.size, buffer_.data());
    bytes = buffer_.data();
  }
  const host::ChunkKey key = {place.tensor, place.offset / kDigestBlockSize};
  return Count(part, size, host::ActiveKernels().digest(key, bytes, place.size));
}

Result<std::uint64_t> ChunkScanner::ReadOnAccelerator(std::uint64_t first, std::uint64_t end) {
  std::vector<ChunkWork> batch;
  std::vector<const LiveMap::Part*> parts;
  std::vector<std::uint64_t> sizes;
  ForEachPart(plan_, live_, first, end, [&](const LiveMap::Part& part, const ChunkPlace& place) {
    batch.push_back(WorkOn(part, place));
    parts.push_back(&part);
    sizes.push_back(part.SizeIn(place));
  });
  std::vector<PartSums> sums(batch.size());
  for (std::size_t i = 0; i < batch.size(); ++i) batch[i].part = &sums[i];
  SEGUE_RETURN_IF_ERROR(live_.accelerator()->Scan(batch));
  std::uint64_t size = 0;
  for (std::size_t i = 0; i < batch.size(); ++i) size += Count(*parts[i], sizes[i], sums[i].before);
  return size;
}

std::uint64_t ChunkScanner::Count(const LiveMap::Part& part, std::uint64_t size,
                                  const Digest& digest) {
  digest_.all += digest;
  digest_.sums.Add(part.copy, part.copy_count, {digest, {}, size});
  return size;
}

Result<LiveDigest> DigestLive(const Plan& plan, const LiveMap& live, unsigned threads) {
  const bool here = live.accelerator() == nullptr;
  const std::uint64_t run = here ? 1 : kBatchMax;
  const std::uint64_t count = plan.chunk_count();
  std::vector<ChunkScanner> scanners(here ? ThreadCount(threads) : 1, ChunkScanner(plan, live));
  SEGUE_RETURN_IF_ERROR(ParallelFor(
      DivideUp(count, run), here ? threads : 1, [&](std::size_t i, unsigned thread) -> Status {
        return scanners[thread].Add(i * run, std::min(count, (i + 1) * run)).status();
      }));
  LiveDigest sum;
  for (const ChunkScanner& scanner : scanners) {
    sum.all += scanner.digest().all;
    sum.sums += scanner.digest().sums;
  }
  return sum;
}

Status CopyInto(const Plan& plan, const ModelView& source, const LiveMap& live, unsigned threads) {
  if (live.accelerator() != nullptr) return CopyToAccelerator(plan, source, live);
  return ParallelFor(plan.chunk_count(), threads, [&](std::size_t i, unsigned) -> Status {
    ForEachPart(plan, live, i, i + 1, [&](const LiveMap::Part& part, const ChunkPlace& place) {
      if (std::byte* const target = part.Contiguous(place)) {
        std::memcpy(target, source.Chunk(place), place.size);
      } else {
        ScatterPart(*part.map, part.data, FirstElement(place), place.size, source.Chunk(place));
      }
    });
    return {};
  });
}

}  // namespace segue
