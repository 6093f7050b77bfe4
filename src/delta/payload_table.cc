// SPDX-License-Identifier: Apache-2.0
//
// Payload table: columns to rows and back, and every check that docs/format.md demands of them.
#include "delta/payload_table.h"

#include <string>

#include "base/check.h"
#include "codec/block_codec.h"

namespace segue {
namespace {

constexpr std::uint64_t kGroupSize = 4 + 2;
constexpr std::uint64_t kFrameSize = 1 + 4 + 4;
constexpr std::uint64_t kRowSize = 4 + 1 + 1 + 1 + 8 + 4 + 4 + 4 + 8 + 32;

bool IsDense(Encoding encoding) {
  return encoding != Encoding::kSparse && encoding != Encoding::kPlanes;
}

Status RowFault(const ChunkRow& row, const std::string& reason) {
  return Corruption("payload row of chunk " + std::to_string(row.chunk) + ": " + reason);
}

// Constants may stand only where a plane of the element is not stored.
bool ConstantsAreCanonical(const ChunkRow& row, unsigned width) {
  for (unsigned p = 0; p < 8; ++p) {
    const bool may_be_set = p < width && (row.plane_mask >> p & 1) == 0;
    if (!may_be_set && (row.constants >> (8 * p) & 0xff) != 0) return false;
  }
  return true;
}

Status CheckPlanarRow(const ChunkRow& row, const ChunkPlace& place) {
  if (row.plane_mask >> place.width != 0) {
    return RowFault(row, "plane mask " + std::to_string(row.plane_mask) + " for elements of " +
                             std::to_string(place.width) + " bytes");
  }
  if (!ConstantsAreCanonical(row, place.width)) return RowFault(row, "constants of stored planes");
  if (row.dense_size != 0 || row.inner_size != 0) return RowFault(row, "dense sizes are not 0");
  if (row.encoding == Encoding::kSparse) {
    if (row.low_bits > kSparseLowBitsMax) {
      return RowFault(row, "low_bits is " + std::to_string(row.low_bits) + ", the limit is " +
                               std::to_string(kSparseLowBitsMax));
    }
    if (row.plane_mask == 0 && row.constants == 0) return RowFault(row, "every mask is 0");
  }
  return {};
}

Status CheckDenseRow(const ChunkRow& row, const ChunkPlace& place) {
  if (row.plane_mask != 0 || row.constants != 0) return RowFault(row, "planes of a dense encoding");
  if (row.inner_size != place.size) {
    return RowFault(row, "inner_size is " + std::to_string(row.inner_size) + ", the chunk has " +
                             std::to_string(place.size) + " bytes");
  }
  if (row.dense_size == 0) return RowFault(row, "dense_size is 0");
  if (row.encoding == Encoding::kRaw && row.dense_size != place.size) {
    return RowFault(row, "raw data of " + std::to_string(row.dense_size) + " bytes");
  }
  // No encoder needs more than raw; so staging is bounded by the changed chunks' size.
  if (row.dense_size > place.size) {
    return RowFault(row, "dense_size " + std::to_string(row.dense_size) + " is over the chunk's " +
                             std::to_string(place.size));
  }
  return {};
}

template <typename T, typename Get>
void AppendColumn(ByteVector& target, const std::vector<ChunkRow>& rows, Get get) {
  for (const ChunkRow& row : rows) AppendLittle<T>(target, static_cast<T>(get(row)));
}

template <typename T, typename Set>
void ReadColumn(ByteReader& reader, std::vector<ChunkRow>& rows, Set set) {
  for (ChunkRow& row : rows) set(row, reader.Read<T>());
}

void ReadRowColumns(ByteReader& reader, std::vector<ChunkRow>& rows) {
  ReadColumn<std::uint32_t>(reader, rows, [](ChunkRow& row, auto v) { row.chunk = v; });
  ReadColumn<std::uint8_t>(reader, rows, [](ChunkRow& row, auto v) { row.encoding = Encoding{v}; });
  ReadColumn<std::uint8_t>(reader, rows, [](ChunkRow& row, auto v) { row.low_bits = v; });
  ReadColumn<std::uint8_t>(reader, rows, [](ChunkRow& row, auto v) { row.plane_mask = v; });
  ReadColumn<std::uint64_t>(reader, rows, [](ChunkRow& row, auto v) { row.constants = v; });
  ReadColumn<std::uint32_t>(reader, rows, [](ChunkRow& row, auto v) { row.change_count = v; });
  ReadColumn<std::uint32_t>(reader, rows, [](ChunkRow& row, auto v) { row.dense_size = v; });
  ReadColumn<std::uint32_t>(reader, rows, [](ChunkRow& row, auto v) { row.inner_size = v; });
  ReadColumn<std::uint64_t>(reader, rows, [](ChunkRow& row, auto v) { row.touched = v; });
  ReadColumn<Digest>(reader, rows, [](ChunkRow& row, auto v) { row.before = v; });
  ReadColumn<Digest>(reader, rows, [](ChunkRow& row, auto v) { row.after = v; });
}

// Gaps to chunk numbers, each below the plan's count.
Status ResolveGaps(std::vector<ChunkRow>& rows, const Plan& plan) {
  std::uint64_t next = 0;
  for (ChunkRow& row : rows) {
    row.chunk += next;
    if (row.chunk >= plan.chunk_count()) {
      return RowFault(row, "the plan has " + std::to_string(plan.chunk_count()) + " chunks");
    }
    next = row.chunk + 1;
  }
  return {};
}

// Every group's frames hold exactly what its rows contribute.
Status CheckGroups(const PayloadTable& table, std::uint64_t frames_size, const Plan& plan) {
  std::size_t row = 0;
  std::size_t frame = 0;
  std::uint64_t outer_total = 0;
  for (const Group& group : table.groups) {
    if (group.row_count == 0 || group.row_count > table.rows.size() - row) {
      return Corruption("payload group of " + std::to_string(group.row_count) + " rows where " +
                        std::to_string(table.rows.size() - row) + " are left");
    }
    StreamSizes sizes{};
    for (std::uint32_t i = 0; i < group.row_count; ++i, ++row) {
      const StreamSizes part = RowStreamSizes(table.rows[row], plan.Chunk(table.rows[row].chunk));
      for (unsigned s = 0; s < kStreamCount; ++s) sizes[s] += part[s];
    }
    for (unsigned s = 0; s < kStreamCount; ++s) {
      const bool present = (group.stream_mask >> s & 1) != 0;
      if (present != (sizes[s] != 0)) {
        return Corruption("payload group has a wrong stream mask");
      }
      if (!present) continue;
      if (frame == table.frames.size()) return Corruption("payload has too few frames");
      const Frame& entry = table.frames[frame++];
      if (entry.inner_size != sizes[s]) {
        return Corruption("payload frame holds " + std::to_string(entry.inner_size) +
                          " bytes, its rows need " + std::to_string(sizes[s]));
      }
      if (entry.outer == Outer::kStored && entry.outer_size != entry.inner_size) {
        return Corruption("stored payload frame has two sizes");
      }
      outer_total += entry.outer_size;
    }
    if (group.stream_mask >> kStreamCount != 0)
      return Corruption("payload group has unknown streams");
  }
  if (row != table.rows.size() || frame != table.frames.size() || outer_total != frames_size) {
    return Corruption("payload frames of " + std::to_string(outer_total) + " bytes, expected " +
                      std::to_string(frames_size) + ", or rows or frames are left over");
  }
  return {};
}

}  // namespace

Status CheckRow(const ChunkRow& row, const ChunkPlace& place) {
  const auto code = static_cast<std::uint8_t>(row.encoding);
  if (code < 1 || code > 6) {
    return Unsupported("payload row of chunk " + std::to_string(row.chunk) + ": encoding " +
                       std::to_string(code) + " is not known");
  }
  const std::uint64_t elements = place.size / place.width;
  if (row.change_count < 1 || row.change_count > elements) {
    return RowFault(row, std::to_string(row.change_count) + " changes among " +
                             std::to_string(elements) + " elements");
  }
  if (row.encoding != Encoding::kSparse && (row.low_bits != 0 || row.touched != 0)) {
    return RowFault(row, "sparse fields of another encoding");
  }
  return IsDense(row.encoding) ? CheckDenseRow(row, place) : CheckPlanarRow(row, place);
}

std::string_view EncodingName(Encoding encoding) {
  switch (encoding) {
    case Encoding::kSparse: return "sparse";
    case Encoding::kPlanes: return "planes";
    case Encoding::kSnappy: return "snappy";
    case Encoding::kLz4: return "lz4";
    case Encoding::kZstd: return "zstd";
    case Encoding::kRaw: return "raw";
  }
  return "unknown";
}

SparseShape RowShape(const ChunkRow& row, const ChunkPlace& place) {
  return {row.change_count, static_cast<std::uint32_t>(place.size / place.width), row.low_bits};
}

StreamSizes RowStreamSizes(const ChunkRow& row, const ChunkPlace& place) {
  StreamSizes sizes{};
  if (IsDense(row.encoding)) {
    sizes[kStreamDense] = row.dense_size;
    return sizes;
  }
  std::uint64_t plane_size = place.size / place.width;
  if (row.encoding == Encoding::kSparse) {
    const SparseShape shape = RowShape(row, place);
    sizes[kStreamLow] = shape.LowSize();
    sizes[kStreamHigh] = shape.HighSize();
    plane_size = row.change_count;
  }
  for (unsigned p = 0; p < place.width; ++p) {
    if ((row.plane_mask >> p & 1) != 0) sizes[kStreamPlane0 + p] = plane_size;
  }
  return sizes;
}

ByteVector PayloadTable::Serialize() const {
  ByteVector bytes;
  bytes.reserve(groups.size() * kGroupSize + frames.size() * kFrameSize + rows.size() * kRowSize);
  for (const Group& group : groups) AppendLittle(bytes, group.row_count);
  for (const Group& group : groups) AppendLittle(bytes, group.stream_mask);
  for (const Frame& frame : frames) AppendLittle(bytes, static_cast<std::uint8_t>(frame.outer));
  for (const Frame& frame : frames) AppendLittle(bytes, frame.outer_size);
  for (const Frame& frame : frames) AppendLittle(bytes, frame.inner_size);
  std::uint64_t next = 0;
  AppendColumn<std::uint32_t>(bytes, rows, [&](const ChunkRow& row) {
    SEGUE_CHECK(row.chunk >= next);
    const std::uint64_t gap = row.chunk - next;
    next = row.chunk + 1;
    return gap;
  });
  AppendColumn<std::uint8_t>(bytes, rows, [](const ChunkRow& row) { return row.encoding; });
  AppendColumn<std::uint8_t>(bytes, rows, [](const ChunkRow& row) { return row.low_bits; });
  AppendColumn<std::uint8_t>(bytes, rows, [](const ChunkRow& row) { return row.plane_mask; });
  AppendColumn<std::uint64_t>(bytes, rows, [](const ChunkRow& row) { return row.constants; });
  AppendColumn<std::uint32_t>(bytes, rows, [](const ChunkRow& row) { return row.change_count; });
  AppendColumn<std::uint32_t>(bytes, rows, [](const ChunkRow& row) { return row.dense_size; });
  AppendColumn<std::uint32_t>(bytes, rows, [](const ChunkRow& row) { return row.inner_size; });
  AppendColumn<std::uint64_t>(bytes, rows, [](const ChunkRow& row) { return row.touched; });
  AppendColumn<Digest>(bytes, rows, [](const ChunkRow& row) { return row.before; });
  AppendColumn<Digest>(bytes, rows, [](const ChunkRow& row) { return row.after; });
  return bytes;
}

Result<PayloadTable> PayloadTable::Parse(ByteSpan inner, std::uint64_t group_count,
                                         std::uint64_t frame_count, std::uint64_t row_count,
                                         std::uint64_t frames_size, const Plan& plan) {
  if (inner.size() != group_count * kGroupSize + frame_count * kFrameSize + row_count * kRowSize) {
    return Corruption("payload table has " + std::to_string(inner.size()) + " bytes");
  }
  PayloadTable table;
  table.groups.resize(group_count);
  table.frames.resize(frame_count);
  table.rows.resize(row_count);
  ByteReader reader(inner);
  for (Group& group : table.groups) group.row_count = reader.Read<std::uint32_t>();
  for (Group& group : table.groups) group.stream_mask = reader.Read<std::uint16_t>();
  for (Frame& frame : table.frames) {
    const auto outer = reader.Read<std::uint8_t>();
    if (outer > 1) return Unsupported("payload frame has outer codec " + std::to_string(outer));
    frame.outer = static_cast<Outer>(outer);
  }
  for (Frame& frame : table.frames) frame.outer_size = reader.Read<std::uint32_t>();
  for (Frame& frame : table.frames) {
    frame.inner_size = reader.Read<std::uint32_t>();
    if (frame.inner_size > kFrameInnerSizeMax) {
      return ResourceExhausted("payload frame of " + std::to_string(frame.inner_size) +
                               " inner bytes, the limit is " + std::to_string(kFrameInnerSizeMax));
    }
  }
  ReadRowColumns(reader, table.rows);
  SEGUE_CHECK(reader.ok() && reader.remaining() == 0);
  SEGUE_RETURN_IF_ERROR(ResolveGaps(table.rows, plan));
  for (const ChunkRow& row : table.rows) {
    SEGUE_RETURN_IF_ERROR(CheckRow(row, plan.Chunk(row.chunk)));
  }
  SEGUE_RETURN_IF_ERROR(CheckGroups(table, frames_size, plan));
  return table;
}

ByteVector Trailer::Serialize() const {
  ByteVector bytes;
  for (const std::uint64_t field : {table_offset, table_size, table_inner_size, group_count,
                                    frame_count, row_count, std::uint64_t{0}}) {
    AppendLittle(bytes, field);
  }
  AppendBytes(bytes, AsBytes(kTrailerMagic));
  SEGUE_CHECK(bytes.size() == kTrailerSize);
  return bytes;
}

Result<Trailer> Trailer::Parse(ByteSpan bytes, std::uint64_t payload_size, const Plan& plan) {
  SEGUE_CHECK(bytes.size() == kTrailerSize && payload_size >= kPreludeSize + kTrailerSize);
  ByteReader reader(bytes);
  Trailer trailer;
  for (std::uint64_t* field :
       {&trailer.table_offset, &trailer.table_size, &trailer.table_inner_size, &trailer.group_count,
        &trailer.frame_count, &trailer.row_count}) {
    *field = reader.Read<std::uint64_t>();
  }
  const auto reserved = reader.Read<std::uint64_t>();
  if (AsText(reader.ReadBytes(8)) != kTrailerMagic || reserved != 0) {
    return Corruption("payload does not end with a trailer");
  }
  const std::uint64_t room = payload_size - kTrailerSize;
  if (trailer.table_offset < kPreludeSize || trailer.table_offset > room ||
      trailer.table_size != room - trailer.table_offset) {
    return Corruption("payload table at offset " + std::to_string(trailer.table_offset) + " with " +
                      std::to_string(trailer.table_size) + " bytes does not end at the trailer");
  }
  if (trailer.row_count > plan.chunk_count() || trailer.group_count > trailer.row_count ||
      trailer.frame_count > kStreamCount * trailer.group_count) {
    return Corruption("payload claims " + std::to_string(trailer.row_count) + " rows, " +
                      std::to_string(trailer.group_count) + " groups and " +
                      std::to_string(trailer.frame_count) + " frames, the plan has " +
                      std::to_string(plan.chunk_count()) + " chunks");
  }
  if (trailer.table_inner_size != trailer.group_count * kGroupSize +
                                      trailer.frame_count * kFrameSize +
                                      trailer.row_count * kRowSize) {
    return Corruption("payload table claims " + std::to_string(trailer.table_inner_size) +
                      " bytes");
  }
  return trailer;
}

Result<PayloadTable> ReadTable(const Trailer& trailer, ByteSpan table, const Plan& plan) {
  ByteVector inner(trailer.table_inner_size);
  ZstdDecompressor zstd;
  const Status status = zstd.Decompress(table, inner, ZstdChecksum::kRequired);
  if (!status.ok()) return status.WithContext("payload table");
  return PayloadTable::Parse(inner, trailer.group_count, trailer.frame_count, trailer.row_count,
                             trailer.table_offset - kPreludeSize, plan);
}

Result<PayloadTable> ReadPayloadTable(ByteSpan payload, const Plan& plan) {
  if (payload.size() < kPreludeSize + kTrailerSize) {
    return Corruption("payload has " + std::to_string(payload.size()) + " bytes, at least " +
                      std::to_string(kPreludeSize + kTrailerSize) + " are needed");
  }
  ByteReader prelude(payload.first(kPreludeSize));
  if (AsText(prelude.ReadBytes(8)) != kPayloadMagic) return Corruption("payload has another magic");
  const auto version = prelude.Read<std::uint32_t>();
  if (version != 1) {
    return Unsupported("payload has format version " + std::to_string(version) + ", 1 is known");
  }
  if (prelude.Read<std::uint32_t>() != 0) return Corruption("payload has reserved bits set");
  SEGUE_ASSIGN_OR_RETURN(const Trailer trailer,
                         Trailer::Parse(payload.last(kTrailerSize), payload.size(), plan));
  return ReadTable(trailer, payload.subspan(trailer.table_offset, trailer.table_size), plan);
}

}  // namespace segue
