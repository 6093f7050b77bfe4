// SPDX-License-Identifier: Apache-2.0
//
// Staging memory of a CUDA device: what it counts, what it does where memory is refused, that it
// gives all of it back, and that it does not grow (case H2). On the fake driver, with limits.
#include "device/cuda/staging_memory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "device/cuda/batch_testing.h"
#include "device/cuda/cuda_device.h"
#include "device/cuda/group_slots.h"
#include "device/cuda/testing.h"
#include "device/cuda/update_staging.h"

namespace segue::cuda {
namespace {

using ::testing::HasSubstr;
using ::testing::internal::CaptureStderr;
using ::testing::internal::GetCapturedStderr;

constexpr std::uint64_t kMiB = 1 << 20;

class StagingMemoryTest : public ::testing::Test {
 protected:
  std::shared_ptr<Accelerator> MakeDevice(const CudaDeviceOptions& options) {
    auto device = Must(MakeCudaDevice(fake_.driver, options));
    device->Reserve(kChunkSize);
    return device;
  }
  std::vector<ChunkWork> Work() { return batch_.At(live_.data()); }
  void ExpectUpdates(Accelerator& device) {
    live_.Write(batch_.base);
    const auto work = Work();
    const Status loaded = device.Load(work);
    ASSERT_TRUE(loaded.ok()) << loaded.ToString();
    ASSERT_FALSE(device.Preflight(work).has_value());
    ASSERT_FALSE(device.Apply(work).has_value());
    EXPECT_EQ(live_.Read(), batch_.target);
    device.Unload();
  }

  FakeDriver fake_;
  InContext context_{fake_.driver};
  Batch batch_{40};
  DeviceBytes live_{fake_.driver, batch_.base};
};

TEST_F(StagingMemoryTest, CountsWhatIsTakenAndRefusesWhatIsOverTheBudget) {
  const StagingMemory memory(fake_.driver, 1000);
  EXPECT_EQ(memory.use().max, 1000u);
  {
    const DeviceBuffer first = Must(memory.Device(600));
    PinnedBuffer second = Must(memory.Host(400));
    EXPECT_EQ(memory.use().bytes, 1000u);
    const Status refused = memory.Device(1).status();
    EXPECT_EQ(refused.code(), StatusCode::kResourceExhausted);
    EXPECT_THAT(refused.message(), HasSubstr("memory_max"));
    second = {};
    EXPECT_EQ(memory.use().bytes, 600u);
    EXPECT_TRUE(memory.Device(400).ok());
    EXPECT_EQ(memory.Host(401).status().code(), StatusCode::kResourceExhausted);
  }
  EXPECT_EQ(memory.use().bytes, 0u);
  EXPECT_EQ(memory.use().peak, 1000u);
  EXPECT_EQ(fake_.Count().pinned_bytes, 0u);
}

TEST_F(StagingMemoryTest, WhatTheDriverRefusesIsNotCounted) {
  const StagingMemory memory(fake_.driver, 1000);
  fake_.Fail("cuMemAlloc_v2", 0, CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_FALSE(memory.Device(600).ok());
  EXPECT_EQ(memory.use().bytes, 0u);
  fake_.Fail("cuMemHostAlloc", 0, CUDA_ERROR_INVALID_CONTEXT);
  EXPECT_EQ(memory.Host(600).status().code(), StatusCode::kInternal);
  EXPECT_EQ(memory.use().bytes, 0u);
}

TEST_F(StagingMemoryTest, SaysALineOnce) {
  const StagingMemory memory(fake_.driver);
  CaptureStderr();
  memory.Say("a", "1");
  memory.Say("b", "2");
  memory.Say("a", "3");
  EXPECT_EQ(GetCapturedStderr(), "segue: a: 1\nsegue: b: 2\n");
}

TEST_F(StagingMemoryTest, WithoutPinnedMemoryItIsPageableAndSaidSo) {
  const auto device = MakeDevice({.threads = 2});
  fake_.Limit(~std::uint64_t{0}, 0);
  CaptureStderr();
  ExpectUpdates(*device);
  EXPECT_THAT(GetCapturedStderr(), HasSubstr("pageable"));
  EXPECT_EQ(fake_.Count().pinned_bytes, 0u);
}

// Case H2: 64 MiB are free.
TEST_F(StagingMemoryTest, WhereTheDeviceHasLittleRoomGroupsAreSmaller) {
  const auto device = MakeDevice({.threads = 2});
  fake_.Limit(fake_.Count().device_bytes + 64 * kMiB);
  CaptureStderr();
  ExpectUpdates(*device);
  EXPECT_THAT(GetCapturedStderr(), HasSubstr("16777216 bytes instead of 33554432"));
}

// What goes first: large slots, then chunks that the GPU would decode.
TEST_F(StagingMemoryTest, SlotsGetSmallerBeforeTheProcessorDecodes) {
  const Stream stream = Must(MakeStream(fake_.driver, StreamPriority::kGreatest));
  std::string decoders;
  for (std::uint64_t budget = 512 * kMiB; budget > kMiB; budget -= budget / 64) {
    WorkerPool pool(1);
    const auto context = Must(Context::Make(fake_.driver, 0));
    const KernelSet kernels = Must(KernelSet::Load(fake_.driver, stream.get()));
    Decoders all(context, kernels, "");
    UpdateStaging staging(context, budget);
    ASSERT_TRUE(staging.Choose(all, "", pool, stream.get()).ok());
    staging.Reserve(kChunkSize);
    CaptureStderr();
    const Status loaded = staging.Load(Work(), stream.get());
    GetCapturedStderr();
    if (!loaded.ok()) break;
    const bool decodes = !staging.blocks().items().empty();
    EXPECT_EQ(decodes, staging.decoder() == Decoder::kMultiprocessors);
    const std::string state = staging.slots().room().device > kChunkSize ? "L"
                              : decodes                                  ? "S"
                                                                         : "P";
    if (!decoders.ends_with(state)) decoders += state;
  }
  // Large and small come by turns, as slots are halved and may leave the batch just too little.
  EXPECT_EQ(decoders.front(), 'L') << decoders;
  EXPECT_NE(decoders.find('S'), std::string::npos) << decoders;
  EXPECT_EQ(decoders.find('P'), decoders.size() - 1) << decoders;
}

TEST_F(StagingMemoryTest, AnyBudgetIsKeptOrTheUpdateIsRefusedBeforeThePause) {
  bool refused = false;
  bool taken = false;
  for (std::uint64_t budget = 256 * kMiB; budget > 1000; budget = budget * 3 / 4) {
    const auto device = MakeDevice({.threads = 2, .memory_max = budget});
    live_.Write(batch_.base);
    const auto work = Work();
    CaptureStderr();
    const Status loaded = device->Load(work);
    GetCapturedStderr();
    ASSERT_LE(device->staging_use().peak, budget);
    if (!loaded.ok()) {
      refused = true;
      EXPECT_EQ(loaded.code(), StatusCode::kResourceExhausted);
      EXPECT_THAT(loaded.message(), HasSubstr("memory_max"));
      EXPECT_EQ(live_.Read(), batch_.base);
      continue;
    }
    EXPECT_FALSE(refused) << budget;  // Less is never enough where more was not.
    taken = true;
    ASSERT_FALSE(device->Preflight(work).has_value());
    ASSERT_FALSE(device->Apply(work).has_value());
    ASSERT_EQ(live_.Read(), batch_.target);
    ASSERT_LE(device->staging_use().peak, budget);
  }
  EXPECT_TRUE(refused && taken);
}

// Case H2: the peak is the first update's.
TEST_F(StagingMemoryTest, ThePeakIsFlatOverUpdates) {
  const auto device = MakeDevice({.threads = 2});
  ExpectUpdates(*device);
  const StagingUse first = device->staging_use();
  EXPECT_GE(first.peak, first.bytes);
  for (int i = 0; i < 200; ++i) ExpectUpdates(*device);
  EXPECT_EQ(device->staging_use().peak, first.peak);
  EXPECT_EQ(device->staging_use().bytes, first.bytes);
}

TEST_F(StagingMemoryTest, ReleaseGivesAllBackUnlessABatchIsLoaded) {
  const auto device = MakeDevice({.threads = 2});
  const SegueFakeCounts before = fake_.Count();
  auto work = Work();
  auto parts = PartsOf(work);
  ASSERT_TRUE(device->Scan(work).ok());
  ASSERT_TRUE(device->Load(work).ok());
  device->ReleaseStaging();
  ASSERT_FALSE(device->Preflight(work).has_value());
  ASSERT_FALSE(device->Apply(work).has_value());
  EXPECT_EQ(live_.Read(), batch_.target);
  device->Unload();
  EXPECT_GT(device->staging_use().bytes, 0u);
  device->ReleaseStaging();
  EXPECT_EQ(device->staging_use().bytes, 0u);
  EXPECT_EQ(fake_.Count().device_bytes, before.device_bytes);
  EXPECT_EQ(fake_.Count().pinned_bytes, before.pinned_bytes);
  ExpectUpdates(*device);
}

TEST_F(StagingMemoryTest, SlotsThatAreNotKeptGoWithEachCall) {
  const auto device = MakeDevice({.threads = 2, .keeps_slots = false});
  const auto work = Work();
  ASSERT_TRUE(device->Load(work).ok());
  const auto held = [&] { return fake_.Count().device_bytes + fake_.Count().pinned_bytes; };
  const std::uint64_t loaded = held();
  EXPECT_LT(loaded, kMiB);
  ASSERT_FALSE(device->Preflight(work).has_value());
  EXPECT_EQ(held(), loaded);
  ASSERT_FALSE(device->Apply(work).has_value());
  EXPECT_EQ(held(), loaded);
  EXPECT_GT(device->staging_use().peak, 64 * kMiB);
  device->Unload();
  EXPECT_EQ(device->staging_use().bytes, 0u);
  EXPECT_EQ(live_.Read(), batch_.target);
}

// A scrub between load and apply finds no room rather than take that of the apply's slots.
TEST_F(StagingMemoryTest, AScanCannotTakeTheBudgetOfTheApplysSlots) {
  std::uint64_t budget = 0;
  {
    const auto device = MakeDevice({.threads = 2, .keeps_slots = false});
    const auto work = Work();
    ASSERT_TRUE(device->Load(work).ok());
    budget = device->staging_use().bytes;
  }
  const auto device = MakeDevice({.threads = 2, .memory_max = budget, .keeps_slots = false});
  const auto work = Work();
  ASSERT_TRUE(device->Load(work).ok());
  ASSERT_FALSE(device->Preflight(work).has_value());
  auto scanned = Work();
  auto parts = PartsOf(scanned);
  EXPECT_EQ(device->Scan(scanned).code(), StatusCode::kResourceExhausted);
  ASSERT_FALSE(device->Apply(work).has_value());
  EXPECT_EQ(live_.Read(), batch_.target);
}

TEST_F(StagingMemoryTest, ThePeakIsOfWhatWasHeld) {
  const StagingMemory memory(fake_.driver);
  const InContext context(fake_.driver);
  fake_.Limit(10 * kMiB, 10 * kMiB);
  EXPECT_EQ(memory.Device(20 * kMiB).status().code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(memory.use().peak, 0u);
  { const auto buffer = Must(memory.Device(3 * kMiB)); }
  EXPECT_EQ(memory.use().peak, 3 * kMiB);
  EXPECT_EQ(memory.use().bytes, 0u);
}

TEST_F(StagingMemoryTest, WhereNoPageMayBeLockedHostMemoryIsPageable) {
  for (const CUresult refusal : {CUDA_ERROR_NOT_PERMITTED, CUDA_ERROR_OPERATING_SYSTEM}) {
    const StagingMemory memory(fake_.driver);
    const InContext context(fake_.driver);
    fake_.Fail("cuMemHostAlloc", 0, refusal);
    CaptureStderr();
    const auto buffer = Must(memory.Host(1000));
    EXPECT_THAT(GetCapturedStderr(), HasSubstr("pageable"));
    EXPECT_EQ(fake_.Count().pinned_bytes, 0u);
  }
}

TEST_F(StagingMemoryTest, WhatChangesNothingNeedsNothing) {
  const auto device = MakeDevice({.threads = 2, .memory_max = 1});
  EXPECT_TRUE(device->Load({}).ok());
  EXPECT_FALSE(device->Preflight({}).has_value());
  EXPECT_FALSE(device->Apply({}).has_value());
}

// The driver makes the whole GPU wait to take memory back.
TEST_F(StagingMemoryTest, ABatchTakesTheMemoryOfTheOneBefore) {
  const auto device = MakeDevice({.threads = 2});
  ExpectUpdates(*device);
  for (const char* symbol : {"cuMemFree_v2", "cuMemAlloc_v2", "cuMemHostAlloc", "cuMemFreeHost"}) {
    bool called = false;
    auto note = [&] { called = true; };
    fake_.Hook(symbol, note);
    live_.Write(batch_.base);
    const auto work = Work();
    ASSERT_TRUE(device->Load(work).ok());
    ASSERT_FALSE(device->Preflight(work).has_value());
    ASSERT_FALSE(device->Apply(work).has_value());
    device->Unload();
    EXPECT_FALSE(called) << symbol;
    auto nothing = [] {};
    fake_.Hook("none", nothing);
  }
}

TEST_F(StagingMemoryTest, AnApplyTakesNoMemoryUnlessAskedTo) {
  for (const bool keeps : {true, false}) {
    const auto device = MakeDevice({.threads = 2, .keeps_slots = keeps});
    live_.Write(batch_.base);
    const auto work = Work();
    ASSERT_TRUE(device->Load(work).ok());
    ASSERT_FALSE(device->Preflight(work).has_value());
    for (const char* symbol : {"cuMemAlloc_v2", "cuMemHostAlloc"}) {
      bool called = false;
      auto note = [&] { called = true; };
      fake_.Hook(symbol, note);
      live_.Write(batch_.base);
      ASSERT_FALSE(device->Apply(work).has_value());
      EXPECT_EQ(called, !keeps) << symbol;
      auto nothing = [] {};
      fake_.Hook("none", nothing);
    }
  }
}

}  // namespace
}  // namespace segue::cuda
