// SPDX-License-Identifier: Apache-2.0
//
// Measurements: the figures that a run of tools/gpu_check wrote, read back from its JSON file
// (docs/cuda.md, "The check").
#pragma once

#include <string>
#include <vector>

#include "segue/status.h"

namespace segue {

struct Measurement {
  std::string name;      // Of the stage.
  std::string workload;  // Preset and density, as the run calls it.
  double model_bytes = 0;
  double seconds = 0;
};

struct MeasuredRun {
  std::string device;  // As the driver names it.
  std::vector<Measurement> figures;
};

// NotFound: no such file. Corruption: not of tools/gpu_check, or of a run against the fake driver,
// which measures nothing.
Result<MeasuredRun> ReadMeasurements(const std::string& path);

}  // namespace segue
