// SPDX-License-Identifier: Apache-2.0
//
// World: all that the fake driver has given and not got back, what tests have asked of it, and what
// waits in which stream; one for the program, behind one lock. And how every function of the driver
// begins.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <set>
#include <string>

#include "fake_cuda/engine.h"
#include "fake_cuda/fake_cuda.h"
#include "fake_cuda/memory.h"

#define SEGUE_FAKE extern "C" __attribute__((visibility("default")))
#define SEGUE_FAKE_TEXT(name) #name
#define SEGUE_FAKE_SYMBOL(name) SEGUE_FAKE_TEXT(name)
// At the head of each function that ends something: it fails after it has done so.
#define SEGUE_FAKE_ASK(name)                                 \
  fake_cuda::World::CallHook(SEGUE_FAKE_SYMBOL(name));       \
  const std::lock_guard lock(fake_cuda::World::Get().mutex); \
  const CUresult asked = fake_cuda::World::Get().Enter(SEGUE_FAKE_SYMBOL(name))
// At the head of every other function.
#define SEGUE_FAKE_ENTER(name)                                                       \
  fake_cuda::World::CallHook(SEGUE_FAKE_SYMBOL(name));                               \
  const std::lock_guard lock(fake_cuda::World::Get().mutex);                         \
  if (const CUresult asked = fake_cuda::World::Get().Enter(SEGUE_FAKE_SYMBOL(name)); \
      asked != CUDA_SUCCESS)                                                         \
  return asked
// Behind one of them, in functions that work in the thread's current context.
#define SEGUE_FAKE_NEED_CONTEXT() \
  if (!fake_cuda::current.IsThere()) return CUDA_ERROR_INVALID_CONTEXT
#define SEGUE_FAKE_IN_CONTEXT(name) \
  SEGUE_FAKE_ENTER(name);           \
  SEGUE_FAKE_NEED_CONTEXT()

namespace fake_cuda {

struct FakeStream {
  std::deque<std::function<void()>> waiting;
  std::uint64_t enqueued = 0;
  std::uint64_t done = 0;
  int priority = 0;
};

// What a handle for other processes holds.
struct SharedPages {
  std::uint64_t magic;
  int process;
  int file;
  std::size_t size;
  int device;
};
inline constexpr std::uint64_t kShareMagic = 0x6b61665f61647563;

struct FakeEvent {
  FakeStream* stream = nullptr;
  std::uint64_t place = 0;  // Operations of the stream that it waits for.
};

// The contexts of one thread, by the numbers of their devices.
struct Current {
  static constexpr unsigned kDepthMax = 16;
  int devices[kDepthMax];
  unsigned depth;
  bool push_failed;  // As a test asked for: who goes on has nothing better to do.

  bool IsThere() const { return depth != 0 || push_failed; }
  int device() const { return depth != 0 ? devices[depth - 1] : 0; }
};
extern thread_local Current current;

// What the thread says of captures elsewhere, as threads begin.
extern thread_local CUstreamCaptureMode capture_mode;

inline CUcontext ContextOf(int device) {
  return reinterpret_cast<CUcontext>(static_cast<std::uintptr_t>(device) + 1);
}

struct World {
  std::mutex mutex;
  DeviceMemory memory;
  Engine engine;
  std::map<void*, std::size_t> pinned;
  std::set<FakeStream*> streams;
  std::set<FakeEvent*> events;
  std::uint64_t modules = 0;
  std::uint64_t contexts = 0;
  int device_count = 1;
  std::uint64_t calls = 0;
  std::uint64_t launches = 0;
  std::string failing;
  unsigned skip = 0;
  CUresult failure = CUDA_SUCCESS;
  bool flips = false;
  bool captures = false;  // Another thread does.
  std::uint64_t least_launches = 0;
  std::uint64_t device_max = ~std::uint64_t{0};
  std::uint64_t pinned_max = ~std::uint64_t{0};
  std::string hooked;
  std::function<void()> hook;

  static World& Get();
  // Does first what a test wants to happen there, outside of the lock.
  static void CallHook(const char* symbol);
  std::uint64_t PinnedBytes() const;
  // What the call of `symbol` ends with before it has done anything.
  CUresult Enter(const char* symbol);
  CUresult Enqueue(CUstream handle, std::function<void()> operation);
  void RunUntil(FakeStream& stream, std::uint64_t place);
  void RunAll();

 private:
  World();
};

}  // namespace fake_cuda
