// SPDX-License-Identifier: Apache-2.0
//
// What tests ask of the fake driver (fake_cuda.h).
#include <cstdio>

#include "fake_cuda/world.h"

using fake_cuda::World;

SEGUE_FAKE void segue_fake_fail(const char* symbol, unsigned skip, CUresult result) {
  World& world = World::Get();
  world.failing = symbol;
  world.skip = skip;
  world.failure = result;
}

SEGUE_FAKE void segue_fake_limit(std::uint64_t device_bytes, std::uint64_t pinned_bytes) {
  World& world = World::Get();
  world.device_max = device_bytes;
  world.pinned_max = pinned_bytes;
}

SEGUE_FAKE void segue_fake_devices(int count) { World::Get().device_count = count; }

SEGUE_FAKE void segue_fake_capture(int on) {
  const std::lock_guard lock(World::Get().mutex);
  World::Get().captures = on != 0;
}

SEGUE_FAKE void segue_fake_hook(const char* symbol, void (*call)(void* context), void* context) {
  World& world = World::Get();
  const std::lock_guard lock(world.mutex);
  world.hooked = symbol;
  world.hook = [=] { call(context); };
}

SEGUE_FAKE int segue_fake_has_context() { return fake_cuda::current.IsThere() ? 1 : 0; }

SEGUE_FAKE int segue_fake_holds(CUdeviceptr address, std::size_t size) {
  const std::lock_guard lock(World::Get().mutex);
  return World::Get().memory.Holds(address, size) ? 1 : 0;
}

SEGUE_FAKE CUresult segue_fake_enqueue(CUstream stream, void (*call)(void* context),
                                       void* context) {
  const std::lock_guard lock(World::Get().mutex);
  return World::Get().Enqueue(stream, [=] { call(context); });
}

SEGUE_FAKE void segue_fake_engine(unsigned algorithms, std::uint64_t size_max, int host_node) {
  fake_cuda::Engine& engine = World::Get().engine;
  engine.algorithms = algorithms;
  engine.size_max = size_max;
  engine.host_node = host_node;
}

SEGUE_FAKE void segue_fake_engine_goes_wrong(SegueFakeEngineFault fault, unsigned skip,
                                             std::size_t block) {
  fake_cuda::Engine& engine = World::Get().engine;
  engine.fault = fault;
  engine.fault_call = skip;
  engine.fault_block = block;
}

SEGUE_FAKE SegueFakeCounts segue_fake_count() {
  World& world = World::Get();
  SegueFakeCounts counts = {};
  counts.calls = world.calls;
  counts.device_bytes = world.memory.bytes();
  counts.device_peak = world.memory.peak();
  counts.pinned_bytes = world.PinnedBytes();
  counts.objects = world.streams.size() + world.events.size() + world.modules + world.contexts +
                   world.memory.mappings() + world.engine.objects();
  counts.launches = world.launches;
  counts.least_launches = world.least_launches;
  counts.decompressions = world.engine.batches;
  return counts;
}

SEGUE_FAKE void segue_fake_reset() {
  World& world = World::Get();
  const SegueFakeCounts counts = segue_fake_count();
  if (counts.device_bytes + counts.pinned_bytes + counts.objects != 0) {
    std::fputs("fake CUDA: something was never given back\n", stderr);
    std::abort();
  }
  world.failing.clear();
  world.hooked.clear();
  world.captures = false;
  world.device_count = 1;
  world.calls = 0;
  world.launches = 0;
  world.least_launches = 0;
  world.engine.batches = 0;
  segue_fake_engine(0, 0, 0);
  segue_fake_engine_goes_wrong(kFakeEngineRight, 0, 0);
  segue_fake_limit(~std::uint64_t{0}, ~std::uint64_t{0});
}
