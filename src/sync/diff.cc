// SPDX-License-Identifier: Apache-2.0
//
// Diff: two checkpoints side by side, and what each profile would send. Writes nothing.
#include <map>
#include <string>

#include "checkpoint/checkpoint.h"
#include "checkpoint/plan.h"
#include "delta/encoder.h"
#include "delta/statistics.h"
#include "segue/inspect.h"

namespace segue {
namespace {

void AddTensor(const PlanTensor& tensor, std::uint64_t changed, DiffClass& sums) {
  sums.tensors += 1;
  sums.tensors_changed += changed != 0;
  sums.bytes += tensor.size;
  sums.elements += tensor.size / DtypeWidth(tensor.spec.dtype);
  sums.changed += changed;
}

DiffReport MakeReport(const Plan& plan, const ChangeStatistics& statistics) {
  DiffReport report;
  for (std::size_t i = 0; i < plan.tensors().size(); ++i) {
    const PlanTensor& tensor = plan.tensors()[i];
    const std::uint64_t changed = statistics.changed[i];
    AddTensor(tensor, changed, report.total);
    AddTensor(tensor, changed, report.by_dtype[std::string(DtypeName(tensor.spec.dtype))]);
    AddTensor(tensor, changed, report.by_class[std::string(TensorClass(tensor.spec.name))]);
  }
  report.xor_bits = statistics.xor_bits;
  report.gaps = statistics.gaps;
  report.one_ulp = statistics.one_ulp;
  report.entropy_bound_bytes = statistics.entropy_bound_bytes;
  return report;
}

std::function<void(std::uint64_t)> StageProgress(const DiffOptions& options, std::string stage,
                                                 std::uint64_t total) {
  if (!options.progress) return {};
  return [&options, stage = std::move(stage), total](std::uint64_t done) {
    options.progress(stage, done, total);
  };
}

}  // namespace

Result<DiffReport> Diff(const DiffOptions& options) {
  SEGUE_ASSIGN_OR_RETURN(const Checkpoint base, Checkpoint::Open(options.base));
  SEGUE_ASSIGN_OR_RETURN(const Checkpoint target, Checkpoint::Open(options.target));
  SEGUE_ASSIGN_OR_RETURN(const Plan plan, Plan::FromCheckpoint(base, options.chunk_size));
  SEGUE_ASSIGN_OR_RETURN(const Plan target_plan, Plan::FromCheckpoint(target, options.chunk_size));
  SEGUE_RETURN_IF_ERROR(ComparePlans(plan, target_plan, options.base, options.target));
  const ModelView base_view = ViewOf(base);
  const ModelView target_view = ViewOf(target);
  const std::uint64_t size = plan.model_size();
  DiffReport report =
      MakeReport(plan, CountChanges(plan, base_view, target_view,
                                    {options.threads, StageProgress(options, "count", size)}));
  for (const Profile profile : kProfiles) {
    const std::string name(ProfileName(profile));
    EncodeOptions encode;
    encode.profile = profile;
    encode.threads = options.threads;
    encode.progress = StageProgress(options, "encode " + name, size);
    SEGUE_ASSIGN_OR_RETURN(
        const EncodeReport encoded,
        EncodeDelta(plan, base_view, target_view, encode, [](ByteSpan) { return Status(); }));
    report.payload_bytes[name] = encoded.payload.size;
  }
  return report;
}

}  // namespace segue
