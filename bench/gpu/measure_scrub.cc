// SPDX-License-Identifier: Apache-2.0
//
// Scrub: the digest of all live bytes, beside what a copy moves.
#include "bench/bandwidth.h"
#include "bench/gpu/check.h"
#include "bench/gpu/machine.h"
#include "bench/gpu/tiled_model.h"
#include "delta/encoder.h"
#include "delta/live_scan.h"

namespace segue::gpu_check {

constexpr double kScrubShareMin = 0.8;

Status MeasureScrub(Check& check, Gpu& gpu) {
  const CheckOptions& options = check.options;
  SEGUE_ASSIGN_OR_RETURN(const double copy_rate, CopyRate(check, gpu));
  SEGUE_ASSIGN_OR_RETURN(const TiledModel model, TiledModel::Generate(options, "nvfp4-0.085"));
  SEGUE_ASSIGN_OR_RETURN(const DeviceModel live, DeviceModel::Make(gpu, model));
  SEGUE_RETURN_IF_ERROR(live.Restore());
  std::vector<Placement> placements;
  for (std::uint32_t i = 0; i < model.count(); ++i) {
    placements.push_back({.tensor = i, .data = live.Tensor(i), .size = model.unit()});
  }
  SEGUE_ASSIGN_OR_RETURN(const LiveMap map,
                         LiveMap::Make(model.plan, std::move(placements), gpu.accelerator()));
  const Digest expected = DigestModel(model.plan, model.Base(), options.threads);
  std::vector<double> samples;
  for (unsigned repeat = 0; repeat <= options.repeats; ++repeat) {
    ChunkScanner scanner(model.plan, map);
    Status status;
    const double seconds =
        bench::Seconds([&] { status = scanner.Add(0, model.plan.chunk_count()).status(); });
    SEGUE_RETURN_IF_ERROR(status);
    check.Expect(scanner.digest().all == expected, "scrub: the digest is not the host's");
    if (repeat != 0) samples.push_back(seconds);
  }
  const double seconds = bench::Median(samples);
  const double rate = static_cast<double>(model.size()) / seconds;
  check.Add(Figure{"scrub", model.workload, model.size(), seconds, {{"bytes_per_second", rate}}});
  check.Add(Goal{"scrub: copy rate over scan rate", copy_rate / rate, 1 / kScrubShareMin, "x"});
  return {};
}

}  // namespace segue::gpu_check
