// SPDX-License-Identifier: Apache-2.0
//
// Rows, order of the two streams, and what is believed of a decoder.
#include "device/cuda/decode_path.h"

#include <algorithm>
#include <utility>

namespace segue::cuda {
Result<DecodePath> DecodePath::Make(const DriverPointer& driver) {
  DecodePath path;
  path.driver_ = driver;
  SEGUE_ASSIGN_OR_RETURN(path.decoding_before_, MakeStream(driver, StreamPriority::kLeast));
  SEGUE_ASSIGN_OR_RETURN(path.decoding_in_pause_, MakeStream(driver, StreamPriority::kGreatest));
  for (unsigned i = 0; i < 2; ++i) {
    SEGUE_ASSIGN_OR_RETURN(path.decoded_[i], MakeEvent(driver));
    SEGUE_ASSIGN_OR_RETURN(path.used_[i], MakeEvent(driver));
  }
  return path;
}

Status DecodePath::Wait(CUstream stream) {
  SEGUE_CUDA_TRY(driver_, cuStreamSynchronize, stream);
  return {};
}

DecodePath::Ahead DecodePath::Prepare(const Context& context, Group group, std::byte* host) {
  const BlockDecoder& how = context.stage.how();
  const std::size_t count = group.items.size();
  Ahead ahead;
  ahead.group = std::move(group);
  ahead.slot = context.slots.host().current();
  ahead.host = host;
  ahead.input_offset = ahead.group.row_count * sizeof(DenseRow);
  ahead.results_offset = ahead.input_offset + how.InputSize(count);
  for (std::size_t i = 0; i < count; ++i) ahead.order.push_back(i);
  std::stable_partition(ahead.order.begin(), ahead.order.end(), [&](std::size_t i) {
    return context.run.batch[ahead.group.items[i]].encoding == DeviceEncoding::kSnappy;
  });
  for (const std::size_t i : ahead.order) {
    const std::size_t item = ahead.group.items[i];
    ahead.jobs.push_back(context.stage.Job(item, context.run.batch[item],
                                           context.slots.device() + ahead.group.offsets[i]));
  }
  context.slots.WriteRows(context.run, ahead.group, host);
  how.Write(ahead.jobs, host + ahead.input_offset);
  return ahead;
}

Status DecodePath::Decode(const Context& context, const Ahead& ahead) {
  const BlockDecoder& how = context.stage.how();
  const CUstream stream = decoding(context.run);
  const CUdeviceptr behind = context.slots.device() + ahead.group.rows_offset;
  const std::uint64_t results_size = how.ResultSize(ahead.jobs.size());
  SEGUE_CUDA_TRY(driver_, cuMemcpyHtoDAsync, behind, ahead.host,
                 ahead.results_offset + results_size, stream);
  std::optional<Refusal> refusal;
  SEGUE_ASSIGN_OR_RETURN(refusal, how.Enqueue(ahead.jobs, behind + ahead.input_offset,
                                              context.stage.scratch(), stream));
  if (refusal) {
    context.outcome.refused = refusal->reason;
    if (refusal->job < ahead.jobs.size()) {
      context.outcome.undecodable =
          Undecodable{ahead.group.items[ahead.order[refusal->job]], std::move(refusal->reason)};
    }
    return {};
  }
  SEGUE_CUDA_TRY(driver_, cuMemcpyDtoHAsync, ahead.host + ahead.results_offset,
                 behind + ahead.results_offset, results_size, stream);
  SEGUE_CUDA_TRY(driver_, cuEventRecord, decoded_[ahead.slot].get(), stream);
  return {};
}

std::optional<Undecodable> DecodePath::Check(const Context& context, const Ahead& ahead) {
  std::optional<Undecodable> first;
  for (std::size_t k = 0; k < ahead.jobs.size(); ++k) {
    const std::size_t item = ahead.group.items[ahead.order[k]];
    Status status = context.stage.how().Examine(ahead.jobs, k, ahead.host + ahead.results_offset);
    if (status.ok() || (first && first->index < item)) continue;
    first = Undecodable{item, std::move(status)};
  }
  return first;
}

// The group has been decoded: the kernel may read it.
Status DecodePath::Finish(const Context& context, const Ahead& ahead) {
  SEGUE_CUDA_TRY(driver_, cuEventSynchronize, decoded_[ahead.slot].get());
  context.outcome.undecodable = Check(context, ahead);
  if (context.outcome.undecodable) return {};
  SEGUE_RETURN_IF_ERROR(
      context.slots.Launch(context.kernels, context.run, ahead.group, ahead.slot, context.stream));
  context.outcome.done += ahead.group.items.size();
  SEGUE_CUDA_TRY(driver_, cuEventRecord, used_[ahead.slot].get(), context.stream);
  return {};
}

Status DecodePath::RunGroups(const Context& context) {
  DecodeOutcome& outcome = context.outcome;
  std::optional<Ahead> before;
  for (auto left = context.run.items; !left.empty() && !outcome.undecodable;) {
    std::byte* host = nullptr;
    SEGUE_ASSIGN_OR_RETURN(host, context.slots.host().Next());
    const unsigned slot = context.slots.host().current();
    SEGUE_CUDA_TRY(driver_, cuEventSynchronize, used_[slot].get());
    context.slots.Collect(context.run, slot);
    Group group = GroupSlots::NextGroup(context.run, left, context.slots.room().device);
    if (group.items.empty()) return Internal("a chunk is larger than a slot");
    left = left.subspan(group.items.size());
    Ahead ahead = Prepare(context, std::move(group), host);
    SEGUE_RETURN_IF_ERROR(Decode(context, ahead));
    if (!outcome.refused.ok()) break;
    if (before) SEGUE_RETURN_IF_ERROR(Finish(context, *before));
    before = std::move(ahead);
  }
  if (!outcome.undecodable && before) return Finish(context, *before);
  return {};
}

Result<DecodeOutcome> DecodePath::Run(const KernelSet& kernels, GroupSlots& slots,
                                      const BlockStage& stage, const DenseRun& run,
                                      CUstream stream) {
  slots.Forget();
  DecodeOutcome outcome;
  const Status ended = RunGroups({kernels, slots, stage, run, stream, outcome});
  // Whatever came of it, nobody may still use the slots.
  const Status decoded = Wait(decoding(run));
  const Status used = Wait(stream);
  SEGUE_RETURN_IF_ERROR(ended);
  SEGUE_RETURN_IF_ERROR(decoded);
  SEGUE_RETURN_IF_ERROR(used);
  slots.Collect(run, 0);
  slots.Collect(run, 1);
  return outcome;
}

}  // namespace segue::cuda
