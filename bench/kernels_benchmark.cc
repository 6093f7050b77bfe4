// SPDX-License-Identifier: Apache-2.0
//
// Kernels on one thread over 128 MiB, which no cache holds: bytes of the model a second. "Bare" is
// the sparse apply without the digest, compiled from the same source with the same flags as
// "Proven"; the difference between the two is what the proof costs.
#include <benchmark/benchmark.h>

#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "base/bytes.h"
#include "base/random.h"
#include "bench/bandwidth.h"
#include "bench/memory.h"
#include "codec/sparse.h"
#include "device/host/kernels.h"

namespace segue::host::plain {

// What kernels-inl.h asks for; the sparse loops use none of it.
inline void BlockSums(const std::byte*, std::uint64_t sums[2]) { sums[0] = sums[1] = 0; }
template <unsigned W>
std::uint64_t DifferingElements(const std::byte*, const std::byte*) {
  return 0;
}
inline void XorBlock(const std::byte*, const std::byte*, std::byte*) {}

#include "device/host/kernels-inl.h"

// RunSparse without its sums.
template <unsigned W>
void ApplyBare(const SparseChunk& chunk, byte* live) {
  using T = typename ElementOf<W>::Type;
  PositionReader reader(chunk);
  Batch<W> batches[2];
  batches[0].count = reader.Read(batches[0].positions);
  for (uint32_t first = 0, side = 0; batches[side].count != 0; side ^= 1) {
    const Batch<W>& batch = batches[side];
    Batch<W>& next = batches[side ^ 1];
    next.count = reader.Read(next.positions);
    ReadValues<W>(chunk, first, batch.count, batches[side].values);
    for (uint32_t k = 0; k < batch.count; ++k) {
      Prefetch<W, true>(live, next.positions[k]);
      byte* place = live + size_t{batch.positions[k]} * W;
      Store<T>(place, static_cast<T>(Load<T>(place) ^ batch.values[k]));
    }
    first += batch.count;
  }
}

}  // namespace segue::host::plain

namespace segue {
namespace {

constexpr std::size_t kModelSize = 128ull << 20;
constexpr std::size_t kChunkSize = 1ull << 20;
constexpr std::size_t kChunkCount = kModelSize / kChunkSize;

// Base and target that differ in about `per_100000` of 100,000 elements, and the rows between them.
class Workload {
 public:
  Workload(unsigned width, std::uint64_t per_100000) : width_(width) {
    Random random(width);
    for (std::size_t i = 0; i < kModelSize; i += 8) StoreLittle(base() + i, random.Next());
    bench::CopyAll(base_.bytes(), target_.bytes(), 1);
    const std::size_t count = kModelSize / width * per_100000 / 100'000;
    for (std::size_t i = 0; i < count; ++i) {
      target()[random.Below(kModelSize / width) * width] ^= std::byte{1};
    }
    for (std::size_t i = 0; i < kChunkCount; ++i) rows_.push_back(MakeRow(i));
  }

  std::byte* base() const { return base_.bytes().data(); }
  std::byte* target() const { return target_.bytes().data(); }
  unsigned width() const { return width_; }

  host::SparseChunk Chunk(std::size_t index) const {
    const Row& row = rows_[index];
    host::SparseChunk chunk;
    chunk.low = row.low.data();
    chunk.high = row.high.data();
    chunk.constants = 1;
    chunk.change_count = row.shape.change_count;
    chunk.element_count = row.shape.element_count;
    chunk.low_bits = row.shape.low_bits;
    chunk.width = width_;
    return chunk;
  }

 private:
  struct Row {
    SparseShape shape;
    ByteVector low;
    ByteVector high;
  };

  Row MakeRow(std::size_t index) const {
    std::vector<std::uint32_t> positions(kChunkSize + kDigestBlockSize);
    ByteVector values(kChunkSize + kDigestBlockSize);
    const auto sums = host::ActiveKernels().diff_sparse(
        {}, base() + index * kChunkSize, target() + index * kChunkSize, kChunkSize, width_,
        static_cast<std::uint32_t>(kChunkSize / width_), positions.data(), values.data());
    Row row;
    row.shape = {sums.change_count, static_cast<std::uint32_t>(kChunkSize / width_), 0};
    row.shape.low_bits = ChooseLowBits(row.shape.change_count, row.shape.element_count);
    row.low.resize(row.shape.LowSize());
    row.high.resize(row.shape.HighSize());
    EncodePositions(std::span(positions).first(sums.change_count), row.shape, row.low, row.high);
    row.low.resize(row.low.size() + host::kStreamSlack);
    return row;
  }

  unsigned width_;
  bench::HugeBuffer base_ = bench::HugeBuffer::Make(kModelSize).value();
  bench::HugeBuffer target_ = bench::HugeBuffer::Make(kModelSize).value();
  std::vector<Row> rows_;
};

// Arguments of every benchmark: width, changes in 100,000 elements. Made once.
const Workload& WorkloadFor(const benchmark::State& state) {
  static std::map<std::pair<std::int64_t, std::int64_t>, std::unique_ptr<Workload>> workloads;
  auto& workload = workloads[{state.range(0), state.range(1)}];
  if (workload == nullptr) {
    workload = std::make_unique<Workload>(static_cast<unsigned>(state.range(0)), state.range(1));
  }
  return *workload;
}

// Calls job(workload, chunk number, byte offset) for every chunk. What a sparse pass touches would
// stay in the last cache until the next iteration; another buffer is read in between.
template <typename Job>
void RunChunks(benchmark::State& state, Job job) {
  const Workload& workload = WorkloadFor(state);
  for (auto _ : state) {
    state.PauseTiming();
    benchmark::DoNotOptimize(bench::ReadAll(ByteSpan(workload.target(), kModelSize), 1));
    state.ResumeTiming();
    for (std::size_t i = 0; i < kChunkCount; ++i) job(workload, i, i * kChunkSize);
  }
  state.SetBytesProcessed(state.iterations() * static_cast<std::int64_t>(kModelSize));
}

void BM_CompareBare(benchmark::State& state) {
  RunChunks(state, [](const Workload& workload, std::size_t, std::size_t offset) {
    benchmark::DoNotOptimize(bench::CompareAll(ByteSpan(workload.base() + offset, kChunkSize),
                                               ByteSpan(workload.target() + offset, kChunkSize),
                                               1));
  });
}

void BM_Digest(benchmark::State& state) {
  RunChunks(state, [](const Workload& workload, std::size_t, std::size_t offset) {
    benchmark::DoNotOptimize(
        host::ActiveKernels().digest({}, workload.base() + offset, kChunkSize));
  });
}

void BM_DiffSparse(benchmark::State& state) {
  std::vector<std::uint32_t> positions(kChunkSize + kDigestBlockSize);
  ByteVector values(kChunkSize + kDigestBlockSize);
  RunChunks(state, [&](const Workload& workload, std::size_t, std::size_t offset) {
    benchmark::DoNotOptimize(host::ActiveKernels().diff_sparse(
        {}, workload.base() + offset, workload.target() + offset, kChunkSize, workload.width(),
        static_cast<std::uint32_t>(kChunkSize), positions.data(), values.data()));
  });
}

void BM_SparsePreflight(benchmark::State& state) {
  RunChunks(state, [](const Workload& workload, std::size_t i, std::size_t offset) {
    benchmark::DoNotOptimize(
        host::ActiveKernels().sparse_preflight({}, workload.Chunk(i), workload.base() + offset));
  });
}

// An XOR undoes itself: every other iteration brings the base back.
void BM_SparseApply(benchmark::State& state) {
  RunChunks(state, [](const Workload& workload, std::size_t i, std::size_t offset) {
    benchmark::DoNotOptimize(
        host::ActiveKernels().sparse_apply({}, workload.Chunk(i), workload.base() + offset));
  });
}

void BM_SparseApplyProven(benchmark::State& state) {
  RunChunks(state, [](const Workload& workload, std::size_t i, std::size_t offset) {
    benchmark::DoNotOptimize(
        host::plain::SparseApply({}, workload.Chunk(i), workload.base() + offset));
  });
}

void BM_SparseApplyBare(benchmark::State& state) {
  RunChunks(state, [](const Workload& workload, std::size_t i, std::size_t offset) {
    const host::SparseChunk chunk = workload.Chunk(i);
    std::byte* live = workload.base() + offset;
    workload.width() == 1 ? host::plain::ApplyBare<1>(chunk, live)
                          : host::plain::ApplyBare<2>(chunk, live);
    benchmark::ClobberMemory();
  });
}

void Densities(benchmark::internal::Benchmark* benchmark) {
  benchmark->Args({1, 85})->Args({1, 170})->Args({2, 1000})->Args({2, 10000});
  benchmark->Unit(benchmark::kMillisecond);
}
BENCHMARK(BM_CompareBare)->Args({1, 170})->Unit(benchmark::kMillisecond);
BENCHMARK(BM_Digest)->Args({1, 170})->Unit(benchmark::kMillisecond);
BENCHMARK(BM_DiffSparse)->Apply(Densities);
BENCHMARK(BM_SparsePreflight)->Apply(Densities);
BENCHMARK(BM_SparseApply)->Apply(Densities);
BENCHMARK(BM_SparseApplyProven)->Apply(Densities);
BENCHMARK(BM_SparseApplyBare)->Apply(Densities);

}  // namespace
}  // namespace segue
