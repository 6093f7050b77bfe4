// SPDX-License-Identifier: Apache-2.0
//
// Updates: one delta applied to a tiled model on the device, timed and then held against the
// target; what the parts that check and measure applies share.
#pragma once

#include "bench/gpu/check.h"
#include "bench/gpu/tiled_model.h"

namespace segue::gpu_check {

struct UpdateTimes {
  double load_s = 0;  // To the device, and preflight: all that is between staged and prepared.
  double preflight_s = 0;
  double apply_s = 0;
};

// Medians over `repeats`, each from a restored base. A difference of one bit, or a canary touched,
// is a finding.
Result<UpdateTimes> TimeUpdate(Check& check, Gpu& gpu, const TiledModel& model,
                               const DeviceModel& live, const TiledDelta& delta,
                               const std::string& name, unsigned repeats);

}  // namespace segue::gpu_check
