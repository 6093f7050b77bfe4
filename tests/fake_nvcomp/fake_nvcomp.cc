// SPDX-License-Identifier: Apache-2.0
//
// Fake nvCOMP: a shared library in place of NVIDIA's, for tests of the code that calls it. It works
// on the fake driver's device and in its streams, decodes by the cores of the multiprocessors, and
// is right, or wrong in one way at one block. What the headers ask of a caller it holds the caller
// to: options, alignment, temporary memory, places of arrays.
#include "fake_nvcomp/fake_nvcomp.h"

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "device/cuda/lz4_core.h"
#include "device/cuda/nvcomp_abi.h"
#include "device/cuda/snappy_core.h"
#include "fake_cuda/fake_cuda.h"

#define SEGUE_FAKE extern "C" __attribute__((visibility("default")))

namespace {

using segue::cuda::nvcomp::Alignments;
using segue::cuda::nvcomp::Code;
using segue::cuda::nvcomp::DecompressOptions;
using segue::cuda::nvcomp::kBackendCuda;
using segue::cuda::nvcomp::kSuccess;
using segue::cuda::nvcomp::Properties;

constexpr Code kInvalidValue = 10;
constexpr Code kNotSupported = 11;
constexpr Code kCannotDecompress = 12;
constexpr Code kAlignment = 17;
constexpr Code kCudaError = 1000;

struct State {
  SegueFakeNvcompFault fault = kFakeNvcompRight;
  std::uint64_t fault_call = 0;
  std::size_t fault_block = 0;
  unsigned version = 6000;
  std::size_t alignment = 8;
  std::size_t temporary = 24;
  std::uint64_t calls = 0;
};
State state;

bool IsRight(const DecompressOptions& options) {
  const auto is_zero = [](std::uint32_t word) { return word == 0; };
  return options.backend == kBackendCuda && std::ranges::all_of(options.zeros, is_zero);
}

bool IsAligned(const void* place) {
  return reinterpret_cast<std::uintptr_t>(place) % state.alignment == 0;
}

bool IsOnDevice(const void* place, std::size_t size) {
  return segue_fake_holds(reinterpret_cast<CUdeviceptr>(place), size) != 0;
}

Code TempSize(unsigned major, std::size_t count, const DecompressOptions& options,
              std::size_t* bytes) {
  if (state.version / 1000 != major) return kNotSupported;
  if (!IsRight(options)) return kInvalidValue;
  *bytes = count * state.temporary;
  return kSuccess;
}

// One call, until its stream comes to it.
struct Call {
  bool is_snappy = false;
  const void* const* sources = nullptr;
  const std::size_t* source_sizes = nullptr;
  const std::size_t* target_sizes = nullptr;
  std::size_t* actual_sizes = nullptr;
  std::size_t count = 0;
  void* temporary = nullptr;
  void* const* targets = nullptr;
  Code* codes = nullptr;
  SegueFakeNvcompFault fault = kFakeNvcompRight;
  std::size_t fault_block = 0;
};

void DecodeBlock(const Call& call, std::size_t i) {
  const SegueFakeNvcompFault how = i == call.fault_block ? call.fault : kFakeNvcompRight;
  if (how == kFakeNvcompSilent) return;
  if (!IsAligned(call.sources[i]) || !IsAligned(call.targets[i])) {
    call.codes[i] = kAlignment;
    return;
  }
  std::vector<std::byte> target(call.target_sizes[i]);
  const segue::cuda::DecodeRow row = {static_cast<const std::byte*>(call.sources[i]),
                                      call.source_sizes[i], target.data(), target.size()};
  const segue::cuda::HostWarp warp;
  const auto result =
      call.is_snappy ? segue::cuda::RunSnappyRow(warp, row) : segue::cuda::RunLz4Row(warp, row);
  const bool is_decoded = result.status == segue::cuda::DecodeStatus::kDecoded;
  call.codes[i] = is_decoded && how != kFakeNvcompWrongCode ? kSuccess : kCannotDecompress;
  call.actual_sizes[i] = how == kFakeNvcompShort ? result.written / 2 : result.written;
  if (how == kFakeNvcompWrongSize) ++call.actual_sizes[i];
  if (how == kFakeNvcompLies) target.back() ^= std::byte{1};
  auto* const bytes = static_cast<std::byte*>(call.targets[i]);
  std::memcpy(bytes, target.data(), how == kFakeNvcompShort ? result.written / 2 : result.written);
  if (how == kFakeNvcompBehind) bytes[target.size()] ^= std::byte{1};
}

void Run(void* context) {
  const auto* const call = static_cast<Call*>(context);
  if (state.temporary != 0) std::memset(call->temporary, 0x77, call->count * state.temporary);
  for (std::size_t i = 0; i < call->count; ++i) DecodeBlock(*call, i);
  delete call;
}

Code Decompress(Call call, std::size_t temporary_size, const DecompressOptions& options,
                CUstream stream) {
  if (segue_fake_has_context() == 0) return kCudaError;
  if (!IsRight(options) || call.count == 0) return kInvalidValue;
  const std::size_t words = call.count * sizeof(std::size_t);
  if (!IsOnDevice(call.sources, words) || !IsOnDevice(call.source_sizes, words) ||
      !IsOnDevice(call.target_sizes, words) || !IsOnDevice(call.actual_sizes, words) ||
      !IsOnDevice(call.targets, words) || !IsOnDevice(call.codes, call.count * sizeof(Code))) {
    return kInvalidValue;
  }
  const std::size_t needed = call.count * state.temporary;
  if (temporary_size < needed || !IsAligned(call.temporary)) return kInvalidValue;
  if (needed != 0 && !IsOnDevice(call.temporary, needed)) return kInvalidValue;
  if (state.calls++ == state.fault_call) {
    call.fault = state.fault;
    call.fault_block = state.fault_block;
  }
  if (call.fault == kFakeNvcompRefuses) return kNotSupported;
  const CUresult enqueued = segue_fake_enqueue(stream, Run, new Call(call));
  return enqueued == CUDA_SUCCESS ? kSuccess : kCudaError;
}

}  // namespace

SEGUE_FAKE Code nvcompGetProperties(Properties* properties) {
  *properties = {state.version, 13'000};
  return kSuccess;
}

SEGUE_FAKE const char* nvcompGetStatusString(Code) { return "as the test asked for"; }

// What Snappy and LZ4 have alike.
#define SEGUE_FAKE_CODEC(name, is_snappy)                                                         \
  SEGUE_FAKE Code nvcompBatched##name##DecompressGetRequiredAlignments(DecompressOptions options, \
                                                                       Alignments* wanted) {      \
    if (!IsRight(options)) return kInvalidValue;                                                  \
    *wanted = {state.alignment, state.alignment, state.alignment};                                \
    return kSuccess;                                                                              \
  }                                                                                               \
  SEGUE_FAKE Code nvcompBatched##name##DecompressGetTempSizeAsync(                                \
      std::size_t count, std::size_t, DecompressOptions options, std::size_t* bytes,              \
      std::size_t) {                                                                              \
    return TempSize(5, count, options, bytes);                                                    \
  }                                                                                               \
  SEGUE_FAKE Code nvcompBatched##name##DecompressGetTempSize(                                     \
      std::size_t count, std::size_t, DecompressOptions options, std::size_t* bytes, std::size_t, \
      CUstream) {                                                                                 \
    return TempSize(6, count, options, bytes);                                                    \
  }                                                                                               \
  SEGUE_FAKE Code nvcompBatched##name##DecompressAsync(                                           \
      const void* const* sources, const std::size_t* source_sizes,                                \
      const std::size_t* target_sizes, std::size_t* actual_sizes, std::size_t count,              \
      void* temporary, std::size_t temporary_size, void* const* targets,                          \
      DecompressOptions options, Code* codes, CUstream stream) {                                  \
    return Decompress({is_snappy, sources, source_sizes, target_sizes, actual_sizes, count,       \
                       temporary, targets, codes},                                                \
                      temporary_size, options, stream);                                           \
  }
SEGUE_FAKE_CODEC(Snappy, true)
SEGUE_FAKE_CODEC(LZ4, false)

SEGUE_FAKE void segue_fake_nvcomp_goes_wrong(SegueFakeNvcompFault fault, unsigned skip,
                                             std::size_t block) {
  state.fault = fault;
  state.fault_call = state.calls + skip;
  state.fault_block = block;
}
SEGUE_FAKE void segue_fake_nvcomp_version(unsigned version) { state.version = version; }
SEGUE_FAKE void segue_fake_nvcomp_wants(std::size_t alignment, std::size_t temporary) {
  state.alignment = alignment;
  state.temporary = temporary;
}
SEGUE_FAKE std::uint64_t segue_fake_nvcomp_calls() { return state.calls; }
SEGUE_FAKE void segue_fake_nvcomp_reset() { state = {}; }
