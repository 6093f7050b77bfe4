// SPDX-License-Identifier: Apache-2.0
//
// Staging: payload objects to rows in memory. Goal: what is damaged is refused before the weights
// are looked at, or does no harm. Method: hash and size against the manifest's entry; then every
// truncation and a flip of every byte of a payload with all encodings, taken past the hash.
#include "delta/staged_delta.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "delta/testing.h"

namespace segue {
namespace {

using test::Model;
using ::testing::HasSubstr;

class StagedDeltaTest : public ::testing::Test {
 protected:
  StagedDeltaTest()
      : plan_(test::OneTensorPlan(Dtype::kBF16, 6 * 4096 + 100, 4096)),
        base_(plan_, 1),
        target_(base_) {
    test::Mutate(plan_, target_, 0.02, 2, 0x07);
    payload_ = test::EncodeAs(plan_, base_, target_, test::kEncodings);
  }

  Result<StagedDelta> Stage(std::vector<ByteSpan> payloads) const {
    return StagedDelta::Stage(plan_, payloads, 2);
  }

  Plan plan_;
  Model base_;
  Model target_;
  ByteVector payload_;
};

TEST_F(StagedDeltaTest, VerifiesSizeAndHash) {
  PayloadEntry entry;
  entry.object = "l/payloads/1/x";
  entry.size = payload_.size();
  entry.sha256 = HashSha256(payload_);
  EXPECT_TRUE(StagedDelta::VerifyPayload(entry, payload_).ok());
  ByteVector damaged = payload_;
  damaged[damaged.size() / 2] ^= std::byte{1};
  const Status hash = StagedDelta::VerifyPayload(entry, damaged);
  EXPECT_EQ(hash.code(), StatusCode::kCorruption);
  EXPECT_THAT(hash.message(), HasSubstr(entry.sha256.ToHex()));
  EXPECT_THAT(hash.message(), HasSubstr(entry.object));
  const Status size = StagedDelta::VerifyPayload(entry, ByteSpan(payload_).first(10));
  EXPECT_EQ(size.code(), StatusCode::kCorruption);
  EXPECT_THAT(size.message(), HasSubstr("10 bytes"));
}

TEST_F(StagedDeltaTest, StagesTheSameWithAnyThreads) {
  for (const unsigned threads : {1u, 3u, 16u}) {
    const ByteSpan payload = payload_;
    const auto staged = StagedDelta::Stage(plan_, std::span(&payload, 1), threads);
    ASSERT_TRUE(staged.ok());
    Model live = base_;
    const auto device = MakeHostDevice(1);
    Applier applier(plan_, *staged.operator->(), live.live(), *device);
    ASSERT_TRUE(applier.Preflight().ok());
    ASSERT_TRUE(applier.Apply().ok());
    EXPECT_TRUE(live == target_);
  }
}

TEST_F(StagedDeltaTest, NoPayloadsIsADeltaOfNothing) {
  const auto staged = Stage({});
  ASSERT_TRUE(staged.ok());
  EXPECT_TRUE(staged->rows().empty());
  EXPECT_EQ(staged->staged_bytes(), 0u);
}

TEST_F(StagedDeltaTest, RefusesAChunkInTwoPayloads) {
  const auto staged = Stage({payload_, payload_});
  EXPECT_EQ(staged.status().code(), StatusCode::kCorruption);
  EXPECT_THAT(staged.status().message(), HasSubstr("chunk 0 is in two payloads"));
}

TEST_F(StagedDeltaTest, SortsRowsOfPayloadsInAnyOrder) {
  const auto some = [&](std::uint64_t parity) {
    return test::WritePayload([&](GroupBuilder& group) {
      for (std::uint64_t chunk = parity; chunk < plan_.chunk_count(); chunk += 2) {
        const ChunkPlace place = plan_.Chunk(chunk);
        test::AddAs(chunk, place, base_.view().Chunk(place), target_.view().Chunk(place),
                    test::kEncodings[chunk % 6], group);
      }
    });
  };
  const ByteVector even = some(0);
  const ByteVector odd = some(1);
  const StagedDelta staged = Stage({odd, even}).value();
  for (std::size_t i = 0; i < staged.rows().size(); ++i) EXPECT_EQ(staged.rows()[i].chunk, i);
  Model live = base_;
  ASSERT_TRUE(test::PreflightAndApply(plan_, staged, live).ok());
  EXPECT_TRUE(live == target_);
}

TEST_F(StagedDeltaTest, RefusesPositionsThatDoNotCountUp) {
  const StagedDelta staged = test::Stage(plan_, payload_);
  const ByteVector lie = test::WritePayload([&](GroupBuilder& group) {
    auto parts = staged.Parts(plan_, 0);
    ByteVector high(parts[kStreamHigh].begin(), parts[kStreamHigh].end());
    high[0] ^= std::byte{1};
    parts[kStreamHigh] = high;
    group.AddRow(staged.rows()[0], parts);
  });
  const auto result = Stage({lie});
  EXPECT_EQ(result.status().code(), StatusCode::kCorruption);
  EXPECT_THAT(result.status().message(), HasSubstr("chunk 0"));
}

TEST_F(StagedDeltaTest, RefusesEveryTruncation) {
  for (std::size_t size = 0; size < payload_.size(); size += 3) {
    EXPECT_FALSE(Stage({ByteSpan(payload_).first(size)}).ok()) << size;
  }
}

// Past the hash, so that the format's own checks are what is tried.
TEST_F(StagedDeltaTest, AFlippedByteIsRefusedOrHarmless) {
  for (std::size_t i = 0; i < payload_.size(); ++i) {
    ByteVector damaged = payload_;
    damaged[i] ^= static_cast<std::byte>(1u << (i % 8));
    const auto staged = Stage({damaged});
    if (!staged.ok()) continue;
    Model live = base_;
    const Status status = test::Preflight(plan_, *staged.operator->(), live);
    EXPECT_TRUE(live == base_);
    if (!status.ok()) continue;
    ASSERT_TRUE(test::PreflightAndApply(plan_, *staged.operator->(), live).ok());
    EXPECT_TRUE(live == target_) << "byte " << i;
  }
}

}  // namespace
}  // namespace segue
