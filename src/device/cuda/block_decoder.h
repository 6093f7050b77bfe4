// SPDX-License-Identifier: Apache-2.0
//
// Block decoder: one way to have the GPU decode compressed chunks, a group at a time. What it reads
// and what it says of each chunk lie one behind the other, first on the host, then on the device.
// Every decoder says how many bytes it wrote; nothing of it is believed before Examine().
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "device/cuda/kernel_set.h"

namespace segue::cuda {

// One compressed chunk and where it goes. All addresses are multiples of kDecodeAlignment.
inline constexpr std::uint64_t kDecodeAlignment = 256;
struct DecodeJob {
  CUdeviceptr source = 0;
  std::uint64_t source_size = 0;
  CUdeviceptr target = 0;
  std::uint64_t target_size = 0;  // What it must decode to.
  bool is_snappy = false;         // Otherwise LZ4. Of a group's jobs those of Snappy come first.
};

// What jobs of one group are at most, for what a decoder needs besides.
struct JobsBound {
  std::uint64_t count = 0;
  std::uint64_t size_max = 0;  // Of one target.
  std::uint64_t size = 0;      // Of all of them.
};

// A job that was refused, by its number; or all of them, with the number behind the last.
struct Refusal {
  std::size_t job = 0;
  Status reason;
};

class BlockDecoder {
 public:
  // At most, for each job: input and result together.
  static constexpr std::uint64_t kBytesPerJobMax = sizeof(DecodeRow) + sizeof(DecodeResult);

  virtual ~BlockDecoder() = default;

  // Bytes that `count` jobs have of each.
  virtual std::uint64_t InputSize(std::size_t count) const = 0;
  virtual std::uint64_t ResultSize(std::size_t count) const = 0;
  // Memory of the device that it needs besides, for any jobs within the bound.
  virtual Result<std::uint64_t> ScratchSize(const JobsBound&) const { return 0; }
  // Inputs, then results that say: not written.
  virtual void Write(std::span<const DecodeJob> jobs, std::byte* place) const = 0;
  // `place`: of the device, with what Write() has written. Of what is refused as a whole nothing
  // more is enqueued, and what is may have run in part.
  virtual Result<std::optional<Refusal>> Enqueue(std::span<const DecodeJob> jobs, CUdeviceptr place,
                                                 const DeviceBuffer& scratch,
                                                 CUstream stream) const = 0;
  // What came of job `k`: OK where all of it was decoded. `results`: of all jobs.
  virtual Status Examine(std::span<const DecodeJob> jobs, std::size_t k,
                         const std::byte* results) const = 0;
};

// The kernels of snappy_core.h and lz4_core.h. `kernels` outlives it.
std::unique_ptr<const BlockDecoder> MakeKernelDecoder(const KernelSet& kernels);
// The decompression engine. Of Snappy it takes the body, without the length in front.
std::unique_ptr<const BlockDecoder> MakeEngineDecoder(DriverPointer driver);

// How many jobs are Snappy's.
std::size_t SnappyCount(std::span<const DecodeJob> jobs);
// Corruption: other than the job's bytes were written. `how` follows.
Status WrongSize(std::uint64_t written, const DecodeJob& job, const std::string& how);

}  // namespace segue::cuda
