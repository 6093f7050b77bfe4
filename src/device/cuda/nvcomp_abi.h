// SPDX-License-Identifier: Apache-2.0
//
// nvCOMP's interface as far as it is called here: names, types, order of arguments and sizes, so
// that neither its headers nor its library are needed to build. Read from the headers of 5.1.0,
// 5.3.0 and 6.0.0 (nvcomp.h, shared_types.h, snappy.h, lz4.h), in which they are the same but for
// the function that states how much memory is needed.
#pragma once

#include <cuda.h>

#include <cstddef>
#include <cstdint>

namespace segue::cuda::nvcomp {

using Code = std::int32_t;
inline constexpr Code kSuccess = 0;

struct Properties {
  std::uint32_t version;  // 1000 * major + 100 * minor + patch.
  std::uint32_t cudart_version;
};

struct Alignments {
  std::size_t input;
  std::size_t output;
  std::size_t temporary;
};

// For Snappy and LZ4. What is zero here is: no sorting, and of LZ4 elements of a byte (`data_type`)
// and no shuffling of bits.
struct DecompressOptions {
  std::int32_t backend;
  std::uint32_t zeros[15];
};
static_assert(sizeof(DecompressOptions) == 64);

// The backend that runs on multiprocessors; 0 may choose the decompression engine, 1 does.
inline constexpr std::int32_t kBackendCuda = 2;
// Bytes of a chunk, compressed and not: the lower of the two codecs' bounds.
inline constexpr std::uint64_t kChunkSizeMax = (1ull << 31) - 1;

using GetProperties = Code (*)(Properties*);
using GetStatusString = const char* (*)(Code);
using GetAlignments = Code (*)(DecompressOptions, Alignments*);
// Count of chunks, bytes of the largest one decoded, options, result, bytes of all decoded.
using GetTempSize5 = Code (*)(std::size_t, std::size_t, DecompressOptions, std::size_t*,
                              std::size_t);
using GetTempSize6 = Code (*)(std::size_t, std::size_t, DecompressOptions, std::size_t*,
                              std::size_t, CUstream);
// All arrays are the device's.
using Decompress = Code (*)(const void* const* sources, const std::size_t* source_sizes,
                            const std::size_t* target_sizes, std::size_t* actual_sizes,
                            std::size_t count, void* temporary, std::size_t temporary_size,
                            void* const* targets, DecompressOptions, Code* codes, CUstream);

// Behind "nvcompBatchedSnappy" and "nvcompBatchedLZ4".
inline constexpr const char* kAlignmentsName = "DecompressGetRequiredAlignments";
inline constexpr const char* kTempSizeName5 = "DecompressGetTempSizeAsync";
inline constexpr const char* kTempSizeName6 = "DecompressGetTempSize";
inline constexpr const char* kDecompressName = "DecompressAsync";

}  // namespace segue::cuda::nvcomp
