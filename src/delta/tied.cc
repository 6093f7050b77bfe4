// SPDX-License-Identifier: Apache-2.0
//
// Tied weights: the masks of both tensors, chunk by chunk, at the elements that the part holds.
#include "delta/tied.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <string>

#include "delta/applier.h"
#include "delta/changes.h"
#include "device/host/mapped_chunk.h"

namespace segue {
namespace {

std::optional<std::size_t> FindRow(const StagedDelta& staged, std::uint64_t chunk) {
  const auto rows = staged.rows();
  const auto found = std::lower_bound(
      rows.begin(), rows.end(), chunk,
      [](const ChunkRow& row, std::uint64_t number) { return row.chunk < number; });
  if (found == rows.end() || found->chunk != chunk) return std::nullopt;
  return static_cast<std::size_t>(found - rows.begin());
}

// Compares the changes of two tensors in the same live bytes.
class TiedPair {
 public:
  TiedPair(const Plan& plan, const StagedDelta& staged, const LiveMap::Part& part)
      : plan_(plan),
        staged_(staged),
        part_(part),
        reader_(plan.chunk_size()),
        live_(plan.chunk_size()) {}

  Status Check() {
    const PlanTensor& tensor = plan_.tensors()[part_.tensor];
    const PlanTensor& other = plan_.tensors()[part_.tied_to->tensor];
    for (std::uint64_t i = 0; i < tensor.chunk_count; ++i) {
      SEGUE_RETURN_IF_ERROR(ReadMask(tensor.first_chunk + i, mask_));
      SEGUE_RETURN_IF_ERROR(ReadMask(other.first_chunk + i, other_mask_));
      if (mask_ == other_mask_) continue;
      return InvalidArgument("tensors '" + tensor.spec.name + "' and '" + other.spec.name +
                             "' are the same bytes here, but the delta changes them differently (" +
                             DescribeChunk(plan_, tensor.first_chunk + i) + ")");
    }
    return {};
  }

 private:
  // Empty where nothing changes that the part holds.
  Status ReadMask(std::uint64_t chunk, ByteVector& mask) {
    mask.clear();
    const auto row = FindRow(staged_, chunk);
    if (!row) return {};
    const ChunkPlace place = plan_.Chunk(chunk);
    std::byte* bytes = part_.Contiguous(place);
    if (bytes == nullptr) {
      bytes = live_.data();
      GatherPart(*part_.map, part_.data, place.offset / place.width, place.size, bytes);
    }
    const ChunkWork work = staged_.Work(plan_, *row, bytes);
    if (work.encoding == DeviceEncoding::kRaw) {
      mask.resize(place.size);
      host::ActiveKernels().xor_bytes(bytes, work.dense.data(), mask.data(), place.size);
    } else {
      SEGUE_RETURN_IF_ERROR(reader_.ReadMask(work));
      mask.assign(reader_.mask().begin(),
                  reader_.mask().begin() + static_cast<std::ptrdiff_t>(place.size));
    }
    KeepHeld(place, mask);
    if (std::ranges::all_of(mask, [](std::byte byte) { return byte == std::byte{0}; })) {
      mask.clear();
    }
    return {};
  }

  // Zeros where the part does not hold the element.
  void KeepHeld(const ChunkPlace& place, ByteVector& mask) const {
    if (!part_.map) return;
    ByteVector held(mask.size());
    part_.map->ForEachRun(place.offset / place.width, (place.offset + place.size) / place.width,
                          [&](std::uint64_t element, std::uint64_t, std::uint64_t count) {
                            const std::uint64_t begin = element * place.width - place.offset;
                            std::memcpy(held.data() + begin, mask.data() + begin,
                                        count * place.width);
                          });
    mask = std::move(held);
  }

  const Plan& plan_;
  const StagedDelta& staged_;
  const LiveMap::Part& part_;
  ChangeReader reader_;
  ByteVector live_;
  ByteVector mask_;
  ByteVector other_mask_;
};

}  // namespace

Status CheckTied(const Plan& plan, const StagedDelta& staged, const LiveMap& live) {
  for (const LiveMap::Part& part : live.parts()) {
    if (part.tied_to == nullptr) continue;
    SEGUE_RETURN_IF_ERROR(TiedPair(plan, staged, part).Check());
  }
  return {};
}

}  // namespace segue
