// SPDX-License-Identifier: Apache-2.0
//
// Kernels: the cores on real warps, one chunk a warp. Compiled to a fat binary that the library
// carries and the driver loads; C names, since the driver finds them by name.
#include "device/cuda/dense_core.h"
#include "device/cuda/diff_core.h"
#include "device/cuda/kernel_launch.h"
#include "device/cuda/lz4_core.h"
#include "device/cuda/snappy_core.h"
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
  __device__ std::uint64_t Or(const Lanes<std::uint64_t>& values) const {
    const auto low = static_cast<std::uint32_t>(values.value);
    const auto high = static_cast<std::uint32_t>(values.value >> 32);
    return std::uint64_t{__reduce_or_sync(kAllLanes, high)} << 32 |
           __reduce_or_sync(kAllLanes, low);
  }
  __device__ bool Any(const Lanes<bool>& values) const {
    return __any_sync(kAllLanes, values.value) != 0;
  }
  __device__ std::uint32_t Ballot(const Lanes<bool>& values) const {
    return __ballot_sync(kAllLanes, values.value);
  }
  __device__ void Sync() const { __syncwarp(); }
  template <typename T>
  __device__ T Last(const Lanes<T>& values) const {
    return __shfl_sync(kAllLanes, values.value, kLaneCount - 1);
  }
};

// Blocks have as many warps as the launch gave them.
__device__ std::uint64_t RowOfWarp() {
  return (std::uint64_t{blockIdx.x} * blockDim.x + threadIdx.x) / kLaneCount;
}

// One row a warp of this block, the word keys in shared memory.
template <typename Row, auto kRun, typename Sums>
__device__ void RunRows(const Row* rows, std::uint64_t row_count, const std::uint32_t* word_keys,
                        Sums* sums) {
  __shared__ alignas(16) std::uint32_t keys[2 * kDigestBlockWords];
  for (unsigned i = threadIdx.x; i < 2 * kDigestBlockWords; i += blockDim.x) keys[i] = word_keys[i];
  __syncthreads();
  const std::uint64_t row = RowOfWarp();
  if (row >= row_count) return;
  const DeviceWarp warp = {threadIdx.x % kLaneCount};
  const Sums found = kRun(warp, rows[row], WordKeys{{keys, keys + kDigestBlockWords}});
  if (warp.lane == 0) sums[row] = found;
}

// One row a warp, as above; what a decoder needs is in its row.
template <DecodeResult (*kRun)(const DeviceWarp&, const DecodeRow&)>
__device__ void RunDecoder(const DecodeRow* rows, std::uint64_t row_count, DecodeResult* results) {
  const std::uint64_t row = RowOfWarp();
  if (row >= row_count) return;
  const DeviceWarp warp = {threadIdx.x % kLaneCount};
  const DecodeResult found = kRun(warp, rows[row]);
  if (warp.lane == 0) results[row] = found;
}

}  // namespace

// The second number: blocks for which a multiprocessor must have registers at once. Left to itself
// the compiler puts registers into local memory to reach one block more.
#define SEGUE_ENTRY extern "C" __global__ void __launch_bounds__(kBlockThreadsMax, 4)
// Kernels that stream whole chunks hold many loads in each lane.
#define SEGUE_STREAMING_ENTRY extern "C" __global__ void __launch_bounds__(kBlockThreadsMax, 2)

SEGUE_ENTRY segue_sparse_preflight(const SparseRow* rows, std::uint64_t row_count,
                                   const std::uint32_t* word_keys, RowSums* sums) {
  RunRows<SparseRow, RunSparseRow<DeviceWarp, false>>(rows, row_count, word_keys, sums);
}

SEGUE_ENTRY segue_sparse_apply(const SparseRow* rows, std::uint64_t row_count,
                               const std::uint32_t* word_keys, RowSums* sums) {
  RunRows<SparseRow, RunSparseRow<DeviceWarp, true>>(rows, row_count, word_keys, sums);
}

SEGUE_STREAMING_ENTRY segue_dense_scan(const DenseRow* rows, std::uint64_t row_count,
                                       const std::uint32_t* word_keys, RowSums* sums) {
  RunRows<DenseRow, RunDenseRow<DeviceWarp, DensePass::kScan>>(rows, row_count, word_keys, sums);
}

SEGUE_STREAMING_ENTRY segue_dense_preflight(const DenseRow* rows, std::uint64_t row_count,
                                            const std::uint32_t* word_keys, RowSums* sums) {
  RunRows<DenseRow, RunDenseRow<DeviceWarp, DensePass::kPreflight>>(rows, row_count, word_keys,
                                                                    sums);
}

SEGUE_STREAMING_ENTRY segue_dense_apply(const DenseRow* rows, std::uint64_t row_count,
                                        const std::uint32_t* word_keys, RowSums* sums) {
  RunRows<DenseRow, RunDenseRow<DeviceWarp, DensePass::kApply>>(rows, row_count, word_keys, sums);
}

SEGUE_STREAMING_ENTRY segue_diff_find(const FindRow* rows, std::uint64_t row_count,
                                      const std::uint32_t* word_keys, FindSums* sums) {
  RunRows<FindRow, RunFindRow<DeviceWarp>>(rows, row_count, word_keys, sums);
}

SEGUE_ENTRY segue_diff_pack(const PackRow* rows, std::uint64_t row_count,
                            const std::uint32_t* word_keys, PackSums* sums) {
  RunRows<PackRow, RunPackRow<DeviceWarp>>(rows, row_count, word_keys, sums);
}

SEGUE_ENTRY segue_snappy_decode(const DecodeRow* rows, std::uint64_t row_count,
                                const std::uint32_t*, DecodeResult* results) {
  RunDecoder<RunSnappyRow<DeviceWarp>>(rows, row_count, results);
}

SEGUE_ENTRY segue_lz4_decode(const DecodeRow* rows, std::uint64_t row_count, const std::uint32_t*,
                             DecodeResult* results) {
  RunDecoder<RunLz4Row<DeviceWarp>>(rows, row_count, results);
}

}  // namespace segue::cuda
