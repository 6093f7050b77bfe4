// SPDX-License-Identifier: Apache-2.0
//
// Kernels: the cores on real warps, one chunk a warp. Compiled to a fat binary that the library
// carries and the driver loads; C names, since the driver finds them by name.
#include "device/cuda/dense_core.h"
#include "device/cuda/kernel_launch.h"
#include "device/cuda/sparse_core.h"

namespace segue::cuda {
namespace {

constexpr unsigned kAllLanes = 0xffffffff;

// One thread of a warp; all 32 call every collective.
struct DeviceWarp {
  unsigned lane;

  template <typename T>
  struct Lanes {
    T value;
    __device__ T& operator[](unsigned) { return value; }
    __device__ const T& operator[](unsigned) const { return value; }
  };

  template <typename F>
  __device__ void Each(F f) const {
    f(lane);
  }
  template <typename T>
  __device__ Lanes<T> Shuffle(const Lanes<T>& values, const Lanes<unsigned>& from) const {
    return {__shfl_sync(kAllLanes, values.value, from.value % kLaneCount)};
  }
  template <typename T>
  __device__ Lanes<T> ShiftUp(const Lanes<T>& values, T first) const {
    const T before = __shfl_up_sync(kAllLanes, values.value, 1);
    return {lane == 0 ? first : before};
  }
  __device__ Lanes<std::uint32_t> SumBefore(const Lanes<std::uint32_t>& values,
                                            std::uint32_t& total) const {
    std::uint32_t sum = values.value;
    for (unsigned step = 1; step < kLaneCount; step *= 2) {
      const std::uint32_t other = __shfl_up_sync(kAllLanes, sum, step);
      if (lane >= step) sum += other;
    }
    total = __shfl_sync(kAllLanes, sum, kLaneCount - 1);
    return {sum - values.value};
  }
  __device__ std::uint64_t Sum(const Lanes<std::uint64_t>& values) const {
    unsigned long long sum = values.value;
    for (unsigned step = kLaneCount / 2; step != 0; step /= 2) {
      sum += __shfl_xor_sync(kAllLanes, sum, step);
    }
    return sum;
  }
  __device__ bool Any(const Lanes<bool>& values) const {
    return __any_sync(kAllLanes, values.value) != 0;
  }
  template <typename T>
  __device__ T Last(const Lanes<T>& values) const {
    return __shfl_sync(kAllLanes, values.value, kLaneCount - 1);
  }
};

// Calls run(row number, warp, keys) for the rows of this block's warps, the word keys in shared
// memory.
template <typename Run>
__device__ void ForEachRow(const std::uint32_t* word_keys, std::uint64_t row_count, Run run) {
  __shared__ std::uint32_t keys[2 * kDigestBlockWords];
  for (unsigned i = threadIdx.x; i < 2 * kDigestBlockWords; i += blockDim.x) keys[i] = word_keys[i];
  __syncthreads();
  const DeviceWarp warp = {threadIdx.x % kLaneCount};
  const std::uint64_t row = std::uint64_t{blockIdx.x} * kWarpsPerBlock + threadIdx.x / kLaneCount;
  if (row < row_count) run(row, warp, WordKeys{{keys, keys + kDigestBlockWords}});
}

template <bool kWrite>
__device__ void RunSparse(const SparseRow* rows, std::uint64_t row_count,
                          const std::uint32_t* word_keys, RowSums* sums) {
  ForEachRow(word_keys, row_count,
             [&](std::uint64_t row, const DeviceWarp& warp, const WordKeys& keys) {
               const RowSums found = RunSparseRow<DeviceWarp, kWrite>(warp, rows[row], keys);
               if (warp.lane == 0) sums[row] = found;
             });
}

template <DensePass kPass>
__device__ void RunDense(const DenseRow* rows, std::uint64_t row_count,
                         const std::uint32_t* word_keys, RowSums* sums) {
  ForEachRow(word_keys, row_count,
             [&](std::uint64_t row, const DeviceWarp& warp, const WordKeys& keys) {
               const RowSums found = RunDenseRow<DeviceWarp, kPass>(warp, rows[row], keys);
               if (warp.lane == 0) sums[row] = found;
             });
}

}  // namespace
}  // namespace segue::cuda

#define SEGUE_ENTRY extern "C" __global__ void __launch_bounds__(segue::cuda::kBlockThreads)

SEGUE_ENTRY segue_sparse_preflight(const segue::cuda::SparseRow* rows, std::uint64_t row_count,
                                   const std::uint32_t* word_keys, segue::cuda::RowSums* sums) {
  segue::cuda::RunSparse<false>(rows, row_count, word_keys, sums);
}

SEGUE_ENTRY segue_sparse_apply(const segue::cuda::SparseRow* rows, std::uint64_t row_count,
                               const std::uint32_t* word_keys, segue::cuda::RowSums* sums) {
  segue::cuda::RunSparse<true>(rows, row_count, word_keys, sums);
}

SEGUE_ENTRY segue_dense_scan(const segue::cuda::DenseRow* rows, std::uint64_t row_count,
                             const std::uint32_t* word_keys, segue::cuda::RowSums* sums) {
  segue::cuda::RunDense<segue::cuda::DensePass::kScan>(rows, row_count, word_keys, sums);
}

SEGUE_ENTRY segue_dense_preflight(const segue::cuda::DenseRow* rows, std::uint64_t row_count,
                                  const std::uint32_t* word_keys, segue::cuda::RowSums* sums) {
  segue::cuda::RunDense<segue::cuda::DensePass::kPreflight>(rows, row_count, word_keys, sums);
}

SEGUE_ENTRY segue_dense_apply(const segue::cuda::DenseRow* rows, std::uint64_t row_count,
                              const std::uint32_t* word_keys, segue::cuda::RowSums* sums) {
  segue::cuda::RunDense<segue::cuda::DensePass::kApply>(rows, row_count, word_keys, sums);
}
