// SPDX-License-Identifier: Apache-2.0
//
// Decoders: who can undo Snappy and LZ4 chunks here, and which of them does. Everything else
// (planes, Zstd) is the processor's. None of the GPU's is believed to be there before it has
// decoded two known blocks.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "base/worker_pool.h"
#include "device/cuda/block_decoder.h"
#include "device/cuda/owners.h"
#include "device/cuda/staging_memory.h"
#include "device/device.h"

namespace segue::cuda {

enum class Decoder {
  kEngine,           // The decompression engine of Blackwell GPUs.
  kMultiprocessors,  // The kernels of snappy_core.h and lz4_core.h.
  kNvcomp,           // Those of nvCOMP, where it is installed. Never unless asked for.
  kProcessor,
};

// "engine", "multiprocessors", "nvcomp", "processor".
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

// A decoder, what it takes, and how it is called; null: not by the GPU.
struct DecoderUse {
  Decoder decoder = Decoder::kProcessor;
  DecoderReach reach;
  const BlockDecoder* how = nullptr;
};

class Decoders {
 public:
  // `kernels` outlives it. `nvcomp_library`: a file, or empty for the name that the linker knows.
  Decoders(ContextPointer context, const KernelSet& kernels, std::string nvcomp_library);

  // By name, or the first of engine, multiprocessors, processor that there is where the name is
  // empty; why another is not taken is said in one line then. InvalidArgument: no decoder's name.
  // Unsupported: it is not there. Anything else: it is, and its trial failed. In the context's
  // scope.
  Result<Decoder> Choose(const std::string& name, const StagingMemory& memory, WorkerPool& pool,
                         CUstream stream);
  // Nothing where there is no such decoder. Unsupported: the driver or the library says why.
  Result<DecoderReach> Ask(Decoder decoder);

  // What was chosen; kMultiprocessors and kProcessor always.
  DecoderUse Use(Decoder decoder) const;

 private:
  Result<DecoderReach> AskEngine() const;
  Result<DecoderReach> AskNvcomp();
  Result<bool> Try(Decoder decoder, const StagingMemory& memory, WorkerPool& pool, CUstream stream);
  Decoder ChooseUnnamed(const StagingMemory& memory, WorkerPool& pool, CUstream stream);

  const ContextPointer context_;
  const std::string nvcomp_library_;
  DecoderReach chosen_;  // What that which was chosen takes.
  std::unique_ptr<const BlockDecoder> kernels_;
  std::unique_ptr<const BlockDecoder> engine_;
  std::unique_ptr<const BlockDecoder> nvcomp_;
};

}  // namespace segue::cuda
