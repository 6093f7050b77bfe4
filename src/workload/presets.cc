// SPDX-License-Identifier: Apache-2.0
//
// The table of presets. A learning rate here is a calibrated number, not a recommendation: it is
// the peak rate at which one published step of a model of this generator changes `density` of its
// elements.
#include "workload/presets.h"

#include <string>
#include <vector>

namespace segue::workload {
namespace {

enum Model : bool { kDense = false, kMixture = true };

// A preset whose steps go through the optimizer.
constexpr Preset Trained(PresetInfo info, Format format, float learning_rate,
                         Model model = kMixture) {
  return {.info = info,
          .format = format,
          .learning_rate = learning_rate,
          .has_experts = model == kMixture};
}

constexpr Preset Edited(PresetInfo info, Format format, Mechanism mechanism) {
  return {.info = info, .format = format, .mechanism = mechanism};
}

// Scales follow the FP32 master, and the optimizer's epsilon is out of the way, so that hardly any
// block's largest weight stays where it is.
constexpr Preset MovingScales(PresetInfo info, float learning_rate) {
  Preset preset = Trained(info, Format::kFp8, learning_rate);
  preset.damping = 0.01f;
  preset.quantise_from = QuantiseFrom::kMaster;
  return preset;
}

constexpr Preset FarSteps(PresetInfo info) {
  Preset preset = Trained(info, Format::kBf16, 0);
  preset.rule = StepRule::kFarSteps;
  return preset;
}

constexpr Preset kPresets[] = {
    Trained({"none", "bf16", 0, "A new version with nothing changed."}, Format::kBf16, 0),
    Edited({"one-bit", "bf16", 0, "One bit of the whole model a step."}, Format::kBf16,
           Mechanism::kOneBit),
    Trained({"bf16-0.02", "bf16", 0.0002, "Warm-up, or a very large model: 0.02 %."}, Format::kBf16,
            2.45e-7f),
    Trained({"bf16-0.1", "bf16", 0.001, "A small learning rate: 0.1 %."}, Format::kBf16, 1.22e-6f),
    Trained({"bf16-0.6", "bf16", 0.006, "Qwen3-30B as SparseRL-Sync measured it: 0.6 %."},
            Format::kBf16, 7.5e-6f),
    Trained({"bf16-1", "bf16", 0.01, "The mean of PULSE's measurements: 1 %."}, Format::kBf16,
            1.29e-5f),
    Trained({"bf16-2.5", "bf16", 0.025, "A dense model in its first steps: 2.5 %."}, Format::kBf16,
            4e-5f, kDense),
    Trained({"bf16-10", "bf16", 0.1, "Far more than the field's steps: 10 %."}, Format::kBf16,
            2.72e-4f),
    Trained({"bf16-40", "bf16", 0.4, "Near where deltas stop paying: 40 %."}, Format::kBf16,
            6.3e-3f),
    Trained({"fp16-1", "fp16", 0.01, "A dense FP16 model: 1 %."}, Format::kFp16, 1.82e-6f, kDense),
    Trained({"fp8-0.07", "fp8", 0.0007, "Block FP8, scales from the BF16 weights: 0.07 %."},
            Format::kFp8, 8.4e-6f),
    MovingScales({"fp8-master-scales", "fp8", 0.002,
                  "Block FP8 from the FP32 master: 0.2 %, and nearly every block scale."},
                 5.9e-7f),
    Trained({"nvfp4-0.085", "nvfp4", 0.00085, "NVFP4 at the density of humans&'s run: 0.085 %."},
            Format::kNvfp4, 1.17e-4f),
    Trained({"mxfp4-0.1", "mxfp4", 0.001, "MXFP4: 0.1 %."}, Format::kMxfp4, 1.68e-4f),
    Trained({"int4-0.1", "int4", 0.001, "INT4 in groups of 128, a dense model: 0.1 %."},
            Format::kInt4, 2.65e-4f, kDense),
    FarSteps({"all", "bf16", 1, "Every element changes."}),
    Edited({"adversarial", "bf16", 0.16,
            "NaN payloads, infinities, signed zeros and denormals, edited in odd patterns."},
           Format::kBf16, Mechanism::kAdversarial),
    Edited({"humans-proxy", "nvfp4", kProxyRate / 2,
            "humans&'s proxy: the lowest bit of random bytes in each MiB, scales unchanged."},
           Format::kNvfp4, Mechanism::kProxy),
};

}  // namespace

Result<Preset> FindPreset(std::string_view name) {
  std::string known;
  for (const Preset& preset : kPresets) {
    if (preset.info.name == name) return preset;
    known += (known.empty() ? "" : ", ") + std::string(preset.info.name);
  }
  return InvalidArgument("no preset '" + std::string(name) + "'; known: " + known);
}

}  // namespace segue::workload

namespace segue {

std::span<const PresetInfo> Presets() {
  static const std::vector<PresetInfo> infos = [] {
    std::vector<PresetInfo> list;
    for (const workload::Preset& preset : workload::kPresets) list.push_back(preset.info);
    return list;
  }();
  return infos;
}

}  // namespace segue
