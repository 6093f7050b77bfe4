// SPDX-License-Identifier: Apache-2.0
//
// The pause: apply with proof of a sparse and of a dense delta of the whole model, beside the floor
// of its touched sectors; and by density, where the two cross.
#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <string_view>

#include "bench/gpu/check.h"
#include "bench/gpu/machine.h"
#include "bench/gpu/updates.h"

namespace segue::gpu_check {
namespace {

constexpr double kPauseMax = 5e-3;  // Issue: 55.6 GB of NVFP4 at 0.085 %, and the proxy.
constexpr double kOverFloorMax = 2.5;
constexpr double kSlowerThanBestMax = 1.1;
constexpr std::uint64_t kDensitySize = 4ull << 30;

void Report(Check& check, const TiledModel& model, const std::string& workload,
            const TiledDelta& delta, const UpdateTimes& times, double floor_s) {
  const auto payload = static_cast<double>(delta.payload.size());
  const auto staged = static_cast<double>(delta.staged.staged_bytes());
  const std::map<std::string, double> details = {{"density", model.density},
                                                 {"payload_bytes", payload},
                                                 {"staged_bytes", staged},
                                                 {"floor_seconds", floor_s},
                                                 {"encode_on_host_seconds", delta.encode_s}};
  check.Add(Figure{"hash, outer decode", workload, model.size(), delta.stage_s, {}});
  check.Add(Figure{"to the GPU and preflight", workload, model.size(), times.load_s, {}});
  check.Add(Figure{"preflight", workload, model.size(), times.preflight_s, {}});
  check.Add(Figure{"apply with proof", workload, model.size(), times.apply_s, details});
}

// Applies one model by one profile.
Result<UpdateTimes> Measure(Check& check, Gpu& gpu, const TiledModel& model, Profile profile,
                            double copy_rate) {
  const std::string workload = fmt::format("{}, {}", model.workload, ProfileName(profile));
  SEGUE_ASSIGN_OR_RETURN(const TiledDelta delta,
                         EncodeAndStage(model, profile, check.options.threads));
  SEGUE_ASSIGN_OR_RETURN(const DeviceModel live, DeviceModel::Make(gpu, model));
  SEGUE_ASSIGN_OR_RETURN(const UpdateTimes times, TimeUpdate(check, gpu, model, live, delta,
                                                             workload, check.options.repeats));
  const double floor_s = static_cast<double>(model.TouchedSectors()) * 64 / copy_rate;
  Report(check, model, workload, delta, times, floor_s);
  if (profile == Profile::kSparseZstd && model.size() >= kGoalSize) {
    check.Add(Goal{workload + ": pause", times.apply_s, kPauseMax, "s"});
    check.Add(Goal{workload + ": pause over floor", times.apply_s / floor_s, kOverFloorMax, "x"});
  }
  return times;
}

}  // namespace

Status MeasureApply(Check& check, Gpu& gpu) {
  SEGUE_ASSIGN_OR_RETURN(const double copy_rate, CopyRate(check, gpu));
  for (const std::string_view preset : {"nvfp4-0.085", "humans-proxy"}) {
    SEGUE_ASSIGN_OR_RETURN(const TiledModel model, TiledModel::Generate(check.options, preset));
    for (const Profile profile : {Profile::kSparseZstd, Profile::kLz4Zstd, Profile::kSnappyZstd}) {
      SEGUE_RETURN_IF_ERROR(Measure(check, gpu, model, profile, copy_rate).status());
    }
  }
  return {};
}

Status MeasureDensity(Check& check, Gpu& gpu) {
  SEGUE_ASSIGN_OR_RETURN(const double copy_rate, CopyRate(check, gpu));
  for (const std::string_view preset :
       {"bf16-0.02", "bf16-0.1", "bf16-1", "bf16-2.5", "bf16-10", "bf16-40"}) {
    SEGUE_ASSIGN_OR_RETURN(const TiledModel model,
                           TiledModel::Generate(check.options, preset, kDensitySize));
    SEGUE_ASSIGN_OR_RETURN(const UpdateTimes chosen,
                           Measure(check, gpu, model, Profile::kSparseZstd, copy_rate));
    SEGUE_ASSIGN_OR_RETURN(const UpdateTimes dense,
                           Measure(check, gpu, model, Profile::kLz4Zstd, copy_rate));
    check.Add(Goal{fmt::format("{}: default over the faster path", preset),
                   chosen.apply_s / std::min(chosen.apply_s, dense.apply_s), kSlowerThanBestMax,
                   "x"});
  }
  return {};
}

}  // namespace segue::gpu_check
