// SPDX-License-Identifier: Apache-2.0
//
// Changes: a row of any encoding as explicit changed elements, and the base values that stand
// there. Composition merges them; the journal of an in-place apply keeps the base values, which,
// unlike an XOR, can be written back any number of times.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/bytes.h"
#include "device/device.h"
#include "segue/status.h"

namespace segue {

// Not thread-safe: holds buffers of a few chunks.
class ChangeReader {
 public:
  explicit ChangeReader(std::uint64_t chunk_size_max);

  // The chunk's mask for every encoding but raw, into mask(): work.size bytes.
  Status ReadMask(const ChunkWork& work);
  ByteSpan mask() const { return mask_; }

  // Positions of the changed elements, ascending; for raw every element.
  Result<std::span<const std::uint32_t>> ReadPositions(const ChunkWork& work);

  // Appends the live values at the changed elements to `target`, width bytes each.
  Status CollectValues(const ChunkWork& work, ByteVector& target);
  // Writes values that CollectValues gave back to the live bytes. `values` must have the right
  // size.
  Status RestoreValues(const ChunkWork& work, ByteSpan values);

 private:
  std::vector<std::uint32_t> positions_;
  ByteVector values_;
  ByteVector mask_;
  ByteVector zeros_;
  MaskDecoder decoder_;
};

}  // namespace segue
