// SPDX-License-Identifier: Apache-2.0
//
// Chunks that the GPU decodes, on the fake driver and the fake nvCOMP, by each decoder. Method: the
// batch of every encoding through whole devices, which must say and do what the host device does;
// then groups of few chunks through the path itself, for the order of its two streams and for what
// happens behind a chunk that fails; then an engine and an nvCOMP that are wrong in each way, and
// each of the driver's calls failing.
#include "device/cuda/decode_path.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "device/cuda/batch_testing.h"
#include "device/cuda/block_stage.h"
#include "device/cuda/cuda_device.h"
#include "device/cuda/decoders.h"
#include "device/cuda/engine_arena.h"
#include "device/cuda/testing.h"

namespace segue::cuda {
namespace {

using ::testing::HasSubstr;
using ::testing::internal::CaptureStderr;
using ::testing::internal::GetCapturedStderr;

std::byte* Address(const DeviceBytes& live) { return reinterpret_cast<std::byte*>(live.address()); }

TEST(EngineArenaTest, IsCountedMemoryOfBothSides) {
  FakeDriver fake;
  fake.SetEngine();
  const auto context = Must(Context::Make(fake.driver, 0));
  const InContext in_context(fake.driver);
  const StagingMemory memory(fake.driver, 8192);
  {
    const EngineArena arena = Must(EngineArena::Make(memory, context->device(), 3, 5000));
    EXPECT_EQ(reinterpret_cast<CUdeviceptr>(arena.data()), arena.address());
    std::memset(arena.data(), 7, 5000);
    EXPECT_EQ(memory.use().bytes, 8192u);
    EXPECT_EQ(EngineArena::Make(memory, context->device(), 3, 1).status().code(),
              StatusCode::kResourceExhausted);
  }
  EXPECT_EQ(memory.use().bytes, 0u);
  EXPECT_FALSE(EngineArena::Make(memory, context->device(), 2, 5000).ok());  // Another node.
  fake.EngineGoesWrong(kFakeEngineIncapable);
  EXPECT_EQ(EngineArena::Make(memory, context->device(), 3, 5000).status().code(),
            StatusCode::kUnsupported);
  EXPECT_EQ(memory.use().bytes, 0u);
}

class DecoderTest : public ::testing::TestWithParam<const char*> {
 protected:
  DecoderTest() { fake_.SetEngine(); }
  std::shared_ptr<Accelerator> MakeDevice() {
    auto device = Must(MakeCudaDevice(
        fake_.driver, {.threads = 2, .decoder = GetParam(), .nvcomp_library = SEGUE_FAKE_NVCOMP}));
    device->Reserve(kChunkSize);
    EXPECT_EQ(device->decoder(), GetParam());
    return device;
  }
  FakeDriver fake_;
  FakeNvcomp nvcomp_;
};

TEST_P(DecoderTest, AppliesEveryEncoding) {
  const Batch batch(43);
  const DeviceBytes live(fake_.driver, batch.base);
  const auto device = MakeDevice();
  const std::uint64_t batches = fake_.Count().decompressions;
  const std::uint64_t calls = nvcomp_.Calls();
  const auto work = batch.At(Address(live));
  ASSERT_TRUE(device->Load(work).ok());
  const auto fault = device->Preflight(work);
  ASSERT_FALSE(fault.has_value()) << fault->index << fault->detail.ToString();
  EXPECT_EQ(live.Read(), batch.base);
  ASSERT_FALSE(device->Apply(work).has_value());
  EXPECT_EQ(live.Read(), batch.target);
  const std::string decoder = GetParam();
  EXPECT_EQ(fake_.Count().decompressions - batches, decoder == "engine" ? 2u : 0u);
  EXPECT_EQ(nvcomp_.Calls() - calls, decoder == "nvcomp" ? 4u : 0u);
  EXPECT_EQ(device->decoder(), GetParam());
}

TEST_P(DecoderTest, FindsWhatTheHostFinds) {
  for (const std::size_t i : {2, 4}) {
    for (const int kind : {0, 1, 2, 3}) {
      SCOPED_TRACE(std::to_string(i) + " " + std::to_string(kind));
      Batch batch(14);
      ChunkWork& bad = batch.work[i];
      ByteVector block(bad.dense.begin(), bad.dense.end());
      if (kind == 0) block.pop_back();
      if (kind == 1) block[0] ^= std::byte{1};
      if (kind == 2) bad.after.lane[0] ^= 1;
      if (kind == 3) batch.base[i * kChunkSize] ^= std::byte{1};
      bad.dense = block;
      ByteVector host_live = batch.base;
      const auto host = MakeHostDevice(1);
      host->Reserve(kChunkSize);
      const auto expected = host->Preflight(batch.At(host_live.data()));
      const DeviceBytes live(fake_.driver, batch.base);
      const auto device = MakeDevice();
      const auto work = batch.At(Address(live));
      ASSERT_TRUE(device->Load(work).ok());
      const auto found = device->Preflight(work);
      ASSERT_TRUE(found.has_value() && expected.has_value());
      EXPECT_EQ(found->index, expected->index);
      EXPECT_EQ(found->verdict, expected->verdict);
      EXPECT_EQ(found->detail.code(), expected->detail.code());
      EXPECT_EQ(live.Read(), batch.base);
    }
  }
}

TEST_P(DecoderTest, AppliesTheBeginningOfABatch) {
  const Batch batch(20);
  const DeviceBytes live(fake_.driver, batch.base);
  const auto device = MakeDevice();
  const auto work = batch.At(Address(live));
  ASSERT_TRUE(device->Load(work).ok());
  ASSERT_FALSE(device->Preflight(work).has_value());
  ASSERT_FALSE(device->Apply(std::span(work).first(9)).has_value());
  ByteVector expected = batch.base;
  std::copy_n(batch.target.begin(), 9 * kChunkSize, expected.begin());
  EXPECT_EQ(live.Read(), expected);
}

TEST_P(DecoderTest, GivesAllBack) {
  const Batch batch(14);
  const DeviceBytes live(fake_.driver, batch.base);
  const auto device = MakeDevice();
  const SegueFakeCounts before = fake_.Count();
  const auto work = batch.At(Address(live));
  ASSERT_TRUE(device->Load(work).ok());
  ASSERT_FALSE(device->Preflight(work).has_value());
  device->Unload();
  device->ReleaseStaging();
  EXPECT_EQ(device->staging_use().bytes, 0u);
  const SegueFakeCounts after = fake_.Count();
  EXPECT_EQ(after.device_bytes, before.device_bytes);
  EXPECT_EQ(after.objects, before.objects);
}

INSTANTIATE_TEST_SUITE_P(Decoders, DecoderTest,
                         ::testing::Values("engine", "multiprocessors", "nvcomp", "processor"),
                         [](const auto& parameters) { return std::string(parameters.param); });

// An engine that knows no bound writes what a block states; here far beyond slots and weights. Nor
// does nvCOMP say what it does with such a block.
TEST(DecodingEngine, NoBlockThatDecodesToAnotherSizeReachesDecodersOfOthers) {
  FakeDriver fake;
  FakeNvcomp nvcomp;
  fake.SetEngine();
  const DeviceBytes live(fake.driver, ByteVector(1 << 20));
  // A literal, then a run of 255 times as many bytes as the block has.
  ByteVector block = {std::byte{0x1f}, std::byte{7}, std::byte{1}, std::byte{0}};
  block.insert(block.end(), 600'000, std::byte{255});
  block.insert(block.end(), {std::byte{0}, std::byte{0x10}, std::byte{9}});
  ChunkWork work;
  work.encoding = DeviceEncoding::kLz4;
  work.dense = block;
  work.live = reinterpret_cast<std::byte*>(live.address());
  work.size = 1 << 20;
  const std::vector<ChunkWork> batch = {work};
  for (const char* decoder : {"engine", "nvcomp"}) {
    const auto device = Must(MakeCudaDevice(
        fake.driver, {.threads = 2, .decoder = decoder, .nvcomp_library = SEGUE_FAKE_NVCOMP}));
    fake.EngineGoesWrong(kFakeEngineUnbounded);
    device->Reserve(1 << 20);
    const std::uint64_t decoded = fake.Count().decompressions + nvcomp.Calls();
    ASSERT_TRUE(device->Load(batch).ok());
    const auto fault = device->Preflight(batch);
    ASSERT_TRUE(fault.has_value());
    EXPECT_EQ(fault->verdict, ChunkVerdict::kPayloadDiffers);
    EXPECT_EQ(fake.Count().decompressions + nvcomp.Calls(), decoded);
  }
}

// Chunks of the batch that the GPU decodes, in groups of three, by the path itself.
class DecodePathTest : public ::testing::Test {
 protected:
  DecodePathTest() { fake_.SetEngine(); }

  void Stage(const std::string& name) {
    work_ = batch_.At(Address(live_));
    std::vector<std::size_t> dense;
    for (std::size_t i = 0; i < work_.size(); ++i) {
      if (work_[i].encoding != DeviceEncoding::kSparse) dense.push_back(i);
    }
    const Decoder decoder = Must(decoders_.Choose(name, fake_.driver, pool_, stream_.get()));
    stage_.Plan(decoders_.Use(decoder), work_, dense, pool_);
    ASSERT_TRUE(
        stage_.Load(fake_.driver, 0, slots_.host(), stream_.get(), work_, slots_.room().device)
            .ok());
    ASSERT_EQ(stage_.items().size(), 20u);
    ASSERT_EQ(fake_.driver->cuStreamSynchronize(stream_.get()), CUDA_SUCCESS);
  }
  Result<DecodeOutcome> Run(Kernel kernel) {
    return path_.Run(kernels_, slots_, stage_,
                     {kernel, &loaded_, work_, stage_.items(),
                      [&](std::size_t index, const RowSums&) { taken_.push_back(index); }},
                     stream_.get());
  }
  // Those that have become the target's; all others must be the base's.
  std::vector<std::size_t> Applied() {
    const ByteVector bytes = live_.Read();
    std::vector<std::size_t> applied;
    for (std::size_t i = 0; i < work_.size(); ++i) {
      const auto is = [&](const ByteVector& all) {
        return std::equal(&all[i * kChunkSize], &all[i * kChunkSize] + kChunkSize,
                          &bytes[i * kChunkSize]);
      };
      EXPECT_TRUE(is(batch_.target) || is(batch_.base)) << i;
      if (is(batch_.target)) applied.push_back(i);
    }
    return applied;
  }
  std::vector<std::size_t> Items(std::size_t count) const {
    return {stage_.items().begin(), stage_.items().begin() + static_cast<std::ptrdiff_t>(count)};
  }

  FakeDriver fake_;
  FakeNvcomp nvcomp_;
  WorkerPool pool_{2};
  ContextPointer context_ = Must(Context::Make(fake_.driver, 0));
  InContext in_context_{fake_.driver};
  Stream stream_ = Must(MakeStream(fake_.driver, StreamPriority::kGreatest));
  KernelSet kernels_ = Must(KernelSet::Load(fake_.driver, stream_.get()));
  Decoders decoders_{context_, kernels_, SEGUE_FAKE_NVCOMP};
  GroupSlots slots_ =
      Must(GroupSlots::Make(fake_.driver, kChunkSize, {3 * kChunkSize, 3 * kChunkSize}));
  DecodePath path_ = Must(DecodePath::Make(fake_.driver));
  Batch batch_{70};
  DeviceBytes live_{fake_.driver, batch_.base};
  BlockStage stage_;
  LoadedBatch loaded_;
  std::vector<ChunkWork> work_;
  std::vector<std::size_t> taken_;
};

TEST_F(DecodePathTest, EveryGroupIsDecodedAndApplied) {
  for (const char* decoder : {"engine", "multiprocessors", "nvcomp"}) {
    live_.Write(batch_.base);
    Stage(decoder);
    taken_.clear();
    const DecodeOutcome outcome = Must(Run(Kernel::kDenseApply));
    EXPECT_FALSE(outcome.undecodable.has_value());
    EXPECT_TRUE(outcome.refused.ok());
    EXPECT_EQ(outcome.done, 20u);
    EXPECT_EQ(taken_, Items(20));
    EXPECT_EQ(Applied(), Items(20));
  }
}

// The second group is being decoded before the first is applied.
TEST_F(DecodePathTest, DecodesAGroupAhead) {
  Stage("engine");
  const std::uint64_t before = fake_.Count().decompressions;
  std::uint64_t ahead = 0;
  auto look = [&] { ahead = fake_.Count().decompressions; };
  fake_.Hook("cuLaunchKernel", look);
  ASSERT_FALSE(Must(Run(Kernel::kDenseApply)).undecodable.has_value());
  EXPECT_EQ(ahead - before, 2u);
  EXPECT_EQ(fake_.Count().decompressions - before, 7u);
}

TEST_F(DecodePathTest, NothingIsWrittenFromAChunkThatFailsOn) {
  const auto check = [&](unsigned group) {
    const DecodeOutcome outcome = Must(Run(Kernel::kDenseApply));
    ASSERT_TRUE(outcome.undecodable.has_value());
    // Of a group's chunks the decoder gets those of Snappy first.
    const std::size_t first = group * 3;
    EXPECT_GE(outcome.undecodable->index, stage_.items()[first]);
    if (first + 3 < 20) {
      EXPECT_LT(outcome.undecodable->index, stage_.items()[first + 3]);
    }
    EXPECT_LE(outcome.done, first);
    EXPECT_EQ(Applied(), Items(outcome.done));
  };
  for (const unsigned group : {0u, 1u, 2u, 5u, 6u}) {
    for (const SegueFakeEngineFault fault :
         {kFakeEngineShort, kFakeEngineWrongSize, kFakeEngineSilent, kFakeEngineRefuses}) {
      SCOPED_TRACE("engine " + std::to_string(fault) + " " + std::to_string(group));
      live_.Write(batch_.base);
      Stage("engine");
      fake_.EngineGoesWrong(fault, group, 1);
      check(group);
    }
    for (const SegueFakeNvcompFault fault :
         {kFakeNvcompShort, kFakeNvcompWrongSize, kFakeNvcompWrongCode, kFakeNvcompSilent}) {
      for (const unsigned codec : {0u, 1u}) {  // Snappy, LZ4.
        SCOPED_TRACE("nvcomp " + std::to_string(fault) + " " + std::to_string(group));
        live_.Write(batch_.base);
        Stage("nvcomp");
        nvcomp_.GoesWrong(fault, group * 2 + codec, 0);
        check(group);
      }
    }
  }
}

TEST_F(DecodePathTest, ABrokenBlockOnTheMultiprocessorsStopsIt) {
  const std::size_t broken = 7 * 5 + 2;
  ByteVector block(batch_.work[broken].dense.begin(), batch_.work[broken].dense.end());
  block.pop_back();
  batch_.work[broken].dense = block;
  Stage("multiprocessors");
  const auto undecodable = Must(Run(Kernel::kDenseApply)).undecodable;
  ASSERT_TRUE(undecodable.has_value());
  EXPECT_EQ(undecodable->index, broken);
  EXPECT_THAT(undecodable->reason.message(), HasSubstr("status"));
  EXPECT_EQ(Applied(), Items(9));
  EXPECT_EQ(taken_, Items(9));
}

// What comes before it is done, and said to be.
TEST_F(DecodePathTest, ADecoderThatRefusesAGroupIsToldFromABrokenChunk) {
  for (const std::string decoder : {"engine", "nvcomp"}) {
    for (const unsigned group : {0u, 1u, 2u, 6u}) {
      for (const unsigned codec : {0u, 1u}) {
        SCOPED_TRACE(decoder + " " + std::to_string(group));
        live_.Write(batch_.base);
        Stage(decoder);
        taken_.clear();
        if (decoder == "engine") {
          fake_.EngineGoesWrong(kFakeEngineFails, group);
        } else {
          nvcomp_.GoesWrong(kFakeNvcompRefuses, 2 * group + codec);
        }
        const DecodeOutcome outcome = Must(Run(Kernel::kDenseApply));
        EXPECT_FALSE(outcome.undecodable.has_value());
        EXPECT_EQ(outcome.refused.code(), StatusCode::kInternal);
        EXPECT_EQ(outcome.done, group * 3);
        EXPECT_EQ(taken_, Items(outcome.done));
        EXPECT_EQ(Applied(), Items(outcome.done));
      }
    }
  }
}

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
  std::vector<ChunkWork> work_ = batch_.At(Address(live_));
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
  const auto work = many.At(Address(live));
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
  const auto work = many.At(Address(live));
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
