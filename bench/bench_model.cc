// SPDX-License-Identifier: Apache-2.0
//
// Filling the buffers.
#include "bench/bench_model.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <string>

#include "base/file.h"
#include "base/threads.h"
#include "bench/bandwidth.h"
#include "checkpoint/checkpoint.h"
#include "segue/generate.h"

namespace segue::bench {
namespace {

// Tensors of the generated model: as large as the reference systems' largest, and small enough that
// what works tensor by tensor (disk_delta) has work for several threads.
constexpr std::uint64_t kTensorSizeMax = 512ull << 20;
// Tensors begin at whole cache lines, so that the lines touched are those counted.
constexpr std::uint64_t kAlignment = 64;
// Larger than the last cache that a core shares.
constexpr std::uint64_t kEvictSize = 128ull << 20;

std::uint64_t RoundUp(std::uint64_t size) { return DivideUp(size, kAlignment) * kAlignment; }

Dtype DtypeOfFormat(std::string_view format) {
  if (format == "bf16") return Dtype::kBF16;
  if (format == "fp16") return Dtype::kF16;
  if (format == "fp8") return Dtype::kF8E4M3;
  return Dtype::kU8;  // Two 4-bit codes a byte.
}

// Lays the tensors out and allocates; `specs` in ascending order of names.
Result<BenchModel> Allocate(std::vector<TensorSpec> specs) {
  BenchModel model;
  SEGUE_ASSIGN_OR_RETURN(model.plan, Plan::Make(std::move(specs)));
  std::uint64_t size = 0;
  for (const PlanTensor& tensor : model.plan.tensors()) {
    model.offsets.push_back(size);
    size += RoundUp(tensor.size);
  }
  SEGUE_ASSIGN_OR_RETURN(model.base, HugeBuffer::Make(size));
  SEGUE_ASSIGN_OR_RETURN(model.target, HugeBuffer::Make(size));
  SEGUE_ASSIGN_OR_RETURN(model.live, HugeBuffer::Make(size));
  return model;
}

std::string NumberedName(std::uint64_t number, const std::string& name) {
  char digits[8];
  std::snprintf(digits, sizeof(digits), "%06u", static_cast<unsigned>(number % 1'000'000));
  return std::string(digits) + "." + name;
}

Result<BenchModel> FromPreset(const BenchOptions& options) {
  const auto presets = Presets();
  const auto preset = std::find_if(presets.begin(), presets.end(), [&](const PresetInfo& info) {
    return info.name == options.preset;
  });
  if (preset == presets.end()) {
    return InvalidArgument("no preset '" + options.preset + "' (and no trace named)");
  }
  const Dtype dtype = DtypeOfFormat(preset->format);
  const std::uint64_t size = RoundUp(std::max<std::uint64_t>(options.size, kAlignment));
  std::vector<TensorSpec> specs;
  for (std::uint64_t offset = 0; offset < size; offset += kTensorSizeMax) {
    const std::uint64_t part = std::min(kTensorSizeMax, size - offset);
    specs.push_back({NumberedName(specs.size(), "weight"), dtype, {part / DtypeWidth(dtype)}});
  }
  SEGUE_ASSIGN_OR_RETURN(BenchModel model, Allocate(std::move(specs)));
  SEGUE_ASSIGN_OR_RETURN(model.changed_elements,
                         GeneratePair(options.preset, options.seed, options.threads,
                                      model.base.bytes(), model.target.bytes()));
  model.element_count = dtype == Dtype::kU8 ? 2 * size : size / DtypeWidth(dtype);
  return model;
}

// Checkpoints of the trace, by name.
Result<std::vector<Checkpoint>> OpenTrace(const std::string& trace) {
  SEGUE_ASSIGN_OR_RETURN(const std::vector<std::string> names, ListDirectory(trace));
  std::vector<Checkpoint> checkpoints;
  for (const std::string& name : names) {
    if (!name.starts_with("v")) continue;
    SEGUE_ASSIGN_OR_RETURN(Checkpoint checkpoint, Checkpoint::Open(JoinPath(trace, name)));
    checkpoints.push_back(std::move(checkpoint));
  }
  if (checkpoints.size() >= 2) return checkpoints;
  return NotFound("trace '" + trace + "' has fewer than two checkpoints named v...");
}

// The trace's steps side by side, each as a model of its own, as many as fit the size asked for. No
// step is repeated: a compressor would see that.
Result<BenchModel> FromTrace(const BenchOptions& options) {
  SEGUE_ASSIGN_OR_RETURN(const std::vector<Checkpoint> trace, OpenTrace(options.trace));
  SEGUE_ASSIGN_OR_RETURN(const Plan plan, Plan::FromCheckpoint(trace[0]));
  if (plan.model_size() == 0) return InvalidArgument("trace '" + options.trace + "' is empty");
  const std::size_t steps =
      std::clamp<std::size_t>(options.size / plan.model_size(), 1, trace.size() - 1);
  std::vector<TensorSpec> specs;
  for (std::size_t step = 0; step < steps; ++step) {
    SEGUE_ASSIGN_OR_RETURN(const Plan target_plan, Plan::FromCheckpoint(trace[step + 1]));
    SEGUE_RETURN_IF_ERROR(ComparePlans(plan, target_plan, "the trace's first version",
                                       "version " + std::to_string(step + 1)));
    for (const PlanTensor& tensor : plan.tensors()) {
      specs.push_back(tensor.spec);
      specs.back().name = NumberedName(step, specs.back().name);
    }
  }
  SEGUE_ASSIGN_OR_RETURN(BenchModel model, Allocate(std::move(specs)));
  const std::size_t tensors = plan.tensors().size();
  for (std::size_t i = 0; i < steps * tensors; ++i) {
    const ByteSpan before = trace[i / tensors].TensorBytes(i % tensors);
    const ByteSpan after = trace[i / tensors + 1].TensorBytes(i % tensors);
    std::copy(before.begin(), before.end(), model.base.bytes().begin() + model.offsets[i]);
    std::copy(after.begin(), after.end(), model.target.bytes().begin() + model.offsets[i]);
  }
  return model;
}

}  // namespace

bool BenchModel::LiveIsTarget(unsigned threads) const {
  return CompareAll(live.bytes(), target.bytes(), threads) == 0;
}

void BenchModel::Restore(unsigned threads) const {
  CopyAll(base.bytes(), live.bytes(), threads);
  volatile std::uint64_t keep = ReadAll(
      target.bytes().first(std::min<std::size_t>(kEvictSize, target.bytes().size())), threads);
  (void)keep;
}

Result<BenchModel> MakeBenchModel(const BenchOptions& options) {
  SEGUE_ASSIGN_OR_RETURN(BenchModel model,
                         options.preset == "trace" ? FromTrace(options) : FromPreset(options));
  CopyAll(model.base.bytes(), model.live.bytes(), options.threads);
  return model;
}

}  // namespace segue::bench
