// SPDX-License-Identifier: Apache-2.0
//
// Payload table: the rows, groups and frames of a payload object, shared by writer and reader.
// docs/format.md, section 5, is normative. A parsed table has been checked against the plan and
// against itself: sizes that follow from it are safe to allocate and to slice by.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "base/digest.h"
#include "checkpoint/plan.h"
#include "codec/sparse.h"
#include "segue/status.h"

namespace segue {

enum class Encoding : std::uint8_t {
  kSparse = 1,
  kPlanes = 2,
  kSnappy = 3,
  kLz4 = 4,
  kZstd = 5,
  kRaw = 6,
};
std::string_view EncodingName(Encoding encoding);

enum class Outer : std::uint8_t { kStored = 0, kZstd = 1 };

// Streams of a group: low, high, planes 0 to 7, dense.
inline constexpr unsigned kStreamLow = 0;
inline constexpr unsigned kStreamHigh = 1;
inline constexpr unsigned kStreamPlane0 = 2;
inline constexpr unsigned kStreamDense = 10;
inline constexpr unsigned kStreamCount = 11;

inline constexpr std::string_view kPayloadMagic = "SEGUEPAY";
inline constexpr std::string_view kTrailerMagic = "SEGUETRL";
inline constexpr std::uint64_t kPreludeSize = 16;
inline constexpr std::uint64_t kTrailerSize = 64;
inline constexpr std::uint64_t kFrameInnerSizeMax = 1ull << 26;
// What encoders keep to, unless one chunk alone has as much.
inline constexpr std::uint64_t kFrameInnerSizeAim = 16ull << 20;

struct ChunkRow {
  std::uint64_t chunk = 0;  // Chunk number in the plan.
  Encoding encoding = Encoding::kSparse;
  std::uint8_t low_bits = 0;
  std::uint8_t plane_mask = 0;
  std::uint64_t constants = 0;
  std::uint32_t change_count = 0;
  std::uint32_t dense_size = 0;
  std::uint32_t inner_size = 0;
  std::uint64_t touched = 0;
  Digest before;
  Digest after;

  bool operator==(const ChunkRow&) const = default;
};

struct Group {
  std::uint32_t row_count = 0;
  std::uint16_t stream_mask = 0;
};

struct Frame {
  Outer outer = Outer::kStored;
  std::uint32_t outer_size = 0;
  std::uint32_t inner_size = 0;
};

using StreamSizes = std::array<std::uint64_t, kStreamCount>;

// What the row contributes to each stream of its group.
StreamSizes RowStreamSizes(const ChunkRow& row, const ChunkPlace& place);
SparseShape RowShape(const ChunkRow& row, const ChunkPlace& place);

struct PayloadTable {
  std::vector<Group> groups;
  std::vector<Frame> frames;
  std::vector<ChunkRow> rows;

  // The columns, uncompressed.
  ByteVector Serialize() const;
  // Parses `inner`, whose counts come from the trailer, and checks it against `plan` and
  // `frames_size`, the room that the payload has for frames.
  static Result<PayloadTable> Parse(ByteSpan inner, std::uint64_t group_count,
                                    std::uint64_t frame_count, std::uint64_t row_count,
                                    std::uint64_t frames_size, const Plan& plan);
};

struct Trailer {
  std::uint64_t table_offset = 0;
  std::uint64_t table_size = 0;
  std::uint64_t table_inner_size = 0;
  std::uint64_t group_count = 0;
  std::uint64_t frame_count = 0;
  std::uint64_t row_count = 0;

  ByteVector Serialize() const;
  // Checks everything that follows from the payload's size and the plan.
  static Result<Trailer> Parse(ByteSpan bytes, std::uint64_t payload_size, const Plan& plan);
};

// Whether a reader takes the row: the rules that Parse() holds every row to.
Status CheckRow(const ChunkRow& row, const ChunkPlace& place);

// The table of a payload from its bytes alone, as the trailer says where they lie.
Result<PayloadTable> ReadTable(const Trailer& trailer, ByteSpan table, const Plan& plan);

// Reads prelude, trailer and table of a whole payload object.
Result<PayloadTable> ReadPayloadTable(ByteSpan payload, const Plan& plan);

}  // namespace segue
