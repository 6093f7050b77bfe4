// SPDX-License-Identifier: Apache-2.0
//
// Each block decoder by itself, on the fake driver and the fake nvCOMP: jobs of both codecs in any
// number, what it says of one that it has not decoded, and refusals.
#include "device/cuda/block_decoder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "codec/block_codec.h"
#include "device/cuda/nvcomp_decoder.h"
#include "device/cuda/testing.h"

namespace segue::cuda {
namespace {

using ::testing::HasSubstr;

constexpr std::size_t kSize = 3000;
constexpr std::uint64_t kStride = 4096;  // Of blocks and of targets.

class BlockDecoderTest : public ::testing::TestWithParam<const char*> {
 protected:
  BlockDecoderTest() {
    fake_.SetEngine();
    const std::string name = GetParam();
    if (name == "engine") decoder_ = MakeEngineDecoder(fake_.driver);
    if (name == "multiprocessors") decoder_ = MakeKernelDecoder(kernels_);
    if (name == "nvcomp") {
      decoder_ = MakeNvcompDecoder(Must(NvcompLibrary::Load(SEGUE_FAKE_NVCOMP)));
    }
  }

  // Blocks of content that tells them apart, on the device, and jobs for them.
  void MakeJobs(std::size_t snappy, std::size_t lz4) {
    const std::size_t count = snappy + lz4;
    blocks_.assign(count * kStride + 1, std::byte{0});
    jobs_.clear();
    for (std::size_t k = 0; k < count; ++k) {
      const ByteVector content(kSize, static_cast<std::byte>(k + 1));
      const bool is_snappy = k < snappy;
      const MutableByteSpan place = MutableByteSpan(blocks_).subspan(k * kStride, kStride);
      const std::size_t size =
          is_snappy ? SnappyCompress(content, place) : Lz4Compress(content, place);
      // Of Snappy the engine gets what is behind the two bytes of the length, on an odd address.
      const std::size_t skip = is_snappy && GetParam() == std::string("engine") ? 2 : 0;
      jobs_.push_back({k * kStride + skip, size - skip, k * kStride, kSize, is_snappy});
    }
  }

  // Takes the jobs to the device, and brings back what was said and written.
  Result<std::optional<Refusal>> Run(ByteVector& results, ByteVector& targets) {
    const DeviceBytes blocks(fake_.driver, blocks_);
    const DeviceBytes decoded(fake_.driver, ByteVector(jobs_.size() * kStride + 1));
    for (DecodeJob& job : jobs_) {
      job.source += blocks.address();
      job.target += decoded.address();
    }
    const std::uint64_t input = decoder_->InputSize(jobs_.size());
    ByteVector rows(input + decoder_->ResultSize(jobs_.size()) + 1);
    decoder_->Write(jobs_, rows.data());
    const DeviceBytes place(fake_.driver, rows);
    DeviceBuffer scratch;
    SEGUE_ASSIGN_OR_RETURN(const std::uint64_t scratch_size,
                           decoder_->ScratchSize({jobs_.size(), kSize, jobs_.size() * kSize}));
    SEGUE_ASSIGN_OR_RETURN(scratch, AllocateDevice(fake_.driver, scratch_size));
    std::optional<Refusal> refusal;
    SEGUE_ASSIGN_OR_RETURN(refusal,
                           decoder_->Enqueue(jobs_, place.address(), scratch, stream_.get()));
    EXPECT_EQ(fake_.driver->cuStreamSynchronize(stream_.get()), CUDA_SUCCESS);
    const ByteVector all = place.Read();
    results.assign(all.begin() + static_cast<std::ptrdiff_t>(input), all.end());
    targets = decoded.Read();
    return refusal;
  }

  FakeDriver fake_;
  FakeNvcomp nvcomp_;
  InContext in_context_{fake_.driver};
  Stream stream_ = Must(MakeStream(fake_.driver, StreamPriority::kLeast));
  KernelSet kernels_ = Must(KernelSet::Load(fake_.driver, stream_.get()));
  std::unique_ptr<const BlockDecoder> decoder_;
  ByteVector blocks_;
  std::vector<DecodeJob> jobs_;
};

TEST_P(BlockDecoderTest, DecodesAnyNumberOfEachCodec) {
  for (const auto& [snappy, lz4] :
       {std::pair{1, 0}, std::pair{0, 1}, std::pair{3, 5}, std::pair{40, 1}, std::pair{1, 40}}) {
    SCOPED_TRACE(snappy);
    MakeJobs(static_cast<std::size_t>(snappy), static_cast<std::size_t>(lz4));
    ByteVector results;
    ByteVector targets;
    ASSERT_FALSE(Must(Run(results, targets)).has_value());
    for (std::size_t k = 0; k < jobs_.size(); ++k) {
      EXPECT_TRUE(decoder_->Examine(jobs_, k, results.data()).ok());
      for (std::size_t i = 0; i < kStride; ++i) {
        const auto expected = static_cast<std::byte>(i < kSize ? k + 1 : 0);
        ASSERT_EQ(targets[k * kStride + i], expected) << k << " " << i;
      }
    }
  }
}

TEST_P(BlockDecoderTest, WhatHasNotRunIsNotDecoded) {
  MakeJobs(2, 3);
  const std::uint64_t input = decoder_->InputSize(jobs_.size());
  ByteVector rows(input + decoder_->ResultSize(jobs_.size()));
  EXPECT_LE(rows.size(), jobs_.size() * BlockDecoder::kBytesPerJobMax);
  decoder_->Write(jobs_, rows.data());
  for (std::size_t k = 0; k < jobs_.size(); ++k) {
    const Status status = decoder_->Examine(jobs_, k, rows.data() + input);
    EXPECT_EQ(status.code(), StatusCode::kCorruption);
    EXPECT_THAT(status.message(), HasSubstr("wrote 0 of 3000 bytes"));
  }
}

TEST_P(BlockDecoderTest, ABlockOfAnotherSizeIsNotDecoded) {
  if (GetParam() == std::string("engine")) GTEST_SKIP() << "it gets none (BlockStage)";
  MakeJobs(1, 1);
  for (DecodeJob& job : jobs_) job.target_size = kSize - 1;
  ByteVector results;
  ByteVector targets;
  ASSERT_FALSE(Must(Run(results, targets)).has_value());
  for (const std::size_t k : {0, 1}) {
    EXPECT_EQ(decoder_->Examine(jobs_, k, results.data()).code(), StatusCode::kCorruption);
    EXPECT_EQ(targets[k * kStride + kSize - 1], std::byte{0});
  }
}

TEST_P(BlockDecoderTest, SaysWhichJobIsRefused) {
  ByteVector results;
  ByteVector targets;
  const auto refused = [&] {
    MakeJobs(2, 2);
    return Must(Run(results, targets));
  };
  if (GetParam() == std::string("engine")) {
    fake_.EngineGoesWrong(kFakeEngineRefuses, 0, 3);
    EXPECT_EQ(refused()->job, 3u);
    fake_.EngineGoesWrong(kFakeEngineFails);
    EXPECT_EQ(refused()->job, 4u);
  } else if (GetParam() == std::string("nvcomp")) {
    for (const unsigned call : {0u, 1u}) {
      nvcomp_.GoesWrong(kFakeNvcompRefuses, call);
      EXPECT_EQ(refused()->job, 4u);
    }
  } else {
    EXPECT_FALSE(refused().has_value());
    MakeJobs(2, 2);
    fake_.Fail("cuLaunchKernel", 1);
    EXPECT_EQ(Run(results, targets).status().code(), StatusCode::kInternal);
  }
}

INSTANTIATE_TEST_SUITE_P(Decoders, BlockDecoderTest,
                         ::testing::Values("engine", "multiprocessors", "nvcomp"),
                         [](const auto& parameters) { return std::string(parameters.param); });

}  // namespace
}  // namespace segue::cuda
