// SPDX-License-Identifier: Apache-2.0
//
// What the GPU does at best: copies within its memory and over the link to the host.
#include <algorithm>
#include <vector>

#include "bench/bandwidth.h"
#include "bench/gpu/check.h"
#include "bench/gpu/gpu.h"
#include "bench/gpu/machine.h"

namespace segue::gpu_check {
namespace {

constexpr std::uint64_t kLinkSize = 256 << 20;

// Median seconds of `operation`, which is enqueued and waited for.
template <typename Operation>
Result<double> Time(Check& check, Gpu& gpu, Operation operation) {
  std::vector<double> samples;
  for (unsigned repeat = 0; repeat <= check.options.repeats; ++repeat) {
    Status status;
    const double seconds = bench::Seconds([&] {
      status = operation();
      if (status.ok()) status = gpu.Wait();
    });
    SEGUE_RETURN_IF_ERROR(status);
    if (repeat != 0) samples.push_back(seconds);  // The first one warms up.
  }
  return bench::Median(samples);
}

}  // namespace

Result<double> CopyRate(Check& check, Gpu& gpu) {
  const std::uint64_t size =
      std::min<std::uint64_t>(check.options.size, 4ull << 30) / 2 / 256 * 256;
  SEGUE_ASSIGN_OR_RETURN(const cuda::DeviceBuffer buffer, gpu.Allocate(2 * size));
  SEGUE_RETURN_IF_ERROR(gpu.Fill(buffer.address(), 0x5a, 2 * size));
  SEGUE_ASSIGN_OR_RETURN(const double seconds, Time(check, gpu, [&] {
                           return gpu.Copy(buffer.address() + size, buffer.address(), size);
                         }));
  return 2 * static_cast<double>(size) / seconds;
}

Status MeasureMachine(Check& check, Gpu& gpu) {
  SEGUE_ASSIGN_OR_RETURN(const double rate, CopyRate(check, gpu));
  const std::uint64_t size = std::min(kLinkSize, check.options.size);
  check.Add(Figure{"copy on the device",
                   "read plus written",
                   size,
                   static_cast<double>(size) / rate,
                   {{"bytes_per_second", rate}}});
  SEGUE_ASSIGN_OR_RETURN(const cuda::DeviceBuffer buffer, gpu.Allocate(size));
  SEGUE_ASSIGN_OR_RETURN(const cuda::PinnedBuffer pinned, cuda::AllocatePinned(gpu.driver(), size));
  std::fill_n(pinned.data(), size, std::byte{0x5a});
  SEGUE_ASSIGN_OR_RETURN(const double there, Time(check, gpu, [&] {
                           SEGUE_CUDA_TRY(gpu.driver(), cuMemcpyHtoDAsync, buffer.address(),
                                          pinned.data(), size, gpu.stream());
                           return Status();
                         }));
  SEGUE_ASSIGN_OR_RETURN(const double back, Time(check, gpu, [&] {
                           SEGUE_CUDA_TRY(gpu.driver(), cuMemcpyDtoHAsync, pinned.data(),
                                          buffer.address(), size, gpu.stream());
                           return Status();
                         }));
  const auto bytes = static_cast<double>(size);
  check.Add(
      Figure{"copy to the GPU", "pinned", size, there, {{"bytes_per_second", bytes / there}}});
  check.Add(Figure{"copy to the host", "pinned", size, back, {{"bytes_per_second", bytes / back}}});
  return {};
}

}  // namespace segue::gpu_check
