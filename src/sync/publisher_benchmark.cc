// SPDX-License-Identifier: Apache-2.0
//
// What a publisher of buffers costs its trainer: time of a version, and memory beside the trainer's
// own. The model is 512 MiB of BF16 in tensors of 32 MiB; a share of elements changes, in steps
// that go on from each other. Counters: bytes of the baseline, and the most memory that the process
// had beyond what it held before the publisher was opened, both as shares of the model.
#include <benchmark/benchmark.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "base/check.h"
#include "base/random.h"
#include "checkpoint/testing.h"
#include "segue/publisher.h"

namespace segue {
namespace {

constexpr std::size_t kTensorCount = 16;
constexpr std::uint64_t kTensorSize = 32ull << 20;
constexpr double kModelSize = static_cast<double>(kTensorCount * kTensorSize);

double PeakBytes() {
  rusage usage = {};
  SEGUE_CHECK(::getrusage(RUSAGE_SELF, &usage) == 0);
  return static_cast<double>(usage.ru_maxrss) * 1024;
}

// What the process has now.
double CurrentBytes() {
  unsigned long size = 0;
  unsigned long resident = 0;
  std::FILE* const file = std::fopen("/proc/self/statm", "r");
  SEGUE_CHECK(file != nullptr && std::fscanf(file, "%lu %lu", &size, &resident) == 2);
  (void)std::fclose(file);
  return static_cast<double>(resident) * static_cast<double>(::sysconf(_SC_PAGESIZE));
}

class Trainer {
 public:
  Trainer() {
    Random random(1);
    for (std::size_t i = 0; i < kTensorCount; ++i) {
      tensors_.emplace_back(kTensorSize);
      for (std::size_t at = 0; at < kTensorSize; at += 8) {
        StoreLittle(tensors_.back().data() + at, random.Next());
      }
    }
  }
  std::vector<SourceTensor> Sources() const {
    std::vector<SourceTensor> sources;
    for (std::size_t i = 0; i < kTensorCount; ++i) {
      sources.push_back({"layer." + std::to_string(i),
                         "BF16",
                         {kTensorSize / 2},
                         tensors_[i].data(),
                         kTensorSize});
    }
    return sources;
  }
  // Flips the lowest bit of one element in `every`.
  void Step(std::uint64_t every, std::uint64_t seed) {
    if (every == 0) return;
    Random random(seed);
    for (ByteVector& tensor : tensors_) {
      for (std::uint64_t at = 0; at < kTensorSize / 2; at += 1 + random.Below(2 * every - 1)) {
        tensor[2 * at] ^= std::byte{1};
      }
    }
  }

 private:
  std::vector<ByteVector> tensors_;
};

// Argument: one element in so many changes; 0: none.
void BM_PublishVersion(benchmark::State& state) {
  const auto every = static_cast<std::uint64_t>(state.range(0));
  const test::TemporaryDirectory directory;
  Trainer trainer;
  PublisherOptions options;
  options.store = directory.File("store");
  options.retain = 1;
  const double before = CurrentBytes();
  const auto publisher = Publisher::Open(options, trainer.Sources());
  SEGUE_CHECK(publisher.ok());
  std::uint64_t seed = 0;
  double payload = 0;
  double encode_s = 0;
  for (auto _ : state) {
    state.PauseTiming();
    trainer.Step(every, ++seed);
    state.ResumeTiming();
    const auto report = publisher.value()->Publish(trainer.Sources());
    SEGUE_CHECK(report.ok());
    payload = static_cast<double>(report->payload_bytes);
    encode_s = report->encode_s;
  }
  state.counters["payload_bytes"] = payload;
  state.counters["encode_s"] = encode_s;
  state.counters["baseline_share"] =
      static_cast<double>(publisher.value()->baseline_bytes()) / kModelSize;
  state.counters["peak_share"] = (PeakBytes() - before) / kModelSize;
}
BENCHMARK(BM_PublishVersion)->Arg(0)->Arg(1000)->Arg(50)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace segue
