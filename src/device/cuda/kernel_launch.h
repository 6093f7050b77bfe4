// SPDX-License-Identifier: Apache-2.0
//
// How kernels are launched: names, shape of a block, and the four arguments that all of them take
// (rows, count of rows, word keys, sums; decoders leave the keys alone and write results).
#pragma once

#include "device/cuda/warp.h"

namespace segue::cuda {

inline constexpr unsigned kWarpsPerBlock = 8;
inline constexpr unsigned kBlockThreads = kWarpsPerBlock * kLaneCount;

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
