// SPDX-License-Identifier: Apache-2.0
//
// Payload writer: rows into groups, groups into outer frames, frames into one object, streamed in
// order through a sink. What it writes depends on the rows alone, never on threads or time.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "base/bytes.h"
#include "base/hash.h"
#include "codec/block_codec.h"
#include "delta/payload_table.h"
#include "device/host/kernels.h"
#include "segue/status.h"

namespace segue {

// A group ready to be written: its rows, and its frames' bytes one after the other.
struct EncodedGroup {
  std::vector<ChunkRow> rows;
  std::uint16_t stream_mask = 0;
  std::vector<Frame> frames;
  ByteVector bytes;
};

// Digests and counts that describe one changed chunk.
struct RowSums {
  Digest before;
  Digest after;
  std::uint64_t touched = 0;
  std::uint32_t change_count = 0;
};

// Streams of this much are worth Zstd's tables and little enough to be decoded by one thread.
inline constexpr std::uint64_t kGroupInnerSize = 4ull << 20;

// Collects the rows of a group. Not thread-safe; reusable after Finish().
class GroupBuilder {
 public:
  // Changed elements: strictly ascending positions, `values` holds width bytes of mask for each.
  void AddSparse(std::uint64_t chunk, const ChunkPlace& place, const RowSums& sums,
                 std::span<const std::uint32_t> positions, const std::byte* values);
  // The same from streams that are made already, as the encoder would.
  void AddSparseStreams(std::uint64_t chunk, const RowSums& sums, const host::SparseChunk& streams);
  // The chunk's whole mask as byte planes.
  void AddPlanes(std::uint64_t chunk, const ChunkPlace& place, const RowSums& sums, ByteSpan mask);
  // `data`: the mask under snappy, lz4 or zstd, or the target bytes for raw.
  void AddDense(std::uint64_t chunk, const ChunkPlace& place, const RowSums& sums,
                Encoding encoding, ByteSpan data);
  // A row whose stream parts exist already (composition).
  void AddRow(const ChunkRow& row, std::span<const ByteSpan, kStreamCount> parts);

  bool empty() const { return rows_.empty(); }
  // The streams hold as much as makes a good frame: time to Finish().
  bool IsFull() const { return inner_size() >= kGroupInnerSize; }
  // Whether a chunk of `size` bytes fits for certain into what docs/format.md asks of encoders.
  bool HasRoomFor(std::uint64_t size) const { return inner_size() + size <= kFrameInnerSizeAim; }
  std::uint64_t inner_size() const;
  // Compresses the streams and hands the group over; the builder is empty again.
  Result<EncodedGroup> Finish();

  // What has been added, uncompressed: for who keeps rows in memory instead of a payload.
  std::span<const ChunkRow> rows() const { return rows_; }
  std::span<const ByteVector, kStreamCount> streams() const { return streams_; }
  // Empty again; buffers stay.
  void Clear();

 private:
  void AddPlaneStreams(ChunkRow& row, unsigned width, std::span<const std::byte> split,
                       std::size_t count);
  Status AddFrame(unsigned stream, EncodedGroup& group);
  // `inner` by Zstd into compressed_, as the smaller of what fits the stream.
  Result<ByteSpan> Compress(unsigned stream, ByteSpan inner);

  std::vector<ChunkRow> rows_;
  std::array<ByteVector, kStreamCount> streams_;
  bool has_planes_ = false;   // Some row has encoding planes.
  bool zstd_inside_ = false;  // Some row is compressed by zstd already.
  ByteVector split_;
  ByteVector compressed_;
  ZstdCompressor zstd_{1};
};

struct PayloadSummary {
  std::uint64_t size = 0;
  Sha256 sha256;
  std::uint64_t row_count = 0;
  std::uint64_t changed_elements = 0;
  Digest difference;  // Sum of after - before over the rows.
};

// Writes one payload object. The sink gets its bytes in order.
class PayloadWriter {
 public:
  using Sink = std::function<Status(ByteSpan)>;
  explicit PayloadWriter(Sink sink) : sink_(std::move(sink)) {}

  // Groups in ascending order of their chunks.
  Status Append(EncodedGroup group);
  // Table and trailer. Called once, after the last group.
  Result<PayloadSummary> Finish();

 private:
  Status Emit(ByteSpan bytes);

  Sink sink_;
  PayloadTable table_;
  Sha256Hasher hasher_;
  std::uint64_t offset_ = 0;
};

}  // namespace segue
