// SPDX-License-Identifier: Apache-2.0
//
// Counting with one set of histograms a thread; what spans chunks (gaps) is joined afterwards.
#include "delta/statistics.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <utility>

#include "base/check.h"
#include "base/threads.h"
#include "device/host/kernels.h"

namespace segue {
namespace {

constexpr unsigned kWidths = 4;  // Of 1, 2, 4 and 8 bytes.
constexpr std::size_t kByteValues = 256;
constexpr std::size_t kHalfValues = 65536;

unsigned WidthIndex(unsigned width) { return static_cast<unsigned>(std::bit_width(width)) - 1; }

// Values of width 1 and 2 are counted whole, wider ones byte plane by byte plane.
std::size_t HistogramSize(unsigned width) { return width == 2 ? kHalfValues : kByteValues; }
std::size_t HistogramCount(unsigned width) { return width <= 2 ? 1 : width; }

// First and last change of a chunk.
struct ChunkEnds {
  std::uint32_t count = 0;
  std::uint32_t first = 0;
  std::uint32_t last = 0;
};

unsigned GapBucket(std::uint64_t gap) { return static_cast<unsigned>(std::bit_width(gap)) - 1; }

// Position of a sign-magnitude float in the order of values; both zeros are one.
int OrderOf(std::uint16_t bits) {
  const int magnitude = bits & 0x7fff;
  return (bits & 0x8000) != 0 ? -magnitude : magnitude;
}

// Counts of one thread. Not thread-safe.
class Counter {
 public:
  explicit Counter(std::uint64_t chunk_size)
      : positions_(chunk_size + kDigestBlockSize), masks_(chunk_size + kDigestBlockSize) {
    for (unsigned i = 0; i < kWidths; ++i) {
      values_[i].resize(HistogramSize(1u << i) * HistogramCount(1u << i));
    }
  }

  ChunkEnds Count(const ChunkPlace& place, bool is_float16, const std::byte* base,
                  const std::byte* target) {
    const auto count_max = static_cast<std::uint32_t>(place.size / place.width);
    const auto found = host::ActiveKernels().diff_sparse(
        {}, base, target, place.size, place.width, count_max, positions_.data(), masks_.data());
    const std::uint32_t count = found.change_count;
    if (count == 0) return {};
    CountPositions(count, place.width);
    CountValues(count, place.width);
    if (is_float16) CountOneUlp(base, count);
    return {count, positions_[0], positions_[count - 1]};
  }

  void AddTo(ChangeStatistics& total,
             std::array<std::vector<std::uint64_t>, kWidths>& values) const {
    total.one_ulp += one_ulp_;
    total.lines_touched += lines_touched_;
    for (std::size_t i = 0; i < gaps_.size(); ++i) total.gaps[i] += gaps_[i];
    for (unsigned w = 0; w < kWidths; ++w) {
      values[w].resize(values_[w].size());
      for (std::size_t i = 0; i < values_[w].size(); ++i) values[w][i] += values_[w][i];
    }
  }

 private:
  void CountPositions(std::uint32_t count, unsigned width) {
    std::uint64_t line = ~0ull;
    for (std::uint32_t k = 0; k < count; ++k) {
      if (k > 0) ++gaps_[GapBucket(positions_[k] - positions_[k - 1])];
      const std::uint64_t touched = std::uint64_t{positions_[k]} * width / 64;
      lines_touched_ += touched != line;
      line = touched;
    }
  }

  void CountValues(std::uint32_t count, unsigned width) {
    std::vector<std::uint64_t>& values = values_[WidthIndex(width)];
    const std::byte* mask = masks_.data();
    if (width == 2) {
      for (std::uint32_t k = 0; k < count; ++k) ++values[LoadLittle<std::uint16_t>(mask + 2 * k)];
      return;
    }
    const std::size_t size = std::size_t{count} * width;
    for (std::size_t i = 0; i < size; ++i) {
      ++values[i % width * kByteValues + std::to_integer<std::size_t>(mask[i])];
    }
  }

  void CountOneUlp(const std::byte* base, std::uint32_t count) {
    for (std::uint32_t k = 0; k < count; ++k) {
      const auto before = LoadLittle<std::uint16_t>(base + std::size_t{positions_[k]} * 2);
      const auto mask = LoadLittle<std::uint16_t>(masks_.data() + std::size_t{k} * 2);
      const auto after = static_cast<std::uint16_t>(before ^ mask);
      one_ulp_ += std::abs(OrderOf(after) - OrderOf(before)) == 1;
    }
  }

  std::vector<std::uint32_t> positions_;
  ByteVector masks_;
  std::array<std::vector<std::uint64_t>, kWidths> values_;
  std::array<std::uint64_t, 40> gaps_{};
  std::uint64_t one_ulp_ = 0;
  std::uint64_t lines_touched_ = 0;
};

// Counts of every tensor, and the gaps between a chunk's last change and the next one's first.
void JoinChunks(const Plan& plan, const std::vector<ChunkEnds>& ends,
                ChangeStatistics& statistics) {
  for (const PlanTensor& tensor : plan.tensors()) {
    std::uint64_t changed = 0;
    std::uint64_t last = 0;
    const std::uint64_t elements_per_chunk = plan.chunk_size() / DtypeWidth(tensor.spec.dtype);
    for (std::uint64_t i = 0; i < tensor.chunk_count; ++i) {
      const ChunkEnds& chunk = ends[tensor.first_chunk + i];
      if (chunk.count == 0) continue;
      const std::uint64_t start = i * elements_per_chunk;
      if (changed != 0) ++statistics.gaps[GapBucket(start + chunk.first - last)];
      last = start + chunk.last;
      changed += chunk.count;
    }
    statistics.changed.push_back(changed);
    statistics.changed_total += changed;
  }
}

// Bit counts follow from the histograms of values.
void CountBits(std::span<const std::uint64_t> values, unsigned width,
               std::array<std::uint64_t, 64>& bits) {
  const std::size_t size = HistogramSize(width);
  const unsigned value_bits = width == 2 ? 16 : 8;
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (values[i] == 0) continue;
    for (unsigned bit = 0; bit < value_bits; ++bit) {
      if ((i % size >> bit & 1) != 0) bits[i / size * 8 + bit] += values[i];
    }
  }
}

void AddBounds(const Plan& plan, const std::array<std::vector<std::uint64_t>, kWidths>& values,
               ChangeStatistics& statistics) {
  std::array<std::uint64_t, kWidths> elements{};
  std::array<std::uint64_t, kWidths> changed{};
  for (std::size_t t = 0; t < plan.tensors().size(); ++t) {
    const unsigned width = DtypeWidth(plan.tensors()[t].spec.dtype);
    elements[WidthIndex(width)] += plan.tensors()[t].size / width;
    changed[WidthIndex(width)] += statistics.changed[t];
  }
  for (unsigned w = 0; w < kWidths; ++w) {
    if (changed[w] == 0) continue;
    statistics.entropy_bound_bytes +=
        EntropyBoundBytes(elements[w], changed[w], values[w], HistogramSize(1u << w));
    CountBits(values[w], 1u << w, statistics.xor_bits);
  }
}

}  // namespace

double EntropyBoundBytes(std::uint64_t element_count, std::uint64_t changed,
                         std::span<const std::uint64_t> values, std::size_t histogram_size) {
  if (changed == 0) return 0;
  const auto all = static_cast<double>(element_count);
  const auto some = static_cast<double>(changed);
  double bits = some * std::log2(all / some);
  if (changed < element_count) bits += (all - some) * std::log2(all / (all - some));
  for (std::size_t start = 0; start < values.size(); start += histogram_size) {
    for (const std::uint64_t n : values.subspan(start, histogram_size)) {
      if (n != 0) bits += static_cast<double>(n) * std::log2(some / static_cast<double>(n));
    }
  }
  return bits / 8;
}

ChangeStatistics CountChanges(const Plan& plan, const ModelView& base, const ModelView& target,
                              const CountOptions& options) {
  std::vector<std::unique_ptr<Counter>> counters(ThreadCount(options.threads));
  std::vector<ChunkEnds> ends(plan.chunk_count());
  std::mutex mutex;
  std::uint64_t done = 0;
  const auto job = [&](std::size_t number, unsigned thread) -> Status {
    if (counters[thread] == nullptr)
      counters[thread] = std::make_unique<Counter>(plan.chunk_size());
    const ChunkPlace place = plan.Chunk(number);
    const Dtype dtype = plan.tensors()[place.tensor].spec.dtype;
    ends[number] = counters[thread]->Count(place, dtype == Dtype::kBF16 || dtype == Dtype::kF16,
                                           base.Chunk(place), target.Chunk(place));
    if (!options.progress) return {};
    const std::lock_guard lock(mutex);
    options.progress(done += place.size);
    return {};
  };
  SEGUE_CHECK(ParallelFor(ends.size(), options.threads, job).ok());
  ChangeStatistics statistics;
  std::array<std::vector<std::uint64_t>, kWidths> values;
  for (const auto& counter : counters) {
    if (counter != nullptr) counter->AddTo(statistics, values);
  }
  JoinChunks(plan, ends, statistics);
  AddBounds(plan, values, statistics);
  return statistics;
}

std::string_view TensorClass(std::string_view name) {
  // The first line that fits decides: scales of any tensor are scales, norms inside attention are
  // norms.
  static constexpr std::pair<std::string_view, std::string_view> kPatterns[] = {
      {"scale", "scale"},      {"norm", "norm"},          {".ln_", "norm"},
      {"embed", "embedding"},  {".wte.", "embedding"},    {"lm_head", "head"},
      {"router", "router"},    {"expert_gate", "router"}, {".gate.", "router"},
      {"expert", "experts"},   {"attn", "attention"},     {"attention", "attention"},
      {"q_proj", "attention"}, {"k_proj", "attention"},   {"v_proj", "attention"},
      {"o_proj", "attention"}, {"qkv", "attention"},      {"mlp", "mlp"},
      {"ffn", "mlp"},          {"feed_forward", "mlp"},   {"gate_proj", "mlp"},
      {"up_proj", "mlp"},      {"down_proj", "mlp"},
  };
  if (name == "output.weight" || name == "head.weight") return "head";
  for (const auto& [pattern, tensor_class] : kPatterns) {
    if (name.find(pattern) != std::string_view::npos) return tensor_class;
  }
  return "other";
}

}  // namespace segue
