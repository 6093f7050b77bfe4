// SPDX-License-Identifier: Apache-2.0
//
// Chunks that the GPU decodes, on the fake driver and the fake nvCOMP, by each decoder. Method: the
// batch of every encoding through whole devices, which must say and do what the host device does;
// then groups of few chunks through the path itself, for the order of its two streams and for what
// happens behind a chunk that fails. Decoders that are wrong: engine_device_test.cc.
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
  const auto work = batch.At(live.data());
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
      const auto work = batch.At(live.data());
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
  const auto work = batch.At(live.data());
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
  const auto work = batch.At(live.data());
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
  work.live = live.data();
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
    work_ = batch_.At(live_.data());
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

}  // namespace
}  // namespace segue::cuda
