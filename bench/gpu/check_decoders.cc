// SPDX-License-Identifier: Apache-2.0
//
// Whoever can decode Snappy and LZ4 here, on the same model one after the other: whether each is
// right, and how long an apply takes with it. Which of them is chosen first rests on this.
#include <fmt/core.h>

#include "bench/gpu/check.h"
#include "bench/gpu/updates.h"

namespace segue::gpu_check {
namespace {

constexpr std::uint64_t kDecodersSize = 4ull << 30;
constexpr const char* kDecoders[] = {"engine", "multiprocessors", "nvcomp", "processor"};

Status CheckDecoder(Check& check, Gpu& gpu, const TiledModel& model, const TiledDelta& delta,
                    const std::string& name) {
  SEGUE_ASSIGN_OR_RETURN(const DeviceModel live, DeviceModel::Make(gpu, model));
  SEGUE_ASSIGN_OR_RETURN(const UpdateTimes times,
                         TimeUpdate(check, gpu, model, live, delta, name, check.options.repeats));
  check.Add(Figure{"to the GPU and preflight", name, model.size(), times.load_s, {}});
  check.Add(Figure{"apply with proof", name, model.size(), times.apply_s, {}});
  return {};
}

// One that is not there is left out; one that fails does not hide the others.
void CheckEach(Check& check, Gpu& gpu, const TiledModel& model, Profile profile,
               const TiledDelta& delta) {
  for (const std::string decoder : kDecoders) {
    const std::string name =
        fmt::format("{}, {}, decoder {}", model.workload, ProfileName(profile), decoder);
    Status status = gpu.UseDecoder(decoder);
    if (status.code() == StatusCode::kUnsupported) {
      check.Skip(fmt::format("{}: not there: {}", name, status.message()));
      continue;
    }
    if (status.ok()) status = CheckDecoder(check, gpu, model, delta, name);
    if (!status.ok()) check.Find(fmt::format("{}: {}", name, status.ToString()));
    const std::string used = gpu.accelerator()->decoder();
    check.Expect(used == decoder, fmt::format("{}: {} decoded", name, used));
  }
}

}  // namespace

Status CheckDecoders(Check& check, Gpu& gpu) {
  SEGUE_ASSIGN_OR_RETURN(const TiledModel model,
                         TiledModel::Generate(check.options, "nvfp4-0.085", kDecodersSize));
  for (const Profile profile : {Profile::kLz4Zstd, Profile::kSnappyZstd}) {
    SEGUE_ASSIGN_OR_RETURN(const TiledDelta delta,
                           EncodeAndStage(model, profile, check.options.threads));
    CheckEach(check, gpu, model, profile, delta);
  }
  return gpu.UseDecoder("");
}

}  // namespace segue::gpu_check
