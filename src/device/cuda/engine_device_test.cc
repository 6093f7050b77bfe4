// SPDX-License-Identifier: Apache-2.0
//
// Devices whose engine or nvCOMP is wrong, on the fake driver and the fake nvCOMP. Method: whole
// updates with a decoder that lies, refuses or lacks memory, before the pause and in it, and with
// each of the driver's calls failing: the update ends in its target, or is refused with nothing
// written, and who is at fault is said.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "device/cuda/batch_testing.h"
#include "device/cuda/cuda_device.h"
#include "device/cuda/testing.h"

namespace segue::cuda {
namespace {

using ::testing::HasSubstr;
using ::testing::internal::CaptureStderr;
using ::testing::internal::GetCapturedStderr;

class EngineDeviceTest : public ::testing::Test {
 protected:
  EngineDeviceTest() { fake_.SetEngine(); }
  std::shared_ptr<Accelerator> MakeDevice(const CudaDeviceOptions& options) {
    auto device = Must(MakeCudaDevice(fake_.driver, options));
    device->Reserve(kChunkSize);
    return device;
  }
  static CudaDeviceOptions Named(const std::string& decoder) {
    return {.threads = 1, .decoder = decoder, .nvcomp_library = SEGUE_FAKE_NVCOMP};
  }
  static constexpr const char* kRefusals[] = {"engine", "engine, one chunk", "nvcomp"};
  // Sets up one of these, which begin with who it is: so many groups are taken, then one is not; by
  // nvCOMP at its LZ4.
  void Refuse(const std::string& refusal, unsigned group) {
    if (refusal == "engine") fake_.EngineGoesWrong(kFakeEngineFails, group);
    if (refusal == "engine, one chunk") fake_.EngineGoesWrong(kFakeEngineRefuses, group, 1);
    if (refusal == "nvcomp") nvcomp_.GoesWrong(kFakeNvcompRefuses, 2 * group + 1);
  }
  // The whole update, of which `line` is said in preflight or apply.
  void ExpectUpdates(Accelerator& device, const std::string& line) {
    CaptureStderr();
    const auto found = device.Preflight(work_);
    EXPECT_FALSE(found.has_value()) << found->detail.ToString();
    EXPECT_EQ(live_.Read(), batch_.base);
    EXPECT_FALSE(device.Apply(work_).has_value());
    EXPECT_THAT(GetCapturedStderr(), HasSubstr(line));
    EXPECT_EQ(live_.Read(), batch_.target);
  }

  FakeDriver fake_;
  FakeNvcomp nvcomp_;
  Batch batch_{14};
  DeviceBytes live_{fake_.driver, batch_.base};
  std::vector<ChunkWork> work_ = batch_.At(live_.data());
};

// The processor says that the chunk is good: then it is the decoder that is not.
TEST_F(EngineDeviceTest, AWrongDecoderIsNotThePayloadsFault) {
  const auto check = [&](const std::string& decoder, auto go_wrong) {
    const auto device = MakeDevice(Named(decoder));
    ASSERT_TRUE(device->Load(work_).ok());
    go_wrong();
    const auto found = device->Preflight(work_);
    ASSERT_TRUE(found.has_value());
    EXPECT_EQ(found->verdict, ChunkVerdict::kDeviceFailed);
    EXPECT_EQ(found->detail.code(), StatusCode::kInternal);
    EXPECT_THAT(found->detail.message(), HasSubstr("chunk 2 of the batch"));
    EXPECT_THAT(found->detail.message(), HasSubstr(decoder));
    EXPECT_EQ(found->index, 2u);
    EXPECT_EQ(live_.Read(), batch_.base);
  };
  for (const SegueFakeEngineFault fault :
       {kFakeEngineShort, kFakeEngineWrongSize, kFakeEngineSilent}) {
    SCOPED_TRACE(fault);
    check("engine", [&] { fake_.EngineGoesWrong(fault); });
  }
  for (const SegueFakeNvcompFault fault :
       {kFakeNvcompShort, kFakeNvcompWrongSize, kFakeNvcompWrongCode, kFakeNvcompSilent}) {
    SCOPED_TRACE(fault);
    check("nvcomp", [&] { nvcomp_.GoesWrong(fault); });
  }
}

// Sizes are right, bytes are not: the sums find it, before the pause and in it.
TEST_F(EngineDeviceTest, ADecoderThatLiesIsFoundByTheProof) {
  for (const std::string decoder : {"engine", "nvcomp"}) {
    const auto lie = [&] {
      if (decoder == "engine") fake_.EngineGoesWrong(kFakeEngineLies);
      if (decoder == "nvcomp") nvcomp_.GoesWrong(kFakeNvcompLies);
    };
    live_.Write(batch_.base);
    const auto device = MakeDevice(Named(decoder));
    ASSERT_TRUE(device->Load(work_).ok());
    lie();
    ASSERT_TRUE(device->Preflight(work_).has_value());
    EXPECT_EQ(live_.Read(), batch_.base);
    ASSERT_FALSE(device->Preflight(work_).has_value());
    lie();
    ASSERT_TRUE(device->Apply(work_).has_value());
  }
}

// Before the pause the multiprocessors take over, for this update alone.
TEST_F(EngineDeviceTest, ARefusalBeforeThePauseIsNoFailure) {
  for (const std::string refusal : kRefusals) {
    const std::string decoder = refusal.substr(0, 6);
    const auto device = MakeDevice(Named(decoder));
    for (const bool refuses : {true, false}) {
      SCOPED_TRACE(refusal + (refuses ? " refuses" : ""));
      live_.Write(batch_.base);
      ASSERT_TRUE(device->Load(work_).ok());
      EXPECT_EQ(device->decoder(), decoder);
      if (refuses) Refuse(refusal, 0);
      const std::string line = "'multiprocessors' in place of '" + decoder + "'";
      ExpectUpdates(*device, refuses ? line : "");
      EXPECT_EQ(device->decoder(), refuses ? "multiprocessors" : decoder);
      device->Unload();
    }
  }
}

// Nothing that the decoder did before counts: here a wrong bit in the group before.
TEST_F(EngineDeviceTest, ARefusalBeforeThePauseBeginsTheProofAgain) {
  Batch many(140);
  const DeviceBytes live(fake_.driver, many.base);
  const auto work = many.At(live.data());
  CaptureStderr();
  const auto device = MakeDevice({.threads = 1, .decoder = "engine", .memory_max = 3 << 20});
  ASSERT_TRUE(device->Load(work).ok());
  fake_.EngineGoesWrong(kFakeEngineLies);
  fake_.Fail("cuMemBatchDecompressAsync", 1, CUDA_ERROR_NOT_SUPPORTED);
  const std::uint64_t batches = fake_.Count().decompressions;
  const auto found = device->Preflight(work);
  ASSERT_FALSE(found.has_value()) << found->detail.ToString();
  EXPECT_EQ(fake_.Count().decompressions - batches, 1u);
  ASSERT_FALSE(device->Apply(work).has_value());
  EXPECT_THAT(GetCapturedStderr(), HasSubstr("'multiprocessors' in place of 'engine'"));
  EXPECT_EQ(live.Read(), many.target);
}

// What the processor refuses too is the payload's fault. Here a match that reaches the last bytes,
// against the rule of LZ4 that the walk does not look at.
TEST_F(EngineDeviceTest, ABrokenChunkThatIsRefusedIsThePayloadsFault) {
  ByteVector block = {std::byte{0x1f}, std::byte{7}, std::byte{1}, std::byte{0}};
  block.insert(block.end(), 32, std::byte{255});
  block.insert(block.end(), {std::byte{11}, std::byte{0x10}, std::byte{9}});
  work_[4].dense = block;
  const auto device = MakeDevice(Named("engine"));
  ASSERT_TRUE(device->Load(work_).ok());
  fake_.EngineGoesWrong(kFakeEngineRefuses, 0, 2);  // Behind two of Snappy.
  const auto found = device->Preflight(work_);
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(found->index, 4u);
  EXPECT_EQ(found->verdict, ChunkVerdict::kPayloadDiffers);
  EXPECT_EQ(found->detail.code(), StatusCode::kCorruption);
  EXPECT_EQ(device->decoder(), "engine");
}

// Where the multiprocessors' memory cannot be had then, the processor decodes.
TEST_F(EngineDeviceTest, ARefusalBeforeThePauseFindsNoMemory) {
  const auto device = MakeDevice(Named("engine"));
  ASSERT_TRUE(device->Load(work_).ok());
  fake_.EngineGoesWrong(kFakeEngineFails);
  fake_.Limit(fake_.Count().device_bytes);
  ExpectUpdates(*device, "'processor' in place of 'engine'");
  EXPECT_EQ(device->decoder(), "processor");
}

// In the pause the processor decodes what is left, and takes no memory for it.
TEST_F(EngineDeviceTest, ARefusalInThePauseEndsInTheTarget) {
  Batch many(140);
  const DeviceBytes live(fake_.driver, many.base);
  const auto work = many.At(live.data());
  for (const std::string refusal : kRefusals) {
    const std::string decoder = refusal.substr(0, 6);
    for (const unsigned group : {0u, 1u, 2u}) {
      SCOPED_TRACE(refusal + " " + std::to_string(group));
      live.Write(many.base);
      CaptureStderr();
      CudaDeviceOptions options = Named(decoder);
      options.memory_max = 3 << 20;
      const auto device = MakeDevice(options);
      ASSERT_TRUE(device->Load(work).ok());
      const std::uint64_t before = fake_.Count().decompressions + nvcomp_.Calls();
      ASSERT_FALSE(device->Preflight(work).has_value());
      EXPECT_GE(fake_.Count().decompressions + nvcomp_.Calls() - before, 3u);  // Groups.
      Refuse(refusal, group);
      fake_.Limit(fake_.Count().device_bytes, fake_.Count().pinned_bytes);
      const auto found = device->Apply(work);
      ASSERT_FALSE(found.has_value()) << found->detail.ToString();
      EXPECT_THAT(GetCapturedStderr(),
                  HasSubstr("'processor' in place of '" + decoder + "', in the pause"));
      EXPECT_EQ(live.Read(), many.target);
      EXPECT_EQ(device->decoder(), "processor");
      fake_.Limit(~std::uint64_t{0});
    }
  }
}

TEST_F(EngineDeviceTest, SlotsThatTheEngineCannotUseAreNotGivenToIt) {
  const auto device = MakeDevice({.threads = 1});
  EXPECT_EQ(device->decoder(), "engine");
  fake_.EngineGoesWrong(kFakeEngineNoDevice);
  CaptureStderr();
  ASSERT_TRUE(device->Load(work_).ok());
  EXPECT_THAT(GetCapturedStderr(), HasSubstr("slots that the engine cannot use"));
  EXPECT_EQ(device->decoder(), "multiprocessors");
  ExpectUpdates(*device, "");
}

TEST_F(EngineDeviceTest, NvcompsMemoryIsTakenBeforeThePauseAndCounted) {
  constexpr std::uint64_t kEach = 1 << 20;
  const auto peak = [&](const std::string& decoder) {
    live_.Write(batch_.base);
    const auto device = MakeDevice(Named(decoder));
    nvcomp_.Wants(256, kEach);
    EXPECT_TRUE(device->Load(work_).ok());
    EXPECT_FALSE(device->Preflight(work_).has_value());
    bool called = false;
    auto note = [&] { called = true; };
    fake_.Hook("cuMemAlloc_v2", note);
    EXPECT_FALSE(device->Apply(work_).has_value());
    EXPECT_FALSE(called);
    auto nothing = [] {};
    fake_.Hook("none", nothing);
    EXPECT_EQ(live_.Read(), batch_.target);
    EXPECT_EQ(device->decoder(), decoder);
    return device->staging_use().peak;
  };
  // Four chunks of a batch of 14 are compressed so.
  EXPECT_EQ(peak("nvcomp") - peak("multiprocessors"), 4 * kEach);
}

TEST_F(EngineDeviceTest, WithoutNvcompsMemoryTheMultiprocessorsDecode) {
  CudaDeviceOptions options = Named("nvcomp");
  options.memory_max = 512 << 20;
  const auto device = MakeDevice(options);
  nvcomp_.Wants(256, 1 << 30);
  CaptureStderr();
  ASSERT_TRUE(device->Load(work_).ok());
  EXPECT_THAT(GetCapturedStderr(), HasSubstr("'multiprocessors' in place of 'nvcomp'"));
  ExpectUpdates(*device, "");
}

// More than before the pause, where it was enough: nothing is called that would write elsewhere.
TEST_F(EngineDeviceTest, AnNvcompThatWantsMoreMemoryInThePauseIsNotCalled) {
  const auto device = MakeDevice(Named("nvcomp"));
  ASSERT_TRUE(device->Load(work_).ok());
  ASSERT_FALSE(device->Preflight(work_).has_value());
  nvcomp_.Wants(256, 1 << 20);
  const std::uint64_t calls = nvcomp_.Calls();
  CaptureStderr();
  ASSERT_FALSE(device->Apply(work_).has_value());
  EXPECT_THAT(GetCapturedStderr(), HasSubstr("bytes of temporary memory"));
  EXPECT_EQ(nvcomp_.Calls(), calls);
  EXPECT_EQ(live_.Read(), batch_.target);
}

TEST_F(EngineDeviceTest, WhatIsTooLongForItIsTheProcessors) {
  fake_.SetEngine(kChunkSize - 1);
  const auto device = MakeDevice({.threads = 1});
  const std::uint64_t batches = fake_.Count().decompressions;
  ASSERT_TRUE(device->Load(work_).ok());
  ASSERT_FALSE(device->Preflight(work_).has_value());
  ASSERT_FALSE(device->Apply(work_).has_value());
  EXPECT_EQ(live_.Read(), batch_.target);
  EXPECT_EQ(fake_.Count().decompressions, batches);
}

// Memory for it cannot be had, at any of the steps: the multiprocessors decode, which is said.
TEST_F(EngineDeviceTest, WithoutMemoryForItTheMultiprocessorsDecode) {
  for (const char* symbol : {"cuMemGetAllocationGranularity", "cuMemCreate", "cuMemAddressReserve",
                             "cuMemMap", "cuMemSetAccess", "incapable"}) {
    SCOPED_TRACE(symbol);
    live_.Write(batch_.base);
    const auto device = MakeDevice({.threads = 1, .decoder = "engine"});
    fake_.Fail(symbol, 0, CUDA_ERROR_NOT_SUPPORTED);
    if (std::string(symbol) == "incapable") fake_.EngineGoesWrong(kFakeEngineIncapable);
    CaptureStderr();
    ASSERT_TRUE(device->Load(work_).ok());
    EXPECT_THAT(GetCapturedStderr(), HasSubstr("'multiprocessors' in place of 'engine'"));
    EXPECT_EQ(device->decoder(), "multiprocessors");
    ASSERT_FALSE(device->Preflight(work_).has_value());
    ASSERT_FALSE(device->Apply(work_).has_value());
    EXPECT_EQ(live_.Read(), batch_.target);
  }
}

// The arena is counted too; where it does not fit beside the slots, they give way.
TEST_F(EngineDeviceTest, AnyBudgetIsKept) {
  unsigned taken = 0;
  for (std::uint64_t budget = 512 << 20; budget > 1000; budget = budget * 2 / 3) {
    CaptureStderr();
    const auto device = MakeDevice({.threads = 1, .memory_max = budget});
    live_.Write(batch_.base);
    const Status loaded = device->Load(work_);
    GetCapturedStderr();
    if (loaded.ok()) {
      ++taken;
      ASSERT_FALSE(device->Preflight(work_).has_value());
      ASSERT_FALSE(device->Apply(work_).has_value());
      ASSERT_EQ(live_.Read(), batch_.target);
    } else {
      EXPECT_EQ(loaded.code(), StatusCode::kResourceExhausted);
    }
    ASSERT_LE(device->staging_use().peak, budget);
  }
  EXPECT_GT(taken, 5u);
}

TEST_F(EngineDeviceTest, SurvivesEveryFailingCall) {
  unsigned failures = 0;
#define SEGUE_FAKE_TEXT(name) #name
#define SEGUE_FAKE_SYMBOL(name) SEGUE_FAKE_TEXT(name),
  for (const char* symbol :
       {SEGUE_CUDA_FUNCTIONS(SEGUE_FAKE_SYMBOL) SEGUE_CUDA_ENGINE_FUNCTIONS(SEGUE_FAKE_SYMBOL)}) {
    for (const unsigned call : {0u, 1u, 2u, 5u, 9u, 14u, 20u, 100u, 101u, 105u, 109u, 115u}) {
      const unsigned skip = call % 100;
      const std::string decoder = call < 100 ? "" : "nvcomp";
      SCOPED_TRACE(std::string(symbol) + " " + std::to_string(call));
      live_.Write(batch_.base);
      fake_.Fail(symbol, skip, CUDA_ERROR_LAUNCH_FAILED);
      bool applying = false;
      CaptureStderr();
      const Status status = UpdateOnce(fake_.driver, work_, applying, Named(decoder));
      GetCapturedStderr();
      fake_.Fail("none", 0);
      failures += status.ok() ? 0 : 1;
      EXPECT_TRUE(status.ok() || status.code() == StatusCode::kInternal) << status.ToString();
      if (status.ok()) {
        ASSERT_EQ(live_.Read(), batch_.target);
      } else if (!applying) {
        ASSERT_EQ(live_.Read(), batch_.base);
      }
    }
  }
  EXPECT_GT(failures, 40u);
}

}  // namespace
}  // namespace segue::cuda
