// SPDX-License-Identifier: Apache-2.0
//
// Asking the driver and nvCOMP, trying, choosing.
#include "device/cuda/decoders.h"

#include <algorithm>
#include <utility>

#include "device/cuda/decoder_trial.h"
#include "device/cuda/nvcomp_decoder.h"

namespace segue::cuda {
namespace {

constexpr Decoder kAll[] = {Decoder::kEngine, Decoder::kMultiprocessors, Decoder::kNvcomp,
                            Decoder::kProcessor};
// In this order where none is named.
constexpr Decoder kUnnamed[] = {Decoder::kEngine, Decoder::kMultiprocessors, Decoder::kProcessor};
constexpr DecoderReach kEverything = {true, true, ~std::uint64_t{0}, 0};

Status NoSuchDecoder(const std::string& name) {
  std::string names;
  for (const Decoder decoder : kAll) {
    names += (names.empty() ? "" : ", ") + std::string(DecoderName(decoder));
  }
  return InvalidArgument("no decoder '" + name + "': " + names);
}

}  // namespace

std::string_view DecoderName(Decoder decoder) {
  switch (decoder) {
    case Decoder::kEngine: return "engine";
    case Decoder::kMultiprocessors: return "multiprocessors";
    case Decoder::kNvcomp: return "nvcomp";
    default: return "processor";
  }
}

bool DecoderReach::Takes(const ChunkWork& work) const {
  const bool is_codec = (work.encoding == DeviceEncoding::kSnappy && snappy) ||
                        (work.encoding == DeviceEncoding::kLz4 && lz4);
  return is_codec && std::max<std::uint64_t>(work.size, work.dense.size()) <= size_max;
}

Decoders::Decoders(ContextPointer context, const KernelSet& kernels, std::string nvcomp_library)
    : context_(std::move(context)),
      nvcomp_library_(std::move(nvcomp_library)),
      kernels_(MakeKernelDecoder(kernels)),
      engine_(MakeEngineDecoder(context_->driver())) {}

// A driver that does not know an attribute has no engine either.
Result<DecoderReach> Decoders::AskEngine() const {
  const Driver& driver = *context_->driver();
  DecoderReach reach;
  if (!driver.has_engine_functions()) return reach;
  int algorithms = 0;
  int size_max = 0;
  for (const auto& [attribute, value] :
       {std::pair{CU_DEVICE_ATTRIBUTE_MEM_DECOMPRESS_ALGORITHM_MASK, &algorithms},
        std::pair{CU_DEVICE_ATTRIBUTE_MEM_DECOMPRESS_MAXIMUM_LENGTH, &size_max},
        std::pair{CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID, &reach.host_node}}) {
    const Status asked = driver.Check(
        driver.cuDeviceGetAttribute(value, attribute, context_->device()), "cuDeviceGetAttribute");
    if (!asked.ok()) {
      return Unsupported("the driver does not say whether there is an engine: " + asked.message());
    }
  }
  if (algorithms == 0 || reach.host_node < 0 || size_max <= 0) return DecoderReach();
  reach.snappy = (algorithms & CU_MEM_DECOMPRESS_ALGORITHM_SNAPPY) != 0;
  reach.lz4 = (algorithms & CU_MEM_DECOMPRESS_ALGORITHM_LZ4) != 0;
  reach.size_max = static_cast<std::uint64_t>(size_max);
  return reach;
}

Result<DecoderReach> Decoders::AskNvcomp() {
  SEGUE_ASSIGN_OR_RETURN(const auto library, NvcompLibrary::Load(nvcomp_library_));
  const DecoderReach reach = {IsAlignedFor(library->snappy()), IsAlignedFor(library->lz4()),
                              nvcomp::kChunkSizeMax, 0};
  if (!reach.any()) return Unsupported("nvCOMP " + library->version() + " wants other alignments");
  nvcomp_ = MakeNvcompDecoder(library);
  return reach;
}

Result<DecoderReach> Decoders::Ask(Decoder decoder) {
  if (decoder == Decoder::kEngine) return AskEngine();
  return decoder == Decoder::kNvcomp ? AskNvcomp() : kEverything;
}

DecoderUse Decoders::Use(Decoder decoder) const {
  switch (decoder) {
    case Decoder::kEngine: return {decoder, chosen_, engine_.get()};
    case Decoder::kMultiprocessors: return {decoder, kEverything, kernels_.get()};
    case Decoder::kNvcomp: return {decoder, chosen_, nvcomp_.get()};
    default: return {};
  }
}

// OK: true, or false where it is simply not there.
Result<bool> Decoders::Try(Decoder decoder, const StagingMemory& memory, WorkerPool& pool,
                           CUstream stream) {
  SEGUE_ASSIGN_OR_RETURN(chosen_, Ask(decoder));
  if (decoder == Decoder::kProcessor) return true;
  if (!chosen_.any()) return false;
  const Status tried = TryDecoder(Use(decoder), context_->device(), memory, pool, stream);
  if (tried.ok()) return true;
  // It is said to be there, so this is no lack but a failure.
  return tried.code() == StatusCode::kUnsupported ? Internal(tried.message()) : tried;
}

Decoder Decoders::ChooseUnnamed(const StagingMemory& memory, WorkerPool& pool, CUstream stream) {
  for (const Decoder decoder : kUnnamed) {
    const Result<bool> is_there = Try(decoder, memory, pool, stream);
    if (is_there.ok() && is_there.value()) return decoder;
    // Most GPUs have no engine, which is nothing to speak of.
    if (is_there.ok()) continue;
    memory.Say("decoder '" + std::string(DecoderName(decoder)) + "' is not used",
               is_there.status().message());
  }
  return Decoder::kProcessor;
}

Result<Decoder> Decoders::Choose(const std::string& name, const StagingMemory& memory,
                                 WorkerPool& pool, CUstream stream) {
  if (name.empty()) return ChooseUnnamed(memory, pool, stream);
  for (const Decoder decoder : kAll) {
    if (name != DecoderName(decoder)) continue;
    const Result<bool> is_there = Try(decoder, memory, pool, stream);
    if (!is_there.ok()) return is_there.status().WithContext("decoder '" + name + "'");
    if (is_there.value()) return decoder;
    return Unsupported("this GPU or its driver has no decompression engine");
  }
  return NoSuchDecoder(name);
}

}  // namespace segue::cuda
