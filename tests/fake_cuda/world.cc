// SPDX-License-Identifier: Apache-2.0
//
// Failing, hooks, streams.
#include "fake_cuda/world.h"

#include <charconv>
#include <cstdlib>
#include <cstring>
#include <utility>

namespace fake_cuda {

thread_local Current current = {};
thread_local CUstreamCaptureMode capture_mode = CU_STREAM_CAPTURE_MODE_GLOBAL;

namespace {

bool IsForbiddenBesideCaptures(const std::string& symbol) {
  if (symbol == SEGUE_FAKE_SYMBOL(cuCtxSynchronize)) return true;
  static const std::set<std::string> unsafe = {
      SEGUE_FAKE_SYMBOL(cuMemAlloc),          SEGUE_FAKE_SYMBOL(cuMemFree),
      SEGUE_FAKE_SYMBOL(cuMemHostAlloc),      SEGUE_FAKE_SYMBOL(cuMemFreeHost),
      SEGUE_FAKE_SYMBOL(cuStreamSynchronize), SEGUE_FAKE_SYMBOL(cuEventSynchronize),
      SEGUE_FAKE_SYMBOL(cuModuleLoadData)};
  return capture_mode != CU_STREAM_CAPTURE_MODE_RELAXED && unsafe.contains(symbol);
}

}  // namespace

World& World::Get() {
  static World* const world = new World;  // Outlives everything that may still call.
  return *world;
}

// What a program that is run for a test cannot be told by call (fake_cuda.h).
World::World() {
  if (const char* const fail = std::getenv("SEGUE_FAKE_CUDA_FAIL"); fail != nullptr) {
    failing = fail;
    failure = CUDA_ERROR_UNKNOWN;
  }
  if (const char* const before = std::getenv("SEGUE_FAKE_CUDA_SKIP"); before != nullptr) {
    const char* const end = before + std::strlen(before);
    if (std::from_chars(before, end, skip).ec != std::errc()) std::abort();
  }
  flips = std::getenv("SEGUE_FAKE_CUDA_FLIP") != nullptr;
}

void World::CallHook(const char* symbol) {
  World& world = Get();
  std::unique_lock lock(world.mutex);
  if (world.hooked != symbol) return;
  world.hooked.clear();
  const auto hook = std::move(world.hook);
  lock.unlock();
  hook();
}

std::uint64_t World::PinnedBytes() const {
  std::uint64_t bytes = 0;
  for (const auto& [address, size] : pinned) bytes += size;
  return bytes;
}

CUresult World::Enter(const char* symbol) {
  ++calls;
  if (captures && IsForbiddenBesideCaptures(symbol)) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  if (failing != symbol) return CUDA_SUCCESS;
  if (skip-- != 0) return CUDA_SUCCESS;
  failing.clear();
  return failure;
}

CUresult World::Enqueue(CUstream handle, std::function<void()> operation) {
  auto* const stream = reinterpret_cast<FakeStream*>(handle);
  if (!streams.contains(stream)) return CUDA_ERROR_INVALID_HANDLE;
  stream->waiting.push_back(std::move(operation));
  ++stream->enqueued;
  return CUDA_SUCCESS;
}

void World::RunUntil(FakeStream& stream, std::uint64_t place) {
  while (stream.done < place) {
    const auto operation = std::move(stream.waiting.front());
    stream.waiting.pop_front();
    ++stream.done;
    memory.With(operation);
  }
}

void World::RunAll() {
  for (FakeStream* stream : streams) RunUntil(*stream, stream->enqueued);
}

}  // namespace fake_cuda
