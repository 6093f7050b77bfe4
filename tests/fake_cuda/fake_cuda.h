// SPDX-License-Identifier: Apache-2.0
//
// Fake CUDA: what tests ask of the driver that takes the real one's place (fake_cuda.cc). Found by
// name in the loaded library, as the driver's own functions are. A program that is run for a test
// reads its environment instead: SEGUE_FAKE_CUDA_FAIL names a function of which one call fails, the
// first or that behind SEGUE_FAKE_CUDA_SKIP others; with SEGUE_FAKE_CUDA_FLIP set each apply gets
// one bit wrong. It has cuBLAS's functions as well, which multiply nothing.
#pragma once

#include <cuda.h>

#include <cstdint>

extern "C" {

// The next call of `symbol` after `skip` successful ones fails with `result`, once.
using SegueFakeFail = void (*)(const char* symbol, unsigned skip, CUresult result);
// No more than these bytes can be allocated on the device and pinned on the host from now on.
using SegueFakeLimit = void (*)(std::uint64_t device_bytes, std::uint64_t pinned_bytes);
// The driver knows so many devices from now on; one, after loading.
using SegueFakeDevices = void (*)(int count);
// The next call of `symbol` calls this first, once.
using SegueFakeHook = void (*)(const char* symbol, void (*call)(void* context), void* context);
// What the decompression engine takes from now on: a CUmemDecompressAlgorithm mask (0: there is
// none), the largest block, and the memory node of the host (-1: none).
using SegueFakeEngine = void (*)(unsigned algorithms, std::uint64_t size_max, int host_node);
// Whether another thread captures a stream, in the mode that forbids everybody else what may touch
// it: unless relaxed, a thread can then neither take memory nor give it back nor wait; and nobody
// can wait for a whole context.
using SegueFakeCapture = void (*)(int on);
enum SegueFakeEngineFault {
  kFakeEngineRight,
  kFakeEngineShort,      // Half of the block, and says so.
  kFakeEngineLies,       // All of it, with one wrong bit.
  kFakeEngineWrongSize,  // All of it, and states one byte more.
  kFakeEngineSilent,     // Nothing, and says nothing.
  kFakeEngineRefuses,    // The call fails, with the block's number.
  kFakeEngineFails,      // The call fails, without a number.
  kFakeEngineUnbounded,  // All that the block decodes to, beyond its target.
  kFakeEngineIncapable,  // No memory is capable, whatever it was made for.
  kFakeEngineNoDevice,   // Memory of the host is capable, that of the device is not.
};
// One block is wrong, of the batch after `skip` right ones. Until the next reset or call.
using SegueFakeEngineGoesWrong = void (*)(SegueFakeEngineFault fault, unsigned skip,
                                          std::size_t block);
// As it was after loading. Ends the program where memory is still allocated that a test forgot.
using SegueFakeReset = void (*)();

struct SegueFakeCounts {
  std::uint64_t calls;         // Of functions that can fail.
  std::uint64_t device_bytes;  // Allocated now.
  std::uint64_t device_peak;
  std::uint64_t pinned_bytes;
  std::uint64_t objects;  // Streams, events, modules, contexts.
  std::uint64_t launches;
  std::uint64_t decompressions;  // Batches.
  std::uint64_t least_launches;  // Of those, into streams of the least priority.
};
using SegueFakeCount = SegueFakeCounts (*)();

// For a library that works on the same device, and is linked with this one: whether the calling
// thread has a context, whether bytes are memory of a device, and work for a stream, which has all
// memory while it runs.
int segue_fake_has_context();
int segue_fake_holds(CUdeviceptr address, std::size_t size);
CUresult segue_fake_enqueue(CUstream stream, void (*call)(void* context), void* context);
}

inline constexpr const char* kFakeFail = "segue_fake_fail";
inline constexpr const char* kFakeLimit = "segue_fake_limit";
inline constexpr const char* kFakeDevices = "segue_fake_devices";
inline constexpr const char* kFakeEngine = "segue_fake_engine";
inline constexpr const char* kFakeEngineGoesWrong = "segue_fake_engine_goes_wrong";
inline constexpr const char* kFakeCapture = "segue_fake_capture";
inline constexpr const char* kFakeHook = "segue_fake_hook";
inline constexpr const char* kFakeReset = "segue_fake_reset";
inline constexpr const char* kFakeCount = "segue_fake_count";
