// SPDX-License-Identifier: Apache-2.0
//
// Chunks that the GPU decodes, on the fake driver, by each decoder. Method: the batch of every
// encoding through whole devices, which must say and do what the host device does; then groups of
// few chunks through the path itself, for the order of its two streams and for what happens behind
// a chunk that fails; then an engine that is wrong in each way, and each of its calls failing.
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

TEST(DecodersTest, TheEngineIsOffUntilTheDriverSaysSo) {
  FakeDriver fake;
  const auto context = Must(Context::Make(fake.driver, 0));
  EXPECT_FALSE(Must(AskDecoder(*context, Decoder::kEngine)).any());
  EXPECT_EQ(Must(ChooseDecoder(*context, "")), Decoder::kMultiprocessors);
  EXPECT_EQ(ChooseDecoder(*context, "engine").status().code(), StatusCode::kUnsupported);
  EXPECT_EQ(ChooseDecoder(*context, "nvcomp").status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(Must(ChooseDecoder(*context, "processor")), Decoder::kProcessor);

  fake.SetEngine(5000, 3, CU_MEM_DECOMPRESS_ALGORITHM_LZ4 | CU_MEM_DECOMPRESS_ALGORITHM_DEFLATE);
  const DecoderReach reach = Must(AskDecoder(*context, Decoder::kEngine));
  EXPECT_TRUE(reach.lz4);
  EXPECT_FALSE(reach.snappy);
  EXPECT_EQ(reach.size_max, 5000u);
  EXPECT_EQ(reach.host_node, 3);
  EXPECT_EQ(Must(ChooseDecoder(*context, "")), Decoder::kEngine);
  EXPECT_EQ(Must(ChooseDecoder(*context, "multiprocessors")), Decoder::kMultiprocessors);

  fake.SetEngine(5000, -1);  // No memory node: the engine has nowhere to read from.
  EXPECT_FALSE(Must(AskDecoder(*context, Decoder::kEngine)).any());
  fake.SetEngine(5000, 0);
  fake.Fail("cuDeviceGetAttribute", 0, CUDA_ERROR_UNKNOWN);
  EXPECT_EQ(ChooseDecoder(*context, "").status().code(), StatusCode::kInternal);
}

TEST(DecodersTest, TakesItsCodecsUpToItsSize) {
  ChunkWork work;
  const ByteVector block(700);
  work.size = 1000;
  work.dense = block;
  const DecoderReach reach = {.snappy = true, .size_max = 1000};
  for (const auto& [encoding, takes] :
       {std::pair{DeviceEncoding::kSnappy, true}, std::pair{DeviceEncoding::kLz4, false},
        std::pair{DeviceEncoding::kZstd, false}, std::pair{DeviceEncoding::kRaw, false},
        std::pair{DeviceEncoding::kPlanes, false}, std::pair{DeviceEncoding::kSparse, false}}) {
    work.encoding = encoding;
    EXPECT_EQ(reach.Takes(work), takes);
  }
  work.encoding = DeviceEncoding::kSnappy;
  work.size = 1001;
  EXPECT_FALSE(reach.Takes(work));
  work.size = 100;
  const ByteVector longer(1001);
  work.dense = longer;
  EXPECT_FALSE(reach.Takes(work));
}

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
    auto device = Must(MakeCudaDevice(fake_.driver, {.threads = 2, .decoder = GetParam()}));
    device->Reserve(kChunkSize);
    EXPECT_EQ(device->decoder(), GetParam());
    return device;
  }
  FakeDriver fake_;
};

TEST_P(DecoderTest, AppliesEveryEncoding) {
  const Batch batch(43);
  const DeviceBytes live(fake_.driver, batch.base);
  const auto device = MakeDevice();
  const auto work = batch.At(Address(live));
  ASSERT_TRUE(device->Load(work).ok());
  const auto fault = device->Preflight(work);
  ASSERT_FALSE(fault.has_value()) << fault->index << fault->detail.ToString();
  EXPECT_EQ(live.Read(), batch.base);
  ASSERT_FALSE(device->Apply(work).has_value());
  EXPECT_EQ(live.Read(), batch.target);
  const bool is_engine = std::string(GetParam()) == "engine";
  EXPECT_EQ(fake_.Count().decompressions, is_engine ? 2u : 0u);
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
                         ::testing::Values("engine", "multiprocessors", "processor"),
                         [](const auto& parameters) { return std::string(parameters.param); });

// An engine that knows no bound writes what a block states; here far beyond slots and weights.
TEST(DecodingEngine, NoBlockThatDecodesToAnotherSizeReachesTheEngine) {
  FakeDriver fake;
  fake.SetEngine();
  fake.EngineGoesWrong(kFakeEngineUnbounded);
  const DeviceBytes live(fake.driver, ByteVector(1 << 20));
  // A literal, then a run of 255 times as many bytes as the block has.
  ByteVector block = {std::byte{0x1f}, std::byte{7}, std::byte{1}, std::byte{0}};
  block.insert(block.end(), 600'000, std::byte{255});
  block.insert(block.end(), {std::byte{0}, std::byte{0x10}, std::byte{9}});
  const auto device = Must(MakeCudaDevice(fake.driver, {.threads = 2, .decoder = "engine"}));
  device->Reserve(1 << 20);
  ChunkWork work;
  work.encoding = DeviceEncoding::kLz4;
  work.dense = block;
  work.live = reinterpret_cast<std::byte*>(live.address());
  work.size = 1 << 20;
  const std::vector<ChunkWork> batch = {work};
  ASSERT_TRUE(device->Load(batch).ok());
  const auto fault = device->Preflight(batch);
  ASSERT_TRUE(fault.has_value());
  EXPECT_EQ(fault->verdict, ChunkVerdict::kPayloadDiffers);
  EXPECT_EQ(fake.Count().decompressions, 0u);
}

// Chunks of the batch that the GPU decodes, in groups of three, by the path itself.
class DecodePathTest : public ::testing::Test {
 protected:
  DecodePathTest() { fake_.SetEngine(); }

  void Stage(Decoder decoder) {
    work_ = batch_.At(Address(live_));
    std::vector<std::size_t> dense;
    for (std::size_t i = 0; i < work_.size(); ++i) {
      if (work_[i].encoding != DeviceEncoding::kSparse) dense.push_back(i);
    }
    stage_.Plan(decoder, Must(AskDecoder(*context_, decoder)), work_, dense, pool_);
    ASSERT_TRUE(stage_.Load(fake_.driver, 0, slots_.host(), stream_.get(), work_).ok());
    ASSERT_EQ(stage_.items().size(), 20u);
    ASSERT_EQ(fake_.driver->cuStreamSynchronize(stream_.get()), CUDA_SUCCESS);
  }
  Result<std::optional<Undecodable>> Run(Kernel kernel) {
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
  WorkerPool pool_{2};
  ContextPointer context_ = Must(Context::Make(fake_.driver, 0));
  InContext in_context_{fake_.driver};
  Stream stream_ = Must(MakeStream(fake_.driver, StreamPriority::kGreatest));
  KernelSet kernels_ = Must(KernelSet::Load(fake_.driver, stream_.get()));
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
  for (const Decoder decoder : {Decoder::kEngine, Decoder::kMultiprocessors}) {
    live_.Write(batch_.base);
    Stage(decoder);
    taken_.clear();
    ASSERT_FALSE(Must(Run(Kernel::kDenseApply)).has_value());
    EXPECT_EQ(taken_, Items(20));
    EXPECT_EQ(Applied(), Items(20));
  }
}

// The second group is being decoded before the first is applied.
TEST_F(DecodePathTest, DecodesAGroupAhead) {
  Stage(Decoder::kEngine);
  std::uint64_t ahead = 0;
  auto look = [&] { ahead = fake_.Count().decompressions; };
  fake_.Hook("cuLaunchKernel", look);
  ASSERT_FALSE(Must(Run(Kernel::kDenseApply)).has_value());
  EXPECT_EQ(ahead, 2u);
  EXPECT_EQ(fake_.Count().decompressions, 7u);
}

TEST_F(DecodePathTest, NothingIsWrittenFromAChunkThatFailsOn) {
  for (const SegueFakeEngineFault fault :
       {kFakeEngineShort, kFakeEngineWrongSize, kFakeEngineSilent, kFakeEngineRefuses}) {
    for (const unsigned group : {0u, 1u, 2u, 5u, 6u}) {
      SCOPED_TRACE(std::to_string(fault) + " " + std::to_string(group));
      live_.Write(batch_.base);
      Stage(Decoder::kEngine);
      fake_.EngineGoesWrong(fault, group, 1);
      const auto undecodable = Must(Run(Kernel::kDenseApply));
      ASSERT_TRUE(undecodable.has_value());
      // Of a group's chunks the engine gets those of Snappy first.
      const std::size_t first = group * 3;
      EXPECT_GE(undecodable->index, stage_.items()[first]);
      if (first + 3 < 20) {
        EXPECT_LT(undecodable->index, stage_.items()[first + 3]);
      }
      const std::size_t most = group * 3;
      const auto applied = Applied();
      EXPECT_LE(applied.size(), most);
      EXPECT_EQ(applied, Items(applied.size()));
    }
  }
}

TEST_F(DecodePathTest, ABrokenBlockOnTheMultiprocessorsStopsIt) {
  const std::size_t broken = 7 * 5 + 2;
  ByteVector block(batch_.work[broken].dense.begin(), batch_.work[broken].dense.end());
  block.pop_back();
  batch_.work[broken].dense = block;
  Stage(Decoder::kMultiprocessors);
  const auto undecodable = Must(Run(Kernel::kDenseApply));
  ASSERT_TRUE(undecodable.has_value());
  EXPECT_EQ(undecodable->index, broken);
  EXPECT_THAT(undecodable->reason.message(), HasSubstr("status"));
  EXPECT_EQ(Applied(), Items(9));
  EXPECT_EQ(taken_, Items(9));
}

TEST_F(DecodePathTest, AnEngineThatFailsAsAWholeIsTheDevicesFault) {
  Stage(Decoder::kEngine);
  fake_.EngineGoesWrong(kFakeEngineFails, 1);
  EXPECT_EQ(Run(Kernel::kDenseApply).status().code(), StatusCode::kInternal);
  EXPECT_TRUE(Applied().empty());
}

class EngineDeviceTest : public ::testing::Test {
 protected:
  EngineDeviceTest() { fake_.SetEngine(); }
  std::shared_ptr<Accelerator> MakeDevice(const CudaDeviceOptions& options) {
    auto device = Must(MakeCudaDevice(fake_.driver, options));
    device->Reserve(kChunkSize);
    return device;
  }
  FakeDriver fake_;
  Batch batch_{14};
  DeviceBytes live_{fake_.driver, batch_.base};
  std::vector<ChunkWork> work_ = batch_.At(Address(live_));
};

// The processor says that the chunk is good: then it is the engine that is not.
TEST_F(EngineDeviceTest, AWrongEngineIsNotThePayloadsFault) {
  for (const SegueFakeEngineFault fault :
       {kFakeEngineShort, kFakeEngineWrongSize, kFakeEngineSilent, kFakeEngineRefuses,
        kFakeEngineFails}) {
    const auto device = MakeDevice({.threads = 1});
    ASSERT_TRUE(device->Load(work_).ok());
    fake_.EngineGoesWrong(fault);
    const auto found = device->Preflight(work_);
    ASSERT_TRUE(found.has_value());
    EXPECT_EQ(found->verdict, ChunkVerdict::kDeviceFailed);
    EXPECT_EQ(found->detail.code(), StatusCode::kInternal);
    if (fault != kFakeEngineFails) {
      EXPECT_THAT(found->detail.message(), HasSubstr("chunk 2 of the batch"));
      EXPECT_EQ(found->index, 2u);
    }
    EXPECT_EQ(live_.Read(), batch_.base);
  }
}

// Sizes are right, bytes are not: the sums find it, before the pause and in it.
TEST_F(EngineDeviceTest, AnEngineThatLiesIsFoundByTheProof) {
  const auto device = MakeDevice({.threads = 1});
  ASSERT_TRUE(device->Load(work_).ok());
  fake_.EngineGoesWrong(kFakeEngineLies);
  ASSERT_TRUE(device->Preflight(work_).has_value());
  EXPECT_EQ(live_.Read(), batch_.base);
  ASSERT_FALSE(device->Preflight(work_).has_value());
  fake_.EngineGoesWrong(kFakeEngineLies);
  ASSERT_TRUE(device->Apply(work_).has_value());
}

TEST_F(EngineDeviceTest, WhatIsTooLongForItIsTheProcessors) {
  fake_.SetEngine(kChunkSize - 1);
  const auto device = MakeDevice({.threads = 1});
  ASSERT_TRUE(device->Load(work_).ok());
  ASSERT_FALSE(device->Preflight(work_).has_value());
  ASSERT_FALSE(device->Apply(work_).has_value());
  EXPECT_EQ(live_.Read(), batch_.target);
  EXPECT_EQ(fake_.Count().decompressions, 0u);
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
    EXPECT_THAT(GetCapturedStderr(), HasSubstr("multiprocessors decode in place of the engine"));
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
    const auto device = MakeDevice({.threads = 1, .memory_max = budget});
    live_.Write(batch_.base);
    CaptureStderr();
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
    for (const unsigned skip : {0u, 1u, 2u, 5u, 9u}) {
      SCOPED_TRACE(std::string(symbol) + " " + std::to_string(skip));
      live_.Write(batch_.base);
      fake_.Fail(symbol, skip, CUDA_ERROR_LAUNCH_FAILED);
      bool applying = false;
      const Status status = UpdateOnce(fake_.driver, work_, applying);
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
