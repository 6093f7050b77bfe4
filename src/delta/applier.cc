// SPDX-License-Identifier: Apache-2.0
//
// Applier: rows to device work, device verdicts to sentences.
#include "delta/applier.h"

#include <string>

namespace segue {

std::string DescribeChunk(const Plan& plan, std::uint64_t chunk) {
  const ChunkPlace place = plan.Chunk(chunk);
  const PlanTensor& tensor = plan.tensors()[place.tensor];
  return "tensor '" + tensor.spec.name + "' chunk " + std::to_string(chunk - tensor.first_chunk);
}

Applier::Applier(const Plan& plan, const StagedDelta& staged, const MutableModelView& live,
                 Device& device)
    : plan_(plan), staged_(staged), device_(device), work_(staged.AllWork(plan, live)) {
  device.Reserve(plan.chunk_size());
}

Status Applier::Describe(const ChunkFault& fault) const {
  std::string where = DescribeChunk(plan_, staged_.rows()[fault.index].chunk);
  if (fault.verdict == ChunkVerdict::kBaseDiffers) {
    return VersionMismatch(where + ": the weights differ from the base version, expected digest " +
                           staged_.rows()[fault.index].before.ToHex());
  }
  std::string reason = where + ": the payload does not lead to the target that it states";
  if (!fault.detail.ok()) reason += " (" + fault.detail.message() + ")";
  return Corruption(std::move(reason));
}

Status Applier::PreflightOn(Device& device) {
  const auto fault = device.Preflight(work_);
  return fault ? Describe(*fault) : Status();
}

Status Applier::Apply() {
  const auto fault = device_.Apply(work_);
  return fault ? Tainted(Describe(*fault).message()) : Status();
}

}  // namespace segue
