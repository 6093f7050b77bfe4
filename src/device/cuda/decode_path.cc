// SPDX-License-Identifier: Apache-2.0
//
// Rows, order of the two streams, and what is believed of a decoder.
#include "device/cuda/decode_path.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

namespace segue::cuda {
namespace {

// Actual sizes of the engine, before it writes them.
constexpr std::uint32_t kNotWritten = ~std::uint32_t{0};

DecodeRow RowOf(const StagedBlock& block, CUdeviceptr target, const ChunkWork& work) {
  return {reinterpret_cast<const std::byte*>(block.address), block.size,
          reinterpret_cast<std::byte*>(target), work.size};
}

CUmemDecompressParams ParamsOf(const StagedBlock& block, CUdeviceptr target, const ChunkWork& work,
                               CUdeviceptr actual) {
  CUmemDecompressParams params = {};
  params.srcNumBytes = block.size;
  params.dstNumBytes = work.size;
  params.dstActBytes = reinterpret_cast<cuuint32_t*>(actual);
  params.src = reinterpret_cast<const void*>(block.address);
  params.dst = reinterpret_cast<void*>(target);
  params.algo = work.encoding == DeviceEncoding::kSnappy ? CU_MEM_DECOMPRESS_ALGORITHM_SNAPPY
                                                         : CU_MEM_DECOMPRESS_ALGORITHM_LZ4;
  return params;
}

Status WrongSize(std::uint64_t written, const ChunkWork& work, const std::string& how) {
  return Corruption("the GPU's decoder wrote " + std::to_string(written) + " of " +
                    std::to_string(work.size) + " bytes" + how);
}

template <typename T>
T ReadAt(const std::byte* place, std::size_t index) {
  T value;
  std::memcpy(&value, place + index * sizeof(T), sizeof(T));
  return value;
}

template <typename T>
void WriteAt(std::byte* place, std::size_t index, const T& value) {
  std::memcpy(place + index * sizeof(T), &value, sizeof(T));
}

}  // namespace

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

// Results are marked as not written.
DecodePath::Ahead DecodePath::Prepare(const Context& context, Group group, std::byte* host) {
  const bool is_engine = context.stage.decoder() == Decoder::kEngine;
  const std::size_t count = group.items.size();
  Ahead ahead;
  ahead.group = std::move(group);
  ahead.slot = context.slots.host().current();
  ahead.host = host;
  ahead.rows_offset = ahead.group.row_count * sizeof(DenseRow);
  ahead.results_offset = ahead.rows_offset + (is_engine ? 0 : count * sizeof(DecodeRow));
  ahead.result_size = is_engine ? sizeof(kNotWritten) : sizeof(DecodeResult);
  for (std::size_t i = 0; i < count; ++i) ahead.order.push_back(i);
  std::ranges::stable_partition(ahead.order, [&](std::size_t i) {
    return context.run.batch[ahead.group.items[i]].encoding == DeviceEncoding::kSnappy;
  });
  context.slots.WriteRows(context.run, ahead.group, host);
  for (std::size_t k = 0; k < count; ++k) {
    if (is_engine) {
      WriteAt(host + ahead.results_offset, k, kNotWritten);
      continue;
    }
    const std::size_t item = ahead.group.items[ahead.order[k]];
    const CUdeviceptr target = context.slots.device() + ahead.group.offsets[ahead.order[k]];
    WriteAt(host + ahead.rows_offset, k,
            RowOf(context.stage.Of(item), target, context.run.batch[item]));
    WriteAt(host + ahead.results_offset, k, DecodeResult{0, DecodeStatus::kNotRun});
  }
  return ahead;
}

Result<std::optional<Undecodable>> DecodePath::Decode(const Context& context, const Ahead& ahead) {
  const CUdeviceptr behind = context.slots.device() + ahead.group.rows_offset;
  const CUdeviceptr results = behind + ahead.results_offset;
  const std::uint64_t results_size = ahead.group.items.size() * ahead.result_size;
  SEGUE_CUDA_TRY(driver_, cuMemcpyHtoDAsync, behind, ahead.host,
                 ahead.results_offset + results_size, decoding(context.run));
  std::optional<Undecodable> refused;
  if (context.stage.decoder() == Decoder::kEngine) {
    SEGUE_ASSIGN_OR_RETURN(refused, Submit(context, ahead, results));
    if (refused) return refused;
  } else {
    SEGUE_RETURN_IF_ERROR(Launch(context, ahead, behind));
  }
  SEGUE_CUDA_TRY(driver_, cuMemcpyDtoHAsync, ahead.host + ahead.results_offset, results,
                 results_size, decoding(context.run));
  SEGUE_CUDA_TRY(driver_, cuEventRecord, decoded_[ahead.slot].get(), decoding(context.run));
  return refused;
}

Status DecodePath::Launch(const Context& context, const Ahead& ahead, CUdeviceptr behind) {
  const CUdeviceptr rows = behind + ahead.rows_offset;
  const CUdeviceptr results = behind + ahead.results_offset;
  const auto snappy =
      static_cast<std::uint64_t>(std::ranges::count_if(ahead.group.items, [&](std::size_t item) {
        return context.run.batch[item].encoding == DeviceEncoding::kSnappy;
      }));
  SEGUE_RETURN_IF_ERROR(
      context.kernels.Launch(Kernel::kSnappyDecode, rows, snappy, results, decoding(context.run)));
  return context.kernels.Launch(Kernel::kLz4Decode, rows + snappy * sizeof(DecodeRow),
                                ahead.group.items.size() - snappy,
                                results + snappy * sizeof(DecodeResult), decoding(context.run));
}

Result<std::optional<Undecodable>> DecodePath::Submit(const Context& context, const Ahead& ahead,
                                                      CUdeviceptr results) {
  const Group& group = ahead.group;
  std::vector<CUmemDecompressParams> params;
  for (std::size_t k = 0; k < group.items.size(); ++k) {
    const std::size_t item = group.items[ahead.order[k]];
    params.push_back(ParamsOf(context.stage.Of(item),
                              context.slots.device() + group.offsets[ahead.order[k]],
                              context.run.batch[item], results + k * sizeof(kNotWritten)));
  }
  std::size_t error_index = params.size();
  const Status status =
      driver_->Check(driver_->cuMemBatchDecompressAsync(params.data(), params.size(), 0,
                                                        &error_index, decoding(context.run)),
                     "cuMemBatchDecompressAsync");
  if (status.ok()) return std::optional<Undecodable>();
  if (error_index >= params.size()) return status;
  return std::optional(Undecodable{group.items[ahead.order[error_index]], status});
}

std::optional<Undecodable> DecodePath::Check(const Context& context, const Ahead& ahead) const {
  std::optional<Undecodable> first;
  for (std::size_t k = 0; k < ahead.order.size(); ++k) {
    const std::size_t item = ahead.group.items[ahead.order[k]];
    const ChunkWork& work = context.run.batch[item];
    Status status;
    if (context.stage.decoder() == Decoder::kEngine) {
      const auto actual = ReadAt<std::uint32_t>(ahead.host + ahead.results_offset, k);
      if (actual != work.size) {
        status = WrongSize(actual == kNotWritten ? 0 : actual, work, "");
      }
    } else {
      const auto result = ReadAt<DecodeResult>(ahead.host + ahead.results_offset, k);
      if (result.status != DecodeStatus::kDecoded || result.written != work.size) {
        status = WrongSize(result.written, work,
                           ", status " + std::to_string(static_cast<unsigned>(result.status)));
      }
    }
    if (!status.ok() && (!first || item < first->index)) first = Undecodable{item, status};
  }
  return first;
}

// The group has been decoded: the kernel may read it.
Result<std::optional<Undecodable>> DecodePath::Finish(const Context& context, const Ahead& ahead) {
  SEGUE_CUDA_TRY(driver_, cuEventSynchronize, decoded_[ahead.slot].get());
  std::optional<Undecodable> undecodable = Check(context, ahead);
  if (undecodable) return undecodable;
  SEGUE_RETURN_IF_ERROR(
      context.slots.Launch(context.kernels, context.run, ahead.group, ahead.slot, context.stream));
  SEGUE_CUDA_TRY(driver_, cuEventRecord, used_[ahead.slot].get(), context.stream);
  return undecodable;
}

Result<std::optional<Undecodable>> DecodePath::RunGroups(const Context& context) {
  std::optional<Undecodable> undecodable;
  std::optional<Ahead> before;
  for (auto left = context.run.items; !left.empty() && !undecodable;) {
    std::byte* host = nullptr;
    SEGUE_ASSIGN_OR_RETURN(host, context.slots.host().Next());
    const unsigned slot = context.slots.host().current();
    SEGUE_CUDA_TRY(driver_, cuEventSynchronize, used_[slot].get());
    context.slots.Collect(context.run, slot);
    Group group = GroupSlots::NextGroup(context.run, left, context.slots.room().device);
    if (group.items.empty()) return Internal("a chunk is larger than a slot");
    left = left.subspan(group.items.size());
    Ahead ahead = Prepare(context, std::move(group), host);
    SEGUE_ASSIGN_OR_RETURN(undecodable, Decode(context, ahead));
    if (undecodable) break;
    if (before) {
      SEGUE_ASSIGN_OR_RETURN(undecodable, Finish(context, *before));
    }
    before = std::move(ahead);
  }
  if (!undecodable && before) {
    SEGUE_ASSIGN_OR_RETURN(undecodable, Finish(context, *before));
  }
  return undecodable;
}

Result<std::optional<Undecodable>> DecodePath::Run(const KernelSet& kernels, GroupSlots& slots,
                                                   const BlockStage& stage, const DenseRun& run,
                                                   CUstream stream) {
  slots.Forget();
  Result<std::optional<Undecodable>> undecodable = RunGroups({kernels, slots, stage, run, stream});
  // Whatever came of it, nobody may still use the slots.
  const Status decoded = Wait(decoding(run));
  const Status used = Wait(stream);
  if (!undecodable.ok()) return undecodable;
  SEGUE_RETURN_IF_ERROR(decoded);
  SEGUE_RETURN_IF_ERROR(used);
  slots.Collect(run, 0);
  slots.Collect(run, 1);
  return undecodable;
}

}  // namespace segue::cuda
