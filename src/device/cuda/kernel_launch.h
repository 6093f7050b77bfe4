// SPDX-License-Identifier: Apache-2.0
//
// How kernels are launched: names, shape of a block, and the four arguments that all of them take
// (rows, count of rows, word keys, sums; decoders leave the keys alone and write results).
#pragma once

#include "base/bytes.h"
#include "device/cuda/warp.h"

namespace segue::cuda {

inline constexpr unsigned kWarpsPerBlockMax = 8;
inline constexpr unsigned kBlockThreadsMax = kWarpsPerBlockMax * kLaneCount;
// As many as the largest GPUs have multiprocessors: with fewer blocks some have nothing to do.
inline constexpr std::uint64_t kBlocksWanted = 160;

// One warp a row; blocks are small where there are few rows.
constexpr unsigned WarpsPerBlock(std::uint64_t row_count) {
  unsigned warps = kWarpsPerBlockMax;
  while (warps > 1 && DivideUp(row_count, warps) < kBlocksWanted) warps /= 2;
  return warps;
}

enum class Kernel : unsigned {
  kSparsePreflight,
  kSparseApply,
  kDenseScan,
  kDensePreflight,
  kDenseApply,
  kDiffFind,
  kDiffPack,
  kSnappyDecode,
  kLz4Decode,
};
inline constexpr unsigned kKernelCount = 9;
inline constexpr const char* kKernelNames[kKernelCount] = {
    "segue_sparse_preflight", "segue_sparse_apply",  "segue_dense_scan",
    "segue_dense_preflight",  "segue_dense_apply",   "segue_diff_find",
    "segue_diff_pack",        "segue_snappy_decode", "segue_lz4_decode"};

}  // namespace segue::cuda
