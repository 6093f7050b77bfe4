// SPDX-License-Identifier: Apache-2.0
//
// RunBench (segue/bench.h): one model, one set of threads, one run for every figure, so that ratios
// between them hold even where the machine is not at rest.
#include "base/file.h"
#include "base/scratch_directory.h"
#include "base/threads.h"
#include "bench/bench_model.h"
#include "bench/measure.h"
#include "delta/statistics.h"
#include "device/host/kernels.h"
#include "segue/bench.h"

namespace segue {
namespace {

using bench::BenchModel;
using bench::BenchRun;

Status CheckOptions(const BenchOptions& options) {
  if (options.repeats == 0) return InvalidArgument("repeats must be at least 1");
  if (options.preset == "trace" && options.trace.empty()) {
    return InvalidArgument("preset 'trace' needs the directory of a trace");
  }
  return {};
}

void DescribeModel(const BenchModel& model, const ChangeStatistics& statistics,
                   BenchReport& report) {
  report.model_bytes = model.plan.model_size();
  report.changed_elements = model.changed_elements;
  std::uint64_t element_count = model.element_count;
  if (element_count == 0) {  // A trace: elements as the plan's dtypes say.
    report.changed_elements = statistics.changed_total;
    for (const PlanTensor& tensor : model.plan.tensors()) {
      element_count += tensor.size / DtypeWidth(tensor.spec.dtype);
    }
  }
  report.density =
      static_cast<double>(report.changed_elements) / static_cast<double>(element_count);
  report.entropy_bound_bytes = statistics.entropy_bound_bytes;
}

Status MeasureAll(BenchRun& run, BenchReport& report) {
  for (const Profile profile : kProfiles) {
    SEGUE_ASSIGN_OR_RETURN(report.profiles[std::string(ProfileName(profile))],
                           bench::MeasureProfile(run, profile));
  }
  SEGUE_ASSIGN_OR_RETURN(report.baselines["full_reload"], bench::MeasureFullReload(run));
  SEGUE_ASSIGN_OR_RETURN(report.baselines["disk_delta"], bench::MeasureDiskDelta(run));
  return {};
}

}  // namespace

Result<BenchReport> RunBench(const BenchOptions& options) {
  SEGUE_RETURN_IF_ERROR(CheckOptions(options));
  SEGUE_ASSIGN_OR_RETURN(const ScratchDirectory scratch,
                         ScratchDirectory::Make(options.directory, "segue-bench"));
  SEGUE_ASSIGN_OR_RETURN(const auto store, OpenStore(JoinPath(scratch.path(), "store"), true));
  if (options.progress) options.progress("generate", 0, 0);
  SEGUE_ASSIGN_OR_RETURN(const BenchModel model, bench::MakeBenchModel(options));
  BenchReport report;
  report.preset = options.preset;
  report.threads = ThreadCount(options.threads);
  report.kernels = host::ActiveKernels().name;
  if (options.progress) options.progress("count", 0, 0);
  const ChangeStatistics statistics =
      CountChanges(model.plan, model.BaseView(), model.TargetView(), {report.threads, {}});
  DescribeModel(model, statistics, report);

  BenchRun run{options, model, *store, scratch.path(), report.threads};
  bench::MachineSamples machine;
  machine.Take(run);
  SEGUE_RETURN_IF_ERROR(MeasureAll(run, report));
  machine.Take(run);
  machine.Fill(run, report);
  report.floor_s = static_cast<double>(statistics.lines_touched) * 128 / (report.copy_gbps * 1e9);
  report.verified = run.verified;
  return report;
}

}  // namespace segue
