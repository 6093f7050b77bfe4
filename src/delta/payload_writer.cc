// SPDX-License-Identifier: Apache-2.0
//
// Payload writer. Which streams are compressed, and how, was decided by measurement
// (docs/performance.md): low bits have no redundancy and are stored, high bits and value planes are
// symbols without repeats, dense data is general.
#include "delta/payload_writer.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace segue {
namespace {

ChunkRow MakeRow(std::uint64_t chunk, const RowSums& sums, Encoding encoding) {
  ChunkRow row;
  row.chunk = chunk;
  row.encoding = encoding;
  row.change_count = sums.change_count;
  row.before = sums.before;
  row.after = sums.after;
  return row;
}

bool IsConstant(ByteSpan plane) {
  return std::all_of(plane.begin(), plane.end(), [&](std::byte b) { return b == plane.front(); });
}

}  // namespace

void GroupBuilder::AddPlaneStreams(ChunkRow& row, unsigned width, std::span<const std::byte> split,
                                   std::size_t count) {
  for (unsigned p = 0; p < width; ++p) {
    const ByteSpan plane = split.subspan(p * count, count);
    if (IsConstant(plane)) {
      row.constants |= std::to_integer<std::uint64_t>(plane.front()) << (8 * p);
      continue;
    }
    row.plane_mask = static_cast<std::uint8_t>(row.plane_mask | 1u << p);
    AppendBytes(streams_[kStreamPlane0 + p], plane);
  }
}

void GroupBuilder::AddSparse(std::uint64_t chunk, const ChunkPlace& place, const RowSums& sums,
                             std::span<const std::uint32_t> positions, const std::byte* values) {
  SEGUE_CHECK(positions.size() == sums.change_count);
  ChunkRow row = MakeRow(chunk, sums, Encoding::kSparse);
  row.touched = sums.touched;
  const auto element_count = static_cast<std::uint32_t>(place.size / place.width);
  row.low_bits = static_cast<std::uint8_t>(ChooseLowBits(sums.change_count, element_count));
  const SparseShape shape = RowShape(row, place);
  ByteVector& low = streams_[kStreamLow];
  ByteVector& high = streams_[kStreamHigh];
  low.resize(low.size() + shape.LowSize());
  high.resize(high.size() + shape.HighSize());
  EncodePositions(positions, shape, MutableByteSpan(low).last(shape.LowSize()),
                  MutableByteSpan(high).last(shape.HighSize()));
  const std::size_t count = positions.size();
  split_.resize(count * place.width);
  std::byte* planes[8];
  for (unsigned p = 0; p < place.width; ++p) planes[p] = split_.data() + p * count;
  host::ActiveKernels().split_planes(values, count, place.width, planes);
  AddPlaneStreams(row, place.width, split_, count);
  rows_.push_back(row);
}

void GroupBuilder::AddSparseStreams(std::uint64_t chunk, const RowSums& sums,
                                    const host::SparseChunk& streams) {
  SEGUE_CHECK(streams.change_count == sums.change_count);
  ChunkRow row = MakeRow(chunk, sums, Encoding::kSparse);
  row.touched = sums.touched;
  row.low_bits = static_cast<std::uint8_t>(streams.low_bits);
  row.constants = streams.constants;
  const SparseShape shape = {streams.change_count, streams.element_count, streams.low_bits};
  AppendBytes(streams_[kStreamLow], ByteSpan(streams.low, shape.LowSize()));
  AppendBytes(streams_[kStreamHigh], ByteSpan(streams.high, shape.HighSize()));
  for (unsigned p = 0; p < streams.width; ++p) {
    if (streams.plane[p] == nullptr) continue;
    row.plane_mask = static_cast<std::uint8_t>(row.plane_mask | 1u << p);
    AppendBytes(streams_[kStreamPlane0 + p], ByteSpan(streams.plane[p], streams.change_count));
  }
  rows_.push_back(row);
}

void GroupBuilder::AddPlanes(std::uint64_t chunk, const ChunkPlace& place, const RowSums& sums,
                             ByteSpan mask) {
  ChunkRow row = MakeRow(chunk, sums, Encoding::kPlanes);
  const std::size_t count = place.size / place.width;
  split_.resize(place.size);
  std::byte* planes[8];
  for (unsigned p = 0; p < place.width; ++p) planes[p] = split_.data() + p * count;
  host::ActiveKernels().split_planes(mask.data(), count, place.width, planes);
  AddPlaneStreams(row, place.width, split_, count);
  has_planes_ = true;
  rows_.push_back(row);
}

void GroupBuilder::AddDense(std::uint64_t chunk, const ChunkPlace& place, const RowSums& sums,
                            Encoding encoding, ByteSpan data) {
  ChunkRow row = MakeRow(chunk, sums, encoding);
  row.dense_size = static_cast<std::uint32_t>(data.size());
  row.inner_size = static_cast<std::uint32_t>(place.size);
  AppendBytes(streams_[kStreamDense], data);
  zstd_inside_ |= encoding == Encoding::kZstd;
  rows_.push_back(row);
}

void GroupBuilder::AddRow(const ChunkRow& row, std::span<const ByteSpan, kStreamCount> parts) {
  for (unsigned s = 0; s < kStreamCount; ++s) AppendBytes(streams_[s], parts[s]);
  has_planes_ |= row.encoding == Encoding::kPlanes;
  zstd_inside_ |= row.encoding == Encoding::kZstd;
  rows_.push_back(row);
}

std::uint64_t GroupBuilder::inner_size() const {
  std::uint64_t size = 0;
  for (const ByteVector& stream : streams_) size += stream.size();
  return size;
}

Result<ByteSpan> GroupBuilder::Compress(unsigned stream, ByteSpan inner) {
  const std::size_t bound = ZstdBound(inner.size());
  compressed_.resize(std::max(compressed_.size(), 2 * bound));
  const bool general = stream == kStreamDense || (has_planes_ && stream != kStreamHigh);
  const MutableByteSpan first = MutableByteSpan(compressed_).first(bound);
  SEGUE_ASSIGN_OR_RETURN(
      const std::size_t size,
      zstd_.Compress(inner, first, general ? ZstdContent::kGeneral : ZstdContent::kEntropy));
  // Below two bits a symbol (high bytes of small steps) one symbol rules, and a Huffman code, which
  // takes one bit at least, is far from the entropy.
  if (general || size * 4 >= inner.size()) return ByteSpan(first).first(size);
  const MutableByteSpan second = MutableByteSpan(compressed_).subspan(bound, bound);
  SEGUE_ASSIGN_OR_RETURN(const std::size_t runs_size,
                         zstd_.Compress(inner, second, ZstdContent::kRuns));
  return runs_size < size ? ByteSpan(second).first(runs_size) : ByteSpan(first).first(size);
}

Status GroupBuilder::AddFrame(unsigned stream, EncodedGroup& group) {
  const ByteVector& inner = streams_[stream];
  Frame frame;
  frame.inner_size = static_cast<std::uint32_t>(inner.size());
  frame.outer_size = frame.inner_size;
  ByteSpan outer = inner;
  if (stream != kStreamLow && !(stream == kStreamDense && zstd_inside_)) {
    SEGUE_ASSIGN_OR_RETURN(const ByteSpan compressed, Compress(stream, inner));
    if (compressed.size() < inner.size()) {
      frame.outer = Outer::kZstd;
      frame.outer_size = static_cast<std::uint32_t>(compressed.size());
      outer = compressed;
    }
  }
  group.frames.push_back(frame);
  group.stream_mask = static_cast<std::uint16_t>(group.stream_mask | 1u << stream);
  AppendBytes(group.bytes, outer);
  return {};
}

Result<EncodedGroup> GroupBuilder::Finish() {
  SEGUE_CHECK(!rows_.empty());
  EncodedGroup group;
  for (unsigned s = 0; s < kStreamCount; ++s) {
    SEGUE_CHECK(streams_[s].size() <= kFrameInnerSizeMax);
    if (!streams_[s].empty()) SEGUE_RETURN_IF_ERROR(AddFrame(s, group));
    streams_[s].clear();
  }
  group.rows = std::exchange(rows_, {});
  has_planes_ = false;
  zstd_inside_ = false;
  return group;
}

void GroupBuilder::Clear() {
  for (ByteVector& stream : streams_) stream.clear();
  rows_.clear();
  has_planes_ = false;
  zstd_inside_ = false;
}

Status PayloadWriter::Emit(ByteSpan bytes) {
  hasher_.Add(bytes);
  offset_ += bytes.size();
  return sink_(bytes);
}

Status PayloadWriter::Append(EncodedGroup group) {
  if (offset_ == 0) {
    ByteVector prelude;
    AppendBytes(prelude, AsBytes(kPayloadMagic));
    AppendLittle<std::uint32_t>(prelude, 1);
    AppendLittle<std::uint32_t>(prelude, 0);
    SEGUE_RETURN_IF_ERROR(Emit(prelude));
  }
  if (group.rows.empty()) return {};
  SEGUE_CHECK(table_.rows.empty() || table_.rows.back().chunk < group.rows.front().chunk);
  table_.groups.push_back({static_cast<std::uint32_t>(group.rows.size()), group.stream_mask});
  table_.frames.insert(table_.frames.end(), group.frames.begin(), group.frames.end());
  table_.rows.insert(table_.rows.end(), group.rows.begin(), group.rows.end());
  return Emit(group.bytes);
}

Result<PayloadSummary> PayloadWriter::Finish() {
  SEGUE_RETURN_IF_ERROR(Append({}));
  PayloadSummary summary;
  for (const ChunkRow& row : table_.rows) {
    summary.changed_elements += row.change_count;
    summary.difference += row.after - row.before;
  }
  const ByteVector inner = table_.Serialize();
  ByteVector compressed(ZstdBound(inner.size()));
  ZstdCompressor zstd(3);
  SEGUE_ASSIGN_OR_RETURN(const std::size_t size, zstd.Compress(inner, compressed));
  const Trailer trailer = {
      offset_, size, inner.size(), table_.groups.size(), table_.frames.size(), table_.rows.size()};
  SEGUE_RETURN_IF_ERROR(Emit(ByteSpan(compressed).first(size)));
  SEGUE_RETURN_IF_ERROR(Emit(trailer.Serialize()));
  summary.size = offset_;
  summary.row_count = table_.rows.size();
  summary.sha256 = hasher_.Finish();
  return summary;
}

}  // namespace segue
