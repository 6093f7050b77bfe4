// SPDX-License-Identifier: Apache-2.0
//
// The machine's own figures.
#include "bench/measure.h"

namespace segue::bench {

void MachineSamples::Take(const BenchRun& run) {
  const BenchModel& model = run.model;
  volatile std::uint64_t keep = 0;
  for (unsigned repeat = 0; repeat < run.options.repeats; ++repeat) {
    run.Report("machine", repeat);
    read_.push_back(Seconds([&] { keep = ReadAll(model.base.bytes(), run.threads); }));
    compare_.push_back(
        Seconds([&] { keep = CompareAll(model.base.bytes(), model.target.bytes(), run.threads); }));
    copy_.push_back(Seconds([&] { CopyAll(model.base.bytes(), model.live.bytes(), run.threads); }));
  }
  (void)keep;
}

void MachineSamples::Fill(const BenchRun& run, BenchReport& report) const {
  const auto size = static_cast<double>(run.model.base.bytes().size());
  report.compare_s = Median(compare_);
  report.copy_s = Median(copy_);
  report.read_gbps = size / Median(read_) / 1e9;
  report.copy_gbps = 2 * size / report.copy_s / 1e9;
}

}  // namespace segue::bench
