// SPDX-License-Identifier: Apache-2.0
//
// Time to read headers: one header of N tensors with names and shapes as a mixture-of-experts model
// has them, and the header of the largest size allowed (100,000,000 bytes). Reports bytes of header
// a second, and the counts: tensors, header_bytes. Expected: 150,000 tensors well under 0.3 s.
#include <benchmark/benchmark.h>

#include <string>
#include <vector>

#include "base/limits.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/index.h"
#include "checkpoint/plan.h"
#include "checkpoint/testing.h"

namespace segue {
namespace {

// Header order is that of the layers' numbers, so names are not in the order of their bytes.
std::vector<SafetensorsEntry> MakeEntries(std::size_t count) {
  std::vector<SafetensorsEntry> entries;
  std::uint64_t offset = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const std::string name = "model.layers." + std::to_string(i / 2048) + ".mlp.experts." +
                             std::to_string(i % 2048) + ".down_proj.weight_scale";
    entries.push_back({{name, Dtype::kF8E8M0, {2, 16}}, offset, 32});
    offset += 32;
  }
  return entries;
}

void BM_ParseHeader(benchmark::State& state) {
  const std::string header = MakeSafetensorsHeader(MakeEntries(state.range(0)), {});
  for (auto _ : state) {
    auto parsed = ParseSafetensorsHeader(AsBytes(header), "benchmark");
    if (!parsed.ok()) state.SkipWithError(parsed.status().message().c_str());
    benchmark::DoNotOptimize(parsed);
  }
  state.SetBytesProcessed(state.iterations() * static_cast<std::int64_t>(header.size()));
  state.counters["tensors"] = static_cast<double>(state.range(0));
  state.counters["header_bytes"] = static_cast<double>(header.size());
}
// The last one comes close to limits::kSafetensorsHeaderSizeMax.
BENCHMARK(BM_ParseHeader)->Arg(1000)->Arg(150'000)->Arg(780'000)->Unit(benchmark::kMillisecond);

void BM_ParseIndex(benchmark::State& state) {
  std::string json = "{\"weight_map\":{";
  for (const SafetensorsEntry& entry : MakeEntries(state.range(0))) {
    if (json.back() != '{') json += ',';
    json += '"' + entry.spec.name + "\":\"model-00001-of-00001.safetensors\"";
  }
  json += "}}";
  for (auto _ : state) {
    auto parsed = ParseIndex(AsBytes(json), "benchmark");
    if (!parsed.ok()) state.SkipWithError(parsed.status().message().c_str());
    benchmark::DoNotOptimize(parsed);
  }
  state.SetBytesProcessed(state.iterations() * static_cast<std::int64_t>(json.size()));
  state.counters["tensors"] = static_cast<double>(state.range(0));
  state.counters["index_bytes"] = static_cast<double>(json.size());
}
BENCHMARK(BM_ParseIndex)->Arg(150'000)->Unit(benchmark::kMillisecond);

// Open, then the plan: what every process does first.
void BM_OpenAndPlan(benchmark::State& state) {
  const test::TemporaryDirectory directory;
  const std::vector<SafetensorsEntry> entries = MakeEntries(state.range(0));
  const std::uint64_t data_size = entries.back().offset + entries.back().size;
  test::WriteFile(
      directory.File("model.safetensors"),
      test::MakeSafetensorsFile(MakeSafetensorsHeader(entries, {}), ByteVector(data_size)));
  for (auto _ : state) {
    const Checkpoint checkpoint = Checkpoint::Open(directory.path()).value();
    auto plan = Plan::FromCheckpoint(checkpoint).value();
    benchmark::DoNotOptimize(plan);
  }
  state.counters["tensors"] = static_cast<double>(state.range(0));
}
BENCHMARK(BM_OpenAndPlan)->Arg(150'000)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace segue
