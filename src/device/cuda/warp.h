// SPDX-License-Identifier: Apache-2.0
//
// Warp: 32 lanes in step, as the kernel cores see them. The cores (*_core.h) are templates over a
// warp: DeviceWarp (kernels.cu) is one thread of a real one, HostWarp runs the lanes one after the
// other, so that tests run the very logic of the kernels on a processor, in the same order of
// blocks, warps and rounds. Code between collectives goes into Each(); a value that each lane has
// for itself is a Lanes<T>, read as value[lane].
#pragma once

#include <cstdint>

#ifdef __CUDACC__
#define SEGUE_KERNEL __host__ __device__ __forceinline__
#else
#define SEGUE_KERNEL inline
#endif

// Before a loop whose steps index an array of registers, or whose loads are to be on their way
// together: a device has no other way to either.
#ifdef __CUDA_ARCH__
#define SEGUE_UNROLL _Pragma("unroll")
#else
#define SEGUE_UNROLL
#endif

namespace segue::cuda {

inline constexpr unsigned kLaneCount = 32;

struct HostWarp {
  template <typename T>
  struct Lanes {
    T value[kLaneCount] = {};
    T& operator[](unsigned lane) { return value[lane]; }
    const T& operator[](unsigned lane) const { return value[lane]; }
  };

  template <typename F>
  void Each(F f) const {
    for (unsigned lane = 0; lane < kLaneCount; ++lane) f(lane);
  }
  // Each lane gets what lane `from` (of its own choice) holds.
  template <typename T>
  Lanes<T> Shuffle(const Lanes<T>& values, const Lanes<unsigned>& from) const {
    Lanes<T> result;
    Each([&](unsigned lane) { result[lane] = values[from[lane] % kLaneCount]; });
    return result;
  }
  // What the lane before holds; `first` for lane 0.
  template <typename T>
  Lanes<T> ShiftUp(const Lanes<T>& values, T first) const {
    Lanes<T> result;
    Each([&](unsigned lane) { result[lane] = lane == 0 ? first : values[lane - 1]; });
    return result;
  }
  // Sums over the lanes before, and over all.
  Lanes<std::uint32_t> SumBefore(const Lanes<std::uint32_t>& values, std::uint32_t& total) const {
    Lanes<std::uint32_t> result;
    total = 0;
    Each([&](unsigned lane) {
      result[lane] = total;
      total += values[lane];
    });
    return result;
  }
  std::uint64_t Sum(const Lanes<std::uint64_t>& values) const {
    std::uint64_t sum = 0;
    Each([&](unsigned lane) { sum += values[lane]; });
    return sum;
  }
  std::uint64_t Or(const Lanes<std::uint64_t>& values) const {
    std::uint64_t bits = 0;
    Each([&](unsigned lane) { bits |= values[lane]; });
    return bits;
  }
  bool Any(const Lanes<bool>& values) const {
    bool any = false;
    Each([&](unsigned lane) { any = any || values[lane]; });
    return any;
  }
  // Bit k: what lane k holds.
  std::uint32_t Ballot(const Lanes<bool>& values) const {
    std::uint32_t mask = 0;
    Each([&](unsigned lane) { mask |= std::uint32_t{values[lane]} << lane; });
    return mask;
  }
  template <typename T>
  T Last(const Lanes<T>& values) const {
    return values[kLaneCount - 1];
  }
  // What lanes have written to memory is there for all of them.
  void Sync() const {}
};

}  // namespace segue::cuda
