// SPDX-License-Identifier: Apache-2.0
//
// Codecs on one thread: Elias-Fano positions (bytes of the chunk that they describe), Zstd on the
// streams of a payload, and the block codecs on a mask of 1 MiB (bytes of the mask).
#include <benchmark/benchmark.h>

#include <vector>

#include "base/random.h"
#include "codec/block_codec.h"
#include "codec/sparse.h"

namespace segue {
namespace {

constexpr std::uint32_t kElementCount = 1u << 20;

std::vector<std::uint32_t> Positions(std::int64_t per_100000) {
  Random random(1);
  std::vector<std::uint32_t> positions;
  for (std::uint32_t i = 0; i < kElementCount; ++i) {
    if (random.Below(100'000) < static_cast<std::uint64_t>(per_100000)) positions.push_back(i);
  }
  return positions;
}

struct Encoded {
  SparseShape shape;
  ByteVector low;
  ByteVector high;

  explicit Encoded(std::span<const std::uint32_t> positions) {
    const auto count = static_cast<std::uint32_t>(positions.size());
    shape = {count, kElementCount, ChooseLowBits(count, kElementCount)};
    low.resize(shape.LowSize());
    high.resize(shape.HighSize());
    EncodePositions(positions, shape, low, high);
  }
};

void BM_EncodePositions(benchmark::State& state) {
  const std::vector<std::uint32_t> positions = Positions(state.range(0));
  Encoded encoded(positions);
  for (auto _ : state) {
    EncodePositions(positions, encoded.shape, encoded.low, encoded.high);
    benchmark::ClobberMemory();
  }
  state.SetBytesProcessed(state.iterations() * std::int64_t{kElementCount});
}

void BM_DecodePositions(benchmark::State& state) {
  std::vector<std::uint32_t> positions = Positions(state.range(0));
  const Encoded encoded(positions);
  for (auto _ : state) {
    if (!DecodePositions(encoded.shape, encoded.low, encoded.high, positions).ok()) std::abort();
    benchmark::ClobberMemory();
  }
  state.SetBytesProcessed(state.iterations() * std::int64_t{kElementCount});
}

// Values as small steps leave them: 1 half of the time, 3 a quarter, 7 an eighth, ...
ByteVector StepValues(std::size_t count) {
  Random random(2);
  ByteVector values(count);
  for (std::byte& value : values) {
    const int length = std::countr_zero(random.Next() | 0x80) + 1;
    value = static_cast<std::byte>((1u << length) - 1);
  }
  return values;
}

// Argument: 0 the high bits of positions at 1 %, 1 a plane of values.
ByteVector Stream(std::int64_t kind) {
  return kind == 0 ? Encoded(Positions(1000)).high : StepValues(1 << 20);
}

void BM_ZstdStreamCompress(benchmark::State& state) {
  const ByteVector stream = Stream(state.range(0));
  ByteVector target(ZstdBound(stream.size()));
  ZstdCompressor zstd;
  std::size_t size = 0;
  for (auto _ : state) size = zstd.Compress(stream, target, ZstdContent::kEntropy).value();
  state.SetBytesProcessed(state.iterations() * static_cast<std::int64_t>(stream.size()));
  state.counters["share"] = static_cast<double>(size) / static_cast<double>(stream.size());
}

void BM_ZstdStreamDecompress(benchmark::State& state) {
  ByteVector stream = Stream(state.range(0));
  ByteVector frame(ZstdBound(stream.size()));
  frame.resize(ZstdCompressor().Compress(stream, frame, ZstdContent::kEntropy).value());
  ZstdDecompressor zstd;
  for (auto _ : state) {
    if (!zstd.Decompress(frame, stream, ZstdChecksum::kRequired).ok()) std::abort();
  }
  state.SetBytesProcessed(state.iterations() * static_cast<std::int64_t>(stream.size()));
}

ByteVector Mask(std::int64_t per_100000) {
  ByteVector mask(kElementCount);
  for (const std::uint32_t position : Positions(per_100000)) mask[position] = std::byte{1};
  return mask;
}

template <std::size_t (*kBound)(std::size_t), std::size_t (*kCompress)(ByteSpan, MutableByteSpan),
          Status (*kDecompress)(ByteSpan, MutableByteSpan)>
void BM_BlockDecompress(benchmark::State& state) {
  ByteVector mask = Mask(state.range(0));
  ByteVector block(kBound(mask.size()));
  block.resize(kCompress(mask, block));
  for (auto _ : state) {
    if (!kDecompress(block, mask).ok()) std::abort();
  }
  state.SetBytesProcessed(state.iterations() * static_cast<std::int64_t>(mask.size()));
}

BENCHMARK(BM_EncodePositions)->Arg(85)->Arg(1000)->Arg(10000);
BENCHMARK(BM_DecodePositions)->Arg(85)->Arg(1000)->Arg(10000);
BENCHMARK(BM_ZstdStreamCompress)->Arg(0)->Arg(1);
BENCHMARK(BM_ZstdStreamDecompress)->Arg(0)->Arg(1);
BENCHMARK(BM_BlockDecompress<SnappyBound, SnappyCompress, SnappyDecompress>)
    ->Name("BM_SnappyDecompressMask")
    ->Arg(85)
    ->Arg(1000);
BENCHMARK(BM_BlockDecompress<Lz4Bound, Lz4Compress, Lz4Decompress>)
    ->Name("BM_Lz4DecompressMask")
    ->Arg(85)
    ->Arg(1000);

}  // namespace
}  // namespace segue
