// SPDX-License-Identifier: Apache-2.0
//
// Any bytes as a sparse row: the checked decoder (codec/sparse.h) and the preflight of every kernel
// table must agree on whether it is valid, and, where it is, on what it does; none may touch memory
// outside its spans. Half of the inputs are bit strings as they come, half are positions that were
// encoded and then have one bit flipped, since noise rarely counts up.
#include <algorithm>
#include <cstdint>
#include <vector>

#include "base/bytes.h"
#include "base/check.h"
#include "codec/sparse.h"
#include "device/host/kernels.h"

namespace segue::host {
namespace {

constexpr ChunkKey kKey = {5, 3};

// Takes numbers and bytes off the input; zeros when it has ended.
class Input {
 public:
  explicit Input(ByteSpan bytes) : bytes_(bytes) {}
  std::uint8_t Byte() {
    if (bytes_.empty()) return 0;
    const auto value = std::to_integer<std::uint8_t>(bytes_.front());
    bytes_ = bytes_.subspan(1);
    return value;
  }
  std::uint32_t Word() { return std::uint32_t{Byte()} | std::uint32_t{Byte()} << 8; }
  void Fill(MutableByteSpan target) {
    const std::size_t size = std::min(target.size(), bytes_.size());
    std::copy_n(bytes_.begin(), size, target.begin());
    bytes_ = bytes_.subspan(size);
  }

 private:
  ByteSpan bytes_;
};

struct Row {
  SparseShape shape;
  ByteVector low;  // With the slack that kernels may read.
  ByteVector high;
  std::vector<ByteVector> planes;
  SparseChunk chunk;

  ByteSpan low_bits() const { return ByteSpan(low).first(shape.LowSize()); }
};

void EncodeSomePositions(Input& input, Row& row) {
  std::vector<std::uint32_t> positions;
  for (std::uint32_t i = 0; i < row.shape.change_count; ++i) {
    positions.push_back(input.Word() % row.shape.element_count);
  }
  std::sort(positions.begin(), positions.end());
  positions.erase(std::unique(positions.begin(), positions.end()), positions.end());
  row.shape.change_count = static_cast<std::uint32_t>(positions.size());
  row.low.assign(row.shape.LowSize() + kStreamSlack, std::byte{0});
  row.high.assign(row.shape.HighSize(), std::byte{0});
  EncodePositions(positions, row.shape, MutableByteSpan(row.low).first(row.shape.LowSize()),
                  row.high);
  const std::uint32_t flip = input.Word();
  ByteVector& part = (flip & 1) != 0 ? row.low : row.high;
  const std::uint32_t byte = flip >> 4;
  if (byte < (&part == &row.low ? row.shape.LowSize() : part.size())) {
    part[byte] ^= static_cast<std::byte>(1u << (flip >> 1 & 7));
  }
}

Row MakeRow(Input& input) {
  const std::uint8_t mode = input.Byte();
  const unsigned width = 1u << (mode >> 1 & 3);
  Row row;
  row.shape.element_count = 1 + input.Word() % 5000;
  row.shape.change_count = 1 + input.Word() % std::min(row.shape.element_count, 600u);
  row.shape.low_bits = input.Byte() % (kSparseLowBitsMax + 1);
  if ((mode & 1) != 0) {
    EncodeSomePositions(input, row);
  } else {
    row.low.resize(row.shape.LowSize() + kStreamSlack);
    row.high.resize(row.shape.HighSize());
    input.Fill(MutableByteSpan(row.low).first(row.shape.LowSize()));
    input.Fill(row.high);
  }
  row.chunk = {row.low.data(),          row.high.data(),    {},   0, row.shape.change_count,
               row.shape.element_count, row.shape.low_bits, width};
  row.planes.resize(width);
  const std::uint8_t stored = input.Byte();
  for (unsigned p = 0; p < width; ++p) {
    row.planes[p].assign(row.shape.change_count, std::byte{input.Byte()});
    if ((stored >> p & 1) != 0) {
      input.Fill(row.planes[p]);
      row.chunk.plane[p] = row.planes[p].data();
    } else {
      row.chunk.constants |= std::to_integer<std::uint64_t>(row.planes[p][0]) << (8 * p);
    }
  }
  return row;
}

// The row by its checked decoder alone. False: not valid.
bool ApplyPlainly(const Row& row, ByteVector& live, std::uint64_t& touched) {
  std::vector<std::uint32_t> positions(row.shape.change_count);
  if (!DecodePositions(row.shape, row.low_bits(), row.high, positions).ok()) return false;
  ByteVector only(live.size());
  for (std::size_t i = 0; i < positions.size(); ++i) {
    bool differs = false;
    for (unsigned p = 0; p < row.chunk.width; ++p) {
      std::byte& byte = live[std::size_t{positions[i]} * row.chunk.width + p];
      only[std::size_t{positions[i]} * row.chunk.width + p] = byte;
      byte ^= row.planes[p][i];
      differs |= row.planes[p][i] != std::byte{0};
    }
    if (!differs) return false;
  }
  touched = DigestBytes(kKey.tensor, kKey.first_block * kDigestBlockSize, only).lane[0];
  return true;
}

Digest Whole(const ByteVector& live) {
  return DigestBytes(kKey.tensor, kKey.first_block * kDigestBlockSize, live);
}

void CheckRow(const Row& row) {
  ByteVector base(std::size_t{row.shape.element_count} * row.chunk.width);
  for (std::size_t i = 0; i < base.size(); ++i) base[i] = static_cast<std::byte>(Mix64(i));
  const bool counted = CheckSparse(row.shape, row.low_bits(), row.high).ok();
  ByteVector target = base;
  std::uint64_t touched = 0;
  const bool valid = ApplyPlainly(row, target, touched);
  SEGUE_CHECK(counted || !valid);
  if (!counted) return;  // Kernels are only given rows that passed CheckSparse.
  for (const Kernels* kernels : AvailableKernels()) {
    ByteVector live = base;
    const SparseSums sums = kernels->sparse_preflight(kKey, row.chunk, live.data());
    SEGUE_CHECK(live == base && sums.valid == valid);
    if (!valid) continue;
    SEGUE_CHECK(sums.touched == touched && sums.difference == Whole(target) - Whole(base));
    SEGUE_CHECK(kernels->sparse_apply(kKey, row.chunk, live.data()).difference == sums.difference);
    SEGUE_CHECK(live == target);
  }
}

}  // namespace
}  // namespace segue::host

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  segue::host::Input input(std::as_bytes(std::span(data, size)));
  segue::host::CheckRow(segue::host::MakeRow(input));
  return 0;
}
