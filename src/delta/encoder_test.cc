// SPDX-License-Identifier: Apache-2.0
//
// Encoder: what it writes, apart from whether it can be applied (round_trip_test.cc). Goal: the
// sizes that docs/format.md promises, bytes that do not depend on threads, owners that cover
// everything once. Method: generated pairs, rows read back from the payload.
#include "delta/encoder.h"

#include <gtest/gtest.h>

#include <atomic>
#include <string>
#include <vector>

#include "delta/testing.h"

namespace segue {
namespace {

using test::Encode;
using test::Model;
using test::Mutate;

constexpr std::uint64_t kChunk = 1 << 20;

Plan ManyTensors(std::uint64_t chunk_size) {
  std::vector<TensorSpec> specs;
  for (int i = 0; i < 30; ++i) {
    const std::string name =
        std::string("t") + static_cast<char>('a' + i / 10) + static_cast<char>('0' + i % 10);
    specs.push_back(test::SpecOfSize(name, i % 3 == 0 ? Dtype::kF32 : Dtype::kBF16,
                                     static_cast<std::uint64_t>(i % 5) * 7000));
  }
  return Plan::Make(specs, chunk_size).value();
}

std::uint64_t ChangedBytes(const Plan& plan, const StagedDelta& staged) {
  std::uint64_t size = 0;
  for (const ChunkRow& row : staged.rows()) size += plan.Chunk(row.chunk).size;
  return size;
}

// The promise of docs/format.md, section 6, for chunks of 1 MiB.
TEST(EncoderTest, PayloadIsAtMostTheChangedChunksAndAThousandth) {
  for (const Dtype dtype : {Dtype::kU8, Dtype::kBF16, Dtype::kF64}) {
    const Plan plan = test::OneTensorPlan(dtype, 3 * kChunk, kChunk);
    const Model base(plan, 1);
    for (const double share : {1e-9, 0.01, 0.1, 0.124, 0.126, 0.5, 1.0}) {
      Model target = base;
      Mutate(plan, target, share, 2);
      for (const Profile profile : kProfiles) {
        const auto encoded = Encode(plan, base, target, {.profile = profile});
        const std::uint64_t raw = ChangedBytes(plan, test::Stage(plan, encoded.payload));
        EXPECT_LE(encoded.payload.size(), raw + raw / 1000)
            << ProfileName(profile) << " " << DtypeName(dtype) << " " << share;
      }
    }
  }
}

// "Every chunk costs at most what raw costs", for chunks that are small because the tensor is.
TEST(EncoderTest, NoRowCostsMoreThanRaw) {
  for (const Dtype dtype : {Dtype::kU8, Dtype::kBF16, Dtype::kF32, Dtype::kF64}) {
    for (std::uint64_t size = 8; size <= 200; size += dtype == Dtype::kU8 ? 1 : 8) {
      const Plan plan = test::OneTensorPlan(dtype, size, 4096);
      const Model base(plan, size);
      for (const double share : {1e-9, 0.1, 0.5, 1.0}) {
        Model target = base;
        Mutate(plan, target, share, 2);
        for (const Profile profile : kProfiles) {
          const auto encoded = Encode(plan, base, target, {.profile = profile});
          const StagedDelta staged = test::Stage(plan, encoded.payload);
          EXPECT_LE(staged.staged_bytes(), size)
              << ProfileName(profile) << " " << DtypeName(dtype) << " " << size << " " << share;
        }
      }
    }
  }
}

TEST(EncoderTest, SparseProfileIsSmallWhereLittleChanges) {
  const Plan plan = test::OneTensorPlan(Dtype::kBF16, 8 * kChunk, kChunk);
  const Model base(plan, 1);
  Model target = base;
  Mutate(plan, target, 0.00085, 2, 0x03);
  const auto encoded = Encode(plan, base, target, {});
  const double bits = 8.0 * static_cast<double>(encoded.payload.size()) /
                      static_cast<double>(encoded.report.payload.changed_elements);
  // A position at 0.085 % has 11.6 bits, a mask in {1, 1, 2, 3} has 1.5, a row's share is about 1.
  EXPECT_LT(bits, 16);
}

TEST(EncoderTest, PayloadBytesDoNotDependOnThreads) {
  const Plan plan = ManyTensors(4096);
  const Plan large = test::OneTensorPlan(Dtype::kBF16, 80 * kChunk, kChunk);
  for (const Plan* each : {&plan, &large}) {
    const Model base(*each, 1);
    Model target = base;
    Mutate(*each, target, 0.02, 2);
    for (const Profile profile : kProfiles) {
      if (each == &large && profile != Profile::kSparseZstd) continue;
      const auto one = Encode(*each, base, target, {.profile = profile, .threads = 1});
      for (const unsigned threads : {2u, 5u}) {
        const auto more = Encode(*each, base, target, {.profile = profile, .threads = threads});
        EXPECT_EQ(more.payload, one.payload) << ProfileName(profile) << " " << threads;
      }
    }
  }
}

TEST(EncoderTest, OwnerRangesCoverEveryChunkOnceInWholeTensors) {
  const Plan plans[] = {ManyTensors(4096), test::OneTensorPlan(Dtype::kU8, 100000, 4096),
                        Plan::Make({}, 4096).value(),
                        Plan::Make({{"a", Dtype::kU8, {0}}, {"b", Dtype::kU8, {1}}}).value()};
  for (const Plan& plan : plans) {
    for (const std::uint32_t owners : {1u, 2u, 3u, 7u, 64u, 65536u}) {
      std::vector<int> covered(plan.chunk_count(), 0);
      for (std::uint32_t owner = 0; owner < owners; ++owner) {
        std::uint64_t last = 0;
        for (const ChunkRange& range : OwnerRanges(plan, owner, owners)) {
          ASSERT_LT(range.begin, range.end);
          ASSERT_GE(range.begin, last);
          last = range.end;
          for (std::uint64_t chunk = range.begin; chunk < range.end; ++chunk) ++covered[chunk];
        }
      }
      EXPECT_EQ(covered, std::vector<int>(plan.chunk_count(), 1)) << owners;
    }
  }
}

TEST(EncoderTest, PayloadsOfAllOwnersAreTheWhole) {
  const Plan plan = ManyTensors(4096);
  const Model base(plan, 1);
  Model target = base;
  Mutate(plan, target, 0.05, 2);
  for (const Profile profile : kProfiles) {
    const auto whole = Encode(plan, base, target, {.profile = profile});
    const StagedDelta expected = test::Stage(plan, whole.payload);
    for (const std::uint32_t owners : {1u, 2u, 3u, 7u}) {
      std::vector<ByteVector> payloads;
      Digest before;
      Digest after;
      for (std::uint32_t owner = 0; owner < owners; ++owner) {
        auto part =
            Encode(plan, base, target, {.profile = profile, .owner = owner, .owner_count = owners});
        before += part.report.base_digest;
        after += part.report.target_digest;
        payloads.push_back(std::move(part.payload));
      }
      EXPECT_EQ(before, whole.report.base_digest);
      EXPECT_EQ(after, whole.report.target_digest);
      const std::vector<ByteSpan> spans(payloads.begin(), payloads.end());
      const StagedDelta staged = StagedDelta::Stage(plan, spans, 2).value();
      EXPECT_TRUE(std::equal(staged.rows().begin(), staged.rows().end(), expected.rows().begin(),
                             expected.rows().end()));
      Model live = base;
      ASSERT_TRUE(test::PreflightAndApply(plan, staged, live).ok());
      EXPECT_TRUE(live == target);
    }
  }
}

TEST(EncoderTest, ProgressEndsAtTheModelsSize) {
  const Plan plan = ManyTensors(4096);
  const Model base(plan, 1);
  std::uint64_t last = 0;
  const auto progress = [&](std::uint64_t done) {
    EXPECT_GE(done, last);
    last = done;
  };
  (void)Encode(plan, base, base, {.threads = 3, .progress = progress});
  EXPECT_EQ(last, plan.model_size());
}

TEST(EncoderTest, ASinkThatFailsEndsTheEncoding) {
  const Plan plan = ManyTensors(4096);
  const Model base(plan, 1);
  Model target = base;
  Mutate(plan, target, 0.05, 2);
  for (int fail_at = 0; fail_at < 4; ++fail_at) {
    int calls = 0;
    const auto result = EncodeDelta(
        plan, base.view(), target.view(), {.threads = 2},
        [&](ByteSpan) { return calls++ == fail_at ? Unavailable("disk is full") : Status(); });
    EXPECT_EQ(result.status().code(), StatusCode::kUnavailable) << fail_at;
  }
}

// docs/format.md, section 5: below 16 MiB unless one chunk alone is larger.
TEST(EncoderTest, FramesStayBelow16MiB) {
  for (const std::uint64_t chunk : {1ull << 20, 8ull << 20, 16ull << 20}) {
    const Plan plan =
        Plan::Make({{"a", Dtype::kU8, {3ull << 20}}, {"b", Dtype::kU8, {32ull << 20}}}, chunk)
            .value();
    const Model base(plan, 1);
    Model target = base;
    for (std::byte& byte : target.bytes()) byte ^= std::byte{1};
    const auto encoded = Encode(plan, base, target, {.profile = Profile::kSparseZstd});
    const PayloadTable table = ReadPayloadTable(encoded.payload, plan).value();
    const auto noise = Encode(plan, base, Model(plan, 2), {.profile = Profile::kSnappyZstd});
    const PayloadTable raw = ReadPayloadTable(noise.payload, plan).value();
    for (const PayloadTable* each : {&table, &raw}) {
      for (const Frame& frame : each->frames) EXPECT_LE(frame.inner_size, 16u << 20);
    }
  }
}

}  // namespace
}  // namespace segue
