// SPDX-License-Identifier: Apache-2.0
//
// The cores on HostWarp, block by block and warp by warp.
#include "fake_cuda/run_kernel.h"

#include "device/cuda/dense_core.h"
#include "device/cuda/diff_core.h"
#include "device/cuda/lz4_core.h"
#include "device/cuda/snappy_core.h"
#include "device/cuda/sparse_core.h"

namespace fake_cuda {
namespace {

using segue::cuda::DecodeResult;
using segue::cuda::DecodeRow;
using segue::cuda::DenseRow;
using segue::cuda::FindRow;
using segue::cuda::FindSums;
using segue::cuda::HostWarp;
using segue::cuda::Kernel;
using segue::cuda::PackRow;
using segue::cuda::PackSums;
using segue::cuda::RowSums;
using segue::cuda::SparseRow;
using segue::cuda::WordKeys;

RowSums RunRow(Kernel kernel, CUdeviceptr rows, std::uint64_t row, const WordKeys& keys) {
  using segue::cuda::DensePass;
  const HostWarp warp;
  const SparseRow& sparse = reinterpret_cast<const SparseRow*>(rows)[row];
  const DenseRow& dense = reinterpret_cast<const DenseRow*>(rows)[row];
  switch (kernel) {
    case Kernel::kSparsePreflight:
      return segue::cuda::RunSparseRow<HostWarp, false>(warp, sparse, keys);
    case Kernel::kSparseApply: return segue::cuda::RunSparseRow<HostWarp, true>(warp, sparse, keys);
    case Kernel::kDenseScan:
      return segue::cuda::RunDenseRow<HostWarp, DensePass::kScan>(warp, dense, keys);
    case Kernel::kDensePreflight:
      return segue::cuda::RunDenseRow<HostWarp, DensePass::kPreflight>(warp, dense, keys);
    default: break;
  }
  return segue::cuda::RunDenseRow<HostWarp, DensePass::kApply>(warp, dense, keys);
}

void RunDecoder(Kernel kernel, const Arguments& arguments, std::uint64_t warps) {
  const HostWarp warp;
  const auto* const rows = reinterpret_cast<const DecodeRow*>(arguments.rows);
  auto* const results = reinterpret_cast<DecodeResult*>(arguments.sums);
  for (std::uint64_t row = 0; row < warps && row < arguments.row_count; ++row) {
    results[row] = kernel == Kernel::kSnappyDecode ? segue::cuda::RunSnappyRow(warp, rows[row])
                                                   : segue::cuda::RunLz4Row(warp, rows[row]);
  }
}

// A kernel that stores one wrong bit.
void FlipBit(Kernel kernel, CUdeviceptr rows) {
  if (kernel == Kernel::kSparseApply) {
    *reinterpret_cast<const SparseRow*>(rows)->place.live ^= std::byte{1};
  } else if (kernel == Kernel::kDenseApply) {
    *reinterpret_cast<const DenseRow*>(rows)->place.live ^= std::byte{1};
  }
}

}  // namespace

void RunKernel(Kernel kernel, const Arguments& arguments, std::uint64_t warps, bool flips) {
  if (flips && arguments.row_count != 0) FlipBit(kernel, arguments.rows);
  const auto* const words = reinterpret_cast<const std::uint32_t*>(arguments.keys);
  const WordKeys keys = {{words, words + segue::kDigestBlockWords}};
  if (kernel == Kernel::kSnappyDecode || kernel == Kernel::kLz4Decode) {
    return RunDecoder(kernel, arguments, warps);
  }
  for (std::uint64_t row = 0; row < warps && row < arguments.row_count; ++row) {
    if (kernel == Kernel::kDiffFind) {
      const auto* const rows = reinterpret_cast<const FindRow*>(arguments.rows);
      reinterpret_cast<FindSums*>(arguments.sums)[row] = RunFindRow(HostWarp(), rows[row], keys);
    } else if (kernel == Kernel::kDiffPack) {
      const auto* const rows = reinterpret_cast<const PackRow*>(arguments.rows);
      reinterpret_cast<PackSums*>(arguments.sums)[row] = RunPackRow(HostWarp(), rows[row], keys);
    } else {
      reinterpret_cast<RowSums*>(arguments.sums)[row] = RunRow(kernel, arguments.rows, row, keys);
    }
  }
}

}  // namespace fake_cuda
