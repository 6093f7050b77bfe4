// SPDX-License-Identifier: Apache-2.0
//
// Changes: positions from sparse codes or dense masks.
#include "delta/changes.h"

#include <cstring>
#include <numeric>
#include <string>

#include "codec/sparse.h"

namespace segue {

ChangeReader::ChangeReader(std::uint64_t chunk_size_max)
    : positions_(chunk_size_max + kDigestBlockSize),
      values_(chunk_size_max + kDigestBlockSize),
      mask_(chunk_size_max),
      zeros_(chunk_size_max) {}

Status ChangeReader::ReadMask(const ChunkWork& work) {
  if (work.encoding != DeviceEncoding::kSparse) return decoder_.Decode(work, mask_.data());
  SEGUE_ASSIGN_OR_RETURN(const auto positions, ReadPositions(work));
  std::memset(mask_.data(), 0, work.size);
  for (std::size_t i = 0; i < positions.size(); ++i) {
    std::byte* element = mask_.data() + std::uint64_t{positions[i]} * work.width;
    for (unsigned p = 0; p < work.width; ++p) {
      const std::byte* plane = work.sparse.plane[p];
      element[p] =
          plane != nullptr ? plane[i] : static_cast<std::byte>(work.sparse.constants >> (8 * p));
    }
  }
  return {};
}

Result<std::span<const std::uint32_t>> ChangeReader::ReadPositions(const ChunkWork& work) {
  if (work.encoding == DeviceEncoding::kRaw) {
    const auto all = std::span(positions_).first(work.size / work.width);
    std::iota(all.begin(), all.end(), 0u);
    return std::span<const std::uint32_t>(all);
  }
  if (work.encoding == DeviceEncoding::kSparse) {
    const SparseShape shape = {work.sparse.change_count, work.sparse.element_count,
                               work.sparse.low_bits};
    const auto positions = std::span(positions_).first(shape.change_count);
    SEGUE_RETURN_IF_ERROR(DecodePositions(shape, ByteSpan(work.sparse.low, shape.LowSize()),
                                          ByteSpan(work.sparse.high, shape.HighSize()), positions));
    return std::span<const std::uint32_t>(positions);
  }
  SEGUE_RETURN_IF_ERROR(ReadMask(work));
  const auto count_max = static_cast<std::uint32_t>(work.size / work.width);
  const auto sums =
      host::ActiveKernels().diff_sparse(work.key, zeros_.data(), mask_.data(), work.size,
                                        work.width, count_max, positions_.data(), values_.data());
  return std::span<const std::uint32_t>(positions_).first(sums.change_count);
}

Status ChangeReader::CollectValues(const ChunkWork& work, ByteVector& target) {
  SEGUE_ASSIGN_OR_RETURN(const auto positions, ReadPositions(work));
  std::size_t offset = target.size();
  target.resize(offset + positions.size() * work.width);
  for (const std::uint32_t position : positions) {
    std::memcpy(target.data() + offset, work.live + std::uint64_t{position} * work.width,
                work.width);
    offset += work.width;
  }
  return {};
}

Status ChangeReader::RestoreValues(const ChunkWork& work, ByteSpan values) {
  SEGUE_ASSIGN_OR_RETURN(const auto positions, ReadPositions(work));
  if (values.size() != positions.size() * work.width) {
    return Corruption("journal holds " + std::to_string(values.size()) + " bytes for a chunk of " +
                      std::to_string(positions.size()) + " changes");
  }
  const std::byte* value = values.data();
  for (const std::uint32_t position : positions) {
    std::memcpy(work.live + std::uint64_t{position} * work.width, value, work.width);
    value += work.width;
  }
  return {};
}

}  // namespace segue
