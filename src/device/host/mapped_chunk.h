// SPDX-License-Identifier: Apache-2.0
//
// MappedChunk: preflight and apply of a chunk whose elements lie in a buffer as a view says. Sparse
// rows go element by element; all others gather the part into a chunk with zeros elsewhere, which
// adds nothing to a digest, run the kernels on it and put it back.
#pragma once

#include <cstdint>
#include <vector>

#include "base/bytes.h"
#include "device/device.h"
#include "device/view_map.h"
#include "segue/status.h"

namespace segue {

// The elements of the chunk that the view holds, from the buffer at `live`; zeros elsewhere.
// `chunk`: work.size bytes.
void GatherPart(const ViewMap& view, const std::byte* live, std::uint64_t first_element,
                std::uint64_t size, std::byte* chunk);
// The way back, for those elements alone.
void ScatterPart(const ViewMap& view, std::byte* live, std::uint64_t first_element,
                 std::uint64_t size, const std::byte* chunk);

// One thread's buffers.
class MappedChunk {
 public:
  // For chunks of up to `chunk_size_max` bytes; the calls below then allocate nothing.
  void Reserve(std::uint64_t chunk_size_max);

  // Fills work.part. Corruption for a row that does not decode.
  Status Preflight(const ChunkWork& work, MaskDecoder& decoder);
  // Corruption: something else came out than the preflight found.
  Status Apply(const ChunkWork& work, MaskDecoder& decoder);

 private:
  template <bool kWrite>
  Status WalkSparse(const ChunkWork& work, PartSums& sums);
  // The part of the row's mask (raw: of its bytes) into covered_.
  Status DecodePart(const ChunkWork& work, MaskDecoder& decoder);

  std::vector<std::uint32_t> positions_;
  ByteVector live_;
  ByteVector mask_;
  ByteVector covered_;
};

}  // namespace segue
