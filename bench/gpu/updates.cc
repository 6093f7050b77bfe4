// SPDX-License-Identifier: Apache-2.0
//
// Restore, load, preflight, apply, look.
#include "bench/gpu/updates.h"

#include "bench/bandwidth.h"
#include "delta/applier.h"

namespace segue::gpu_check {

using bench::Median;
using bench::Seconds;

Result<UpdateTimes> TimeUpdate(Check& check, Gpu& gpu, const TiledModel& model,
                               const DeviceModel& live, const TiledDelta& delta,
                               const std::string& name, unsigned repeats) {
  const MutableModelView view = live.View();
  std::vector<double> load;
  std::vector<double> preflight;
  std::vector<double> apply;
  for (unsigned repeat = 0; repeat < repeats; ++repeat) {
    SEGUE_RETURN_IF_ERROR(live.Restore());
    Applier applier(model.plan, delta.staged, view, *gpu.accelerator());
    Status status;
    load.push_back(Seconds([&] { status = applier.Preflight(); }));
    SEGUE_RETURN_IF_ERROR(status);
    std::optional<ChunkFault> fault;
    preflight.push_back(Seconds([&] { fault = gpu.accelerator()->Preflight(applier.work()); }));
    check.Expect(!fault, name + ": a second preflight of the same bytes found a fault");
    apply.push_back(Seconds([&] { status = applier.Apply(); }));
    SEGUE_RETURN_IF_ERROR(status);
    SEGUE_ASSIGN_OR_RETURN(const bool right, live.HoldsTarget());
    check.Expect(right, name + ": the weights are not the target, or a canary was written over");
  }
  return UpdateTimes{Median(load), Median(preflight), Median(apply)};
}

}  // namespace segue::gpu_check
