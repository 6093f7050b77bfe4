// SPDX-License-Identifier: Apache-2.0
//
// Decoders: who can undo Snappy and LZ4 chunks here, and which of them does. Everything else
// (planes, Zstd) is the processor's.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "device/cuda/owners.h"
#include "device/device.h"

namespace segue::cuda {

enum class Decoder {
  kEngine,           // The decompression engine of Blackwell GPUs.
  kMultiprocessors,  // The kernels of snappy_core.h and lz4_core.h.
  kProcessor,
};

// "engine", "multiprocessors", "processor".
std::string_view DecoderName(Decoder decoder);

// What a decoder takes.
struct DecoderReach {
  bool snappy = false;
  bool lz4 = false;
  std::uint64_t size_max = 0;  // Bytes of a chunk, compressed and not.
  int host_node = 0;           // Engine: the host's memory node that it reads from.

  bool any() const { return snappy || lz4; }
  bool Takes(const ChunkWork& work) const;
};

// Nothing where there is no such decoder. In the context's scope.
Result<DecoderReach> AskDecoder(const Context& context, Decoder decoder);

// By name, or the first of the above that there is where the name is empty. InvalidArgument: no
// decoder's name. Unsupported: it is not there.
Result<Decoder> ChooseDecoder(const Context& context, const std::string& name);

}  // namespace segue::cuda
