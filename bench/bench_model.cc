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

// The first two checkpoints of the trace, by name.
Result<std::vector<std::string>> TracePair(const std::string& trace) {
  SEGUE_ASSIGN_OR_RETURN(const std::vector<std::string> names, ListDirectory(trace));
  std::vector<std::string> paths;
  for (const std::string& name : names) {
    if (name.starts_with("v") && paths.size() < 2) paths.push_back(JoinPath(trace, name));
  }
  if (paths.size() == 2) return paths;
  return NotFound("trace '" + trace + "' has fewer than two checkpoints named v...");
}

Result<BenchModel> FromTrace(const BenchOptions& options) {
  SEGUE_ASSIGN_OR_RETURN(const std::vector<std::string> paths, TracePair(options.trace));
  SEGUE_ASSIGN_OR_RETURN(const Checkpoint base, Checkpoint::Open(paths[0]));
  SEGUE_ASSIGN_OR_RETURN(const Checkpoint target, Checkpoint::Open(paths[1]));
  SEGUE_ASSIGN_OR_RETURN(const Plan plan, Plan::FromCheckpoint(base));
  SEGUE_ASSIGN_OR_RETURN(const Plan target_plan, Plan::FromCheckpoint(target));
  SEGUE_RETURN_IF_ERROR(ComparePlans(plan, target_plan, paths[0], paths[1]));
  if (plan.model_size() == 0) return InvalidArgument("checkpoint '" + paths[0] + "' is empty");
  const std::size_t copies = std::max<std::size_t>(1, options.size / plan.model_size());
  const std::size_t tensors = plan.tensors().size();
  std::vector<TensorSpec> specs;
  for (std::size_t i = 0; i < copies * tensors; ++i) {
    specs.push_back(plan.tensors()[i % tensors].spec);
    specs.back().name = NumberedName(i / tensors, specs.back().name);
  }
  SEGUE_ASSIGN_OR_RETURN(BenchModel model, Allocate(std::move(specs)));
  for (std::size_t i = 0; i < copies * tensors; ++i) {
    const ByteSpan before = base.TensorBytes(i % tensors);
    const ByteSpan after = target.TensorBytes(i % tensors);
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
