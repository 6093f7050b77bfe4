// SPDX-License-Identifier: Apache-2.0
//
// What the generator costs, and the figures of docs/workload.md. `pair/PRESET` fills a pair of
// buffers: bytes a second of one buffer. `chain/PRESET/STEPS` follows a 64 MiB model through STEPS
// steps without writing it and shows the last step's statistics, shares in percent.
#include <benchmark/benchmark.h>

#include <string>

#include "workload/simulation.h"

namespace segue::workload {
namespace {

constexpr std::uint64_t kSize = 64u << 20;
constexpr std::uint64_t kSeed = 1;

void RunPair(benchmark::State& state, const std::string& preset) {
  ByteVector base(kSize);
  ByteVector target(kSize);
  std::uint64_t changed = 0;
  for (auto _ : state) changed = GeneratePair(preset, kSeed, 0, base, target).value();
  const double elements =
      static_cast<double>(kSize) * 8 / Info(FindPreset(preset).value().format).bits;
  state.SetBytesProcessed(static_cast<std::int64_t>(kSize) * state.iterations());
  state.counters["changed"] = 100 * static_cast<double>(changed) / elements;
}

void Show(benchmark::State& state, const GeneratedStep& step) {
  state.counters["changed"] =
      100 * static_cast<double>(step.changed) / static_cast<double>(step.elements);
  state.counters["one_ulp"] = 100 * step.one_ulp_share;
  state.counters["multi_bit"] = 100 * step.multi_bit_share;
  state.counters["upper_half"] = 100 * step.upper_half_share;
  state.counters["repeat"] = 100 * step.repeat_share;
  state.counters["seen"] = 100 * step.seen_share;
  state.counters["from_base"] = 100 * step.from_base_share;
  state.counters["magnitude"] = step.magnitude_ratio;
  state.counters["scales"] = 100 * step.scales_changed_share;
  if (step.rest_elements != 0) {
    state.counters["rest"] =
        100 * static_cast<double>(step.rest_changed) / static_cast<double>(step.rest_elements);
  }
  for (std::size_t bit = 0; bit < 8; ++bit) {
    state.counters["b" + std::to_string(bit)] = step.xor_bit_share[bit];
  }
  for (std::size_t bucket = 0; bucket < kGapBuckets; ++bucket) {
    state.counters["gap" + std::to_string(bucket)] = 100 * step.gap_share[bucket];
  }
}

void RunChain(benchmark::State& state, const std::string& name, unsigned steps) {
  const Preset preset = FindPreset(name).value();
  const ModelOptions options{kSize, preset.format, preset.has_experts, kSeed};
  for (auto _ : state) {
    Simulation simulation = Simulation::Make(preset, MakeModel(options), kSeed, steps, 0).value();
    const Status status = simulation.Run(0, steps, 0, [](const Piece&) { return Status(); });
    if (!status.ok()) return state.SkipWithError(status.message().c_str());
    Show(state, Finish(simulation.counts().back()));
  }
}

const bool kRegistered = [] {
  for (const PresetInfo& info : Presets()) {
    const std::string name(info.name);
    benchmark::RegisterBenchmark(("pair/" + name).c_str(), RunPair, name)
        ->UseRealTime()
        ->Unit(benchmark::kMillisecond);
    for (const unsigned steps : {1u, 2u, 10u, 32u}) {
      benchmark::RegisterBenchmark(("chain/" + name + "/" + std::to_string(steps)).c_str(),
                                   RunChain, name, steps)
          ->UseRealTime()
          ->Iterations(1)
          ->Unit(benchmark::kMillisecond);
    }
  }
  return true;
}();

}  // namespace
}  // namespace segue::workload
