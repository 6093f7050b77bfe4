// SPDX-License-Identifier: Apache-2.0
//
// Who decodes: what is asked, in which order, and the trial, on the fake driver and the fake
// nvCOMP. Each way of being wrong must keep a decoder from being chosen.
#include "device/cuda/decoders.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "device/cuda/decoder_trial.h"
#include "device/cuda/testing.h"

namespace segue::cuda {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::internal::CaptureStderr;
using ::testing::internal::GetCapturedStderr;

class DecodersTest : public ::testing::Test {
 protected:
  Result<Decoder> Choose(const std::string& name) {
    return decoders_.Choose(name, StagingMemory(fake_.driver, budget_), pool_, stream_.get());
  }
  // Without a name; what is said goes to `said_`.
  Decoder ChooseUnnamed() {
    CaptureStderr();
    const Decoder chosen = Must(Choose(""));
    said_ = GetCapturedStderr();
    return chosen;
  }
  void ExpectRefused(const std::string& name, StatusCode code, const std::string& why) {
    const Status status = Choose(name).status();
    EXPECT_EQ(status.code(), code) << status.ToString();
    EXPECT_THAT(status.message(), AllOf(HasSubstr("decoder '" + name + "'"), HasSubstr(why)));
  }

  FakeDriver fake_;
  FakeNvcomp nvcomp_;
  WorkerPool pool_{1};
  std::uint64_t budget_ = 0;
  std::string said_;
  ContextPointer context_ = Must(Context::Make(fake_.driver, 0));
  InContext in_context_{fake_.driver};
  Stream stream_ = Must(MakeStream(fake_.driver, StreamPriority::kLeast));
  KernelSet kernels_ = Must(KernelSet::Load(fake_.driver, stream_.get()));
  Decoders decoders_{context_, kernels_, SEGUE_FAKE_NVCOMP};
};

TEST_F(DecodersTest, TheEngineIsOffUntilTheDriverSaysSo) {
  EXPECT_FALSE(Must(decoders_.Ask(Decoder::kEngine)).any());
  EXPECT_EQ(ChooseUnnamed(), Decoder::kMultiprocessors);
  EXPECT_THAT(said_, IsEmpty());
  EXPECT_EQ(Choose("engine").status().code(), StatusCode::kUnsupported);
  EXPECT_EQ(Must(Choose("processor")), Decoder::kProcessor);
  EXPECT_EQ(Choose("abacus").status().code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(Choose("abacus").status().message(),
              HasSubstr("engine, multiprocessors, nvcomp, processor"));

  fake_.SetEngine(5000, 3, CU_MEM_DECOMPRESS_ALGORITHM_LZ4 | CU_MEM_DECOMPRESS_ALGORITHM_DEFLATE);
  const DecoderReach reach = Must(decoders_.Ask(Decoder::kEngine));
  EXPECT_TRUE(reach.lz4);
  EXPECT_FALSE(reach.snappy);
  EXPECT_EQ(reach.size_max, 5000u);
  EXPECT_EQ(reach.host_node, 3);
  EXPECT_EQ(ChooseUnnamed(), Decoder::kEngine);
  EXPECT_EQ(decoders_.Use(Decoder::kEngine).reach.size_max, 5000u);
  EXPECT_EQ(Must(Choose("multiprocessors")), Decoder::kMultiprocessors);

  fake_.SetEngine(5000, -1);  // No memory node: the engine has nowhere to read from.
  EXPECT_FALSE(Must(decoders_.Ask(Decoder::kEngine)).any());
}

TEST_F(DecodersTest, ADriverThatDoesNotKnowTheAttributesHasNoEngine) {
  fake_.SetEngine();
  for (const unsigned skip : {0u, 1u, 2u}) {
    fake_.Fail("cuDeviceGetAttribute", skip, CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(ChooseUnnamed(), Decoder::kMultiprocessors);
    EXPECT_THAT(said_, AllOf(HasSubstr("'engine' is not used"), HasSubstr("cuDeviceGetAttribute")));
    fake_.Fail("cuDeviceGetAttribute", skip, CUDA_ERROR_INVALID_VALUE);
    ExpectRefused("engine", StatusCode::kUnsupported, "cuDeviceGetAttribute");
  }
}

TEST_F(DecodersTest, NvcompIsTakenByNameAlone) {
  EXPECT_EQ(ChooseUnnamed(), Decoder::kMultiprocessors);
  EXPECT_EQ(nvcomp_.Calls(), 0u);
  EXPECT_EQ(Must(Choose("nvcomp")), Decoder::kNvcomp);
  EXPECT_EQ(nvcomp_.Calls(), 2u);
  const DecoderReach reach = decoders_.Use(Decoder::kNvcomp).reach;
  EXPECT_TRUE(reach.snappy && reach.lz4);
  nvcomp_.SetVersion(5300);
  EXPECT_EQ(Must(Choose("nvcomp")), Decoder::kNvcomp);
  nvcomp_.SetVersion(7000);
  ExpectRefused("nvcomp", StatusCode::kUnsupported, "7.0.0");
  nvcomp_.SetVersion(6000);
  for (const std::size_t alignment : {256u, 1u}) {
    nvcomp_.Wants(alignment, 0);
    EXPECT_EQ(Must(Choose("nvcomp")), Decoder::kNvcomp);
  }
  nvcomp_.Wants(512, 0);
  ExpectRefused("nvcomp", StatusCode::kUnsupported, "alignments");
  Decoders elsewhere(context_, kernels_, "/nowhere/libnvcomp.so.6");
  const Status status = elsewhere.Choose("nvcomp", fake_.driver, pool_, stream_.get()).status();
  EXPECT_EQ(status.code(), StatusCode::kUnsupported);
  EXPECT_THAT(status.message(), HasSubstr("/nowhere/libnvcomp.so.6"));
}

TEST_F(DecodersTest, AnEngineThatIsWrongInTheTrialIsNotUsed) {
  fake_.SetEngine();
  for (const SegueFakeEngineFault fault :
       {kFakeEngineShort, kFakeEngineLies, kFakeEngineWrongSize, kFakeEngineSilent}) {
    for (const std::size_t block : {0u, 1u}) {
      SCOPED_TRACE(std::to_string(fault) + " " + std::to_string(block));
      fake_.EngineGoesWrong(fault, 0, block);
      EXPECT_EQ(ChooseUnnamed(), Decoder::kMultiprocessors);
      EXPECT_THAT(said_, HasSubstr("'engine' is not used"));
      fake_.EngineGoesWrong(fault, 0, block);
      ExpectRefused("engine", StatusCode::kInternal, block == 0 ? "Snappy" : "LZ4");
    }
  }
  for (const SegueFakeEngineFault fault :
       {kFakeEngineRefuses, kFakeEngineFails, kFakeEngineIncapable, kFakeEngineNoDevice}) {
    SCOPED_TRACE(fault);
    fake_.EngineGoesWrong(fault);
    EXPECT_EQ(ChooseUnnamed(), Decoder::kMultiprocessors);
    EXPECT_THAT(said_, HasSubstr("'engine' is not used"));
    fake_.EngineGoesWrong(fault);
    EXPECT_EQ(Choose("engine").status().code(), StatusCode::kInternal);
  }
  fake_.SetEngine(/*size_max=*/999);
  ExpectRefused("engine", StatusCode::kInternal, "1000 bytes");
}

TEST_F(DecodersTest, AnNvcompThatIsWrongInTheTrialIsNotUsed) {
  for (const SegueFakeNvcompFault fault :
       {kFakeNvcompShort, kFakeNvcompLies, kFakeNvcompWrongSize, kFakeNvcompWrongCode,
        kFakeNvcompSilent, kFakeNvcompBehind}) {
    for (const unsigned call : {0u, 1u}) {
      SCOPED_TRACE(std::to_string(fault) + " " + std::to_string(call));
      nvcomp_.GoesWrong(fault, call);
      ExpectRefused("nvcomp", StatusCode::kInternal, call == 0 ? "Snappy" : "LZ4");
    }
  }
  nvcomp_.GoesWrong(kFakeNvcompRefuses);
  EXPECT_EQ(Choose("nvcomp").status().code(), StatusCode::kInternal);
}

// Also the kernels of our own, of which no driver says that they are right.
TEST_F(DecodersTest, WhatCannotBeTriedIsNotUsed) {
  for (const char* symbol :
       {"cuMemAlloc_v2", "cuMemHostAlloc", "cuLaunchKernel", "cuMemcpyHtoDAsync_v2",
        "cuMemcpyDtoHAsync_v2", "cuStreamSynchronize"}) {
    SCOPED_TRACE(symbol);
    fake_.Fail(symbol, 0, CUDA_ERROR_LAUNCH_FAILED);
    EXPECT_EQ(ChooseUnnamed(), Decoder::kProcessor);
    EXPECT_THAT(said_, HasSubstr("'multiprocessors' is not used"));
    fake_.Fail(symbol, 0, CUDA_ERROR_LAUNCH_FAILED);
    EXPECT_EQ(Choose("multiprocessors").status().code(), StatusCode::kInternal);
  }
  budget_ = 1000;
  EXPECT_EQ(ChooseUnnamed(), Decoder::kProcessor);
  EXPECT_EQ(Choose("multiprocessors").status().code(), StatusCode::kResourceExhausted);
}

TEST_F(DecodersTest, ATrialLeavesNothingBehind) {
  fake_.SetEngine();
  const SegueFakeCounts before = fake_.Count();
  for (const char* name : {"engine", "multiprocessors", "nvcomp"}) {
    EXPECT_TRUE(Choose(name).ok());
    EXPECT_EQ(fake_.Count().device_bytes, before.device_bytes);
    EXPECT_EQ(fake_.Count().pinned_bytes, before.pinned_bytes);
    EXPECT_EQ(fake_.Count().objects, before.objects);
  }
}

TEST(DecoderReachTest, TakesItsCodecsUpToItsSize) {
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

}  // namespace
}  // namespace segue::cuda
