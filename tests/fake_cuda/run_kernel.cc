// SPDX-License-Identifier: Apache-2.0
//
// The cores on HostWarp, block by block and warp by warp; or the compiled kernels.
#include "fake_cuda/run_kernel.h"

#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <map>
#include <string>
#include <string_view>

#include "device/cuda/dense_core.h"
#include "device/cuda/diff_core.h"
#include "device/cuda/lz4_core.h"
#include "device/cuda/snappy_core.h"
#include "device/cuda/sparse_core.h"
#include "ptx/machine.h"

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

void RunCores(Kernel kernel, const Arguments& arguments, std::uint64_t warps) {
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

// The compiled kernels, where they are asked for.
struct Compiled {
  std::map<std::string, ptx::Kernel> kernels;
  ptx::Order order;

  static const Compiled& Get() {
    static const Compiled compiled;
    return compiled;
  }

 private:
  Compiled() {
    const char* const path = std::getenv("SEGUE_FAKE_CUDA_PTX");
    if (path == nullptr) return;
    std::ifstream file(path);
    kernels = ptx::Parse(std::string(std::istreambuf_iterator<char>(file), {}));
    if (kernels.empty()) throw ptx::Fault(std::string("no kernels in '") + path + "'");
    const char* const seed = std::getenv("SEGUE_FAKE_CUDA_SEED");
    if (seed == nullptr) return;
    const std::string_view digits = seed;
    const auto [end, error] = std::from_chars(digits.begin(), digits.end(), order.seed);
    if (error != std::errc() || end != digits.end()) throw ptx::Fault("no seed");
  }
};

void RunCompiled(const Compiled& compiled, Kernel kernel, const Arguments& arguments,
                 unsigned blocks, unsigned threads) {
  const std::uint64_t values[] = {arguments.rows, arguments.row_count, arguments.keys,
                                  arguments.sums};
  ptx::Run(compiled.kernels.at(segue::cuda::kKernelNames[static_cast<unsigned>(kernel)]), values,
           blocks, threads, compiled.order);
}

}  // namespace

void RunKernel(Kernel kernel, const Arguments& arguments, unsigned blocks, unsigned threads,
               bool flips) {
  if (flips && arguments.row_count != 0) FlipBit(kernel, arguments.rows);
  try {
    const Compiled& compiled = Compiled::Get();
    if (!compiled.kernels.empty()) {
      return RunCompiled(compiled, kernel, arguments, blocks, threads);
    }
  } catch (const std::exception& failed) {
    std::fprintf(stderr, "fake CUDA driver: %s\n", failed.what());
    std::abort();
  }
  RunCores(kernel, arguments, std::uint64_t{blocks} * threads / segue::cuda::kLaneCount);
}

}  // namespace fake_cuda
