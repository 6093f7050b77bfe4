// SPDX-License-Identifier: Apache-2.0
//
// Measurements: one function for each part of the report. Each repeats what it times, takes
// medians, and says whether every repeat gave the target.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "bench/bandwidth.h"
#include "bench/bench_model.h"
#include "delta/profile.h"
#include "segue/bench.h"
#include "segue/status.h"
#include "store/store.h"

namespace segue::bench {

// What the measurements share.
struct BenchRun {
  const BenchOptions& options;
  const BenchModel& model;
  Store& store;
  std::string directory;  // For files beside the store.
  unsigned threads = 1;
  bool verified = true;

  void Report(const std::string& stage, unsigned done) const {
    if (options.progress) options.progress(stage, done, options.repeats);
  }
  void Verify() { verified = model.LiveIsTarget(threads) && verified; }
};

// Samples of what the machine does at best. Taken before and after everything else.
class MachineSamples {
 public:
  void Take(const BenchRun& run);
  void Fill(const BenchRun& run, BenchReport& report) const;

 private:
  std::vector<double> read_;
  std::vector<double> compare_;
  std::vector<double> copy_;
};

// Publisher and receiver with one profile, through the store.
Result<ProfileFigures> MeasureProfile(BenchRun& run, Profile profile);

// Every weight again: files of the target's tensors, in the page cache, read over the live weights.
Result<BaselineFigures> MeasureFullReload(BenchRun& run);

// The reference systems' disk delta: the XOR of each whole tensor under one Zstd frame of level 1,
// decoded and applied in place. Tensors go to threads one by one.
Result<BaselineFigures> MeasureDiskDelta(BenchRun& run);

}  // namespace segue::bench
