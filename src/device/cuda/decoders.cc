// SPDX-License-Identifier: Apache-2.0
//
// Asking the driver.
#include "device/cuda/decoders.h"

#include <algorithm>

namespace segue::cuda {
namespace {

constexpr Decoder kAll[] = {Decoder::kEngine, Decoder::kMultiprocessors, Decoder::kProcessor};

Result<DecoderReach> AskEngine(const Context& context) {
  const DriverPointer& driver = context.driver();
  DecoderReach reach;
  if (!driver->has_engine_functions()) return reach;
  int algorithms = 0;
  int size_max = 0;
  SEGUE_CUDA_TRY(driver, cuDeviceGetAttribute, &algorithms,
                 CU_DEVICE_ATTRIBUTE_MEM_DECOMPRESS_ALGORITHM_MASK, context.device());
  if (algorithms == 0) return reach;
  SEGUE_CUDA_TRY(driver, cuDeviceGetAttribute, &size_max,
                 CU_DEVICE_ATTRIBUTE_MEM_DECOMPRESS_MAXIMUM_LENGTH, context.device());
  SEGUE_CUDA_TRY(driver, cuDeviceGetAttribute, &reach.host_node, CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID,
                 context.device());
  if (reach.host_node < 0 || size_max <= 0) return DecoderReach();
  reach.snappy = (algorithms & CU_MEM_DECOMPRESS_ALGORITHM_SNAPPY) != 0;
  reach.lz4 = (algorithms & CU_MEM_DECOMPRESS_ALGORITHM_LZ4) != 0;
  reach.size_max = static_cast<std::uint64_t>(size_max);
  return reach;
}

}  // namespace

std::string_view DecoderName(Decoder decoder) {
  switch (decoder) {
    case Decoder::kEngine: return "engine";
    case Decoder::kMultiprocessors: return "multiprocessors";
    default: return "processor";
  }
}

bool DecoderReach::Takes(const ChunkWork& work) const {
  const bool is_codec = (work.encoding == DeviceEncoding::kSnappy && snappy) ||
                        (work.encoding == DeviceEncoding::kLz4 && lz4);
  return is_codec && std::max<std::uint64_t>(work.size, work.dense.size()) <= size_max;
}

Result<DecoderReach> AskDecoder(const Context& context, Decoder decoder) {
  if (decoder == Decoder::kEngine) return AskEngine(context);
  return DecoderReach{true, true, ~std::uint64_t{0}, 0};
}

Result<Decoder> ChooseDecoder(const Context& context, const std::string& name) {
  for (const Decoder decoder : kAll) {
    if (!name.empty() && name != DecoderName(decoder)) continue;
    DecoderReach reach;
    SEGUE_ASSIGN_OR_RETURN(reach, AskDecoder(context, decoder));
    if (reach.any()) return decoder;
    if (!name.empty()) return Unsupported("this GPU or its driver has no decompression engine");
  }
  return InvalidArgument("no decoder '" + name + "': engine, multiprocessors, processor");
}

}  // namespace segue::cuda
