// SPDX-License-Identifier: Apache-2.0
//
// Our kernels, and the engine.
#include "device/cuda/block_decoder.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "device/cuda/packed.h"

namespace segue::cuda {
namespace {

class KernelDecoder final : public BlockDecoder {
 public:
  explicit KernelDecoder(const KernelSet& kernels) : kernels_(kernels) {}

  std::uint64_t InputSize(std::size_t count) const override { return count * sizeof(DecodeRow); }
  std::uint64_t ResultSize(std::size_t count) const override {
    return count * sizeof(DecodeResult);
  }

  void Write(std::span<const DecodeJob> jobs, std::byte* place) const override {
    for (std::size_t k = 0; k < jobs.size(); ++k) {
      const DecodeJob& job = jobs[k];
      WriteAt(place, k,
              DecodeRow{reinterpret_cast<const std::byte*>(job.source), job.source_size,
                        reinterpret_cast<std::byte*>(job.target), job.target_size});
      WriteAt(place + InputSize(jobs.size()), k, DecodeResult{0, DecodeStatus::kNotRun});
    }
  }

  Result<std::optional<Refusal>> Enqueue(std::span<const DecodeJob> jobs, CUdeviceptr place,
                                         const DeviceBuffer&, CUstream stream) const override {
    const CUdeviceptr results = place + InputSize(jobs.size());
    const std::size_t snappy = SnappyCount(jobs);
    SEGUE_RETURN_IF_ERROR(kernels_.Launch(Kernel::kSnappyDecode, place, snappy, results, stream));
    SEGUE_RETURN_IF_ERROR(kernels_.Launch(Kernel::kLz4Decode, place + InputSize(snappy),
                                          jobs.size() - snappy, results + ResultSize(snappy),
                                          stream));
    return std::optional<Refusal>();
  }

  Status Examine(std::span<const DecodeJob> jobs, std::size_t k,
                 const std::byte* results) const override {
    const auto result = ReadAt<DecodeResult>(results, k);
    const bool is_whole = result.written == jobs[k].target_size;
    if (result.status == DecodeStatus::kDecoded && is_whole) return {};
    return WrongSize(result.written, jobs[k],
                     ", status " + std::to_string(static_cast<unsigned>(result.status)));
  }

 private:
  const KernelSet& kernels_;
};

// The engine takes its input from the call; of each job it writes the actual size.
class EngineDecoder final : public BlockDecoder {
 public:
  explicit EngineDecoder(DriverPointer driver) : driver_(std::move(driver)) {}

  std::uint64_t InputSize(std::size_t) const override { return 0; }
  std::uint64_t ResultSize(std::size_t count) const override { return count * sizeof(kNotWritten); }

  void Write(std::span<const DecodeJob> jobs, std::byte* place) const override {
    for (std::size_t k = 0; k < jobs.size(); ++k) WriteAt(place, k, kNotWritten);
  }

  Result<std::optional<Refusal>> Enqueue(std::span<const DecodeJob> jobs, CUdeviceptr place,
                                         const DeviceBuffer&, CUstream stream) const override {
    std::vector<CUmemDecompressParams> params;
    for (std::size_t k = 0; k < jobs.size(); ++k) {
      params.push_back(ParamsOf(jobs[k], place + ResultSize(k)));
    }
    std::size_t error_index = params.size();
    Status status = driver_->Check(
        driver_->cuMemBatchDecompressAsync(params.data(), params.size(), 0, &error_index, stream),
        "cuMemBatchDecompressAsync");
    if (status.ok()) return std::optional<Refusal>();
    return std::optional(Refusal{std::min(error_index, jobs.size()), std::move(status)});
  }

  Status Examine(std::span<const DecodeJob> jobs, std::size_t k,
                 const std::byte* results) const override {
    const auto actual = ReadAt<std::uint32_t>(results, k);
    if (actual == jobs[k].target_size) return {};
    return WrongSize(actual == kNotWritten ? 0 : actual, jobs[k], "");
  }

 private:
  static constexpr std::uint32_t kNotWritten = ~std::uint32_t{0};

  static CUmemDecompressParams ParamsOf(const DecodeJob& job, CUdeviceptr actual) {
    CUmemDecompressParams params = {};
    params.srcNumBytes = job.source_size;
    params.dstNumBytes = job.target_size;
    params.dstActBytes = reinterpret_cast<cuuint32_t*>(actual);
    params.src = reinterpret_cast<const void*>(job.source);
    params.dst = reinterpret_cast<void*>(job.target);
    params.algo =
        job.is_snappy ? CU_MEM_DECOMPRESS_ALGORITHM_SNAPPY : CU_MEM_DECOMPRESS_ALGORITHM_LZ4;
    return params;
  }

  const DriverPointer driver_;
};

}  // namespace

std::unique_ptr<const BlockDecoder> MakeKernelDecoder(const KernelSet& kernels) {
  return std::make_unique<KernelDecoder>(kernels);
}

std::unique_ptr<const BlockDecoder> MakeEngineDecoder(DriverPointer driver) {
  return std::make_unique<EngineDecoder>(std::move(driver));
}

std::size_t SnappyCount(std::span<const DecodeJob> jobs) {
  return static_cast<std::size_t>(
      std::ranges::count_if(jobs, [](const DecodeJob& job) { return job.is_snappy; }));
}

Status WrongSize(std::uint64_t written, const DecodeJob& job, const std::string& how) {
  return Corruption("the GPU's decoder wrote " + std::to_string(written) + " of " +
                    std::to_string(job.target_size) + " bytes" + how);
}

}  // namespace segue::cuda
