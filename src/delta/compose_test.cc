// SPDX-License-Identifier: Apache-2.0
//
// Composition: delta(v1, v2) then delta(v2, v3) is delta(v1, v3). Method: every pair of encodings
// under every profile, chunks that only one of the two touches, changes that cancel; then chains
// that are broken, and wrong bytes anywhere in a chunk, which a composed row must refuse because
// its `touched` is not recorded.
#include "delta/compose.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "delta/testing.h"

namespace segue {
namespace {

using test::Model;
using test::Mutate;
using ::testing::HasSubstr;

Result<ByteVector> Compose(const Plan& plan, ByteSpan first, ByteSpan second, Profile profile) {
  ByteVector payload;
  const auto summary = ComposeDeltas(plan, test::Stage(plan, first), test::Stage(plan, second),
                                     profile, [&](ByteSpan bytes) {
                                       AppendBytes(payload, bytes);
                                       return Status();
                                     });
  if (!summary.ok()) return summary.status();
  EXPECT_EQ(summary->size, payload.size());
  EXPECT_EQ(summary->sha256, HashSha256(payload));
  EXPECT_EQ(summary->row_count, test::Stage(plan, payload).rows().size());
  return payload;
}

void ExpectLeads(const Plan& plan, ByteSpan payload, const Model& base, const Model& target) {
  const StagedDelta staged = test::Stage(plan, payload);
  EXPECT_EQ(staged.difference(),
            DigestModel(plan, target.view(), 1) - DigestModel(plan, base.view(), 1));
  Model live = base;
  const Status status = test::PreflightAndApply(plan, staged, live);
  ASSERT_TRUE(status.ok()) << status.ToString();
  EXPECT_TRUE(live == target);
}

// Three versions; v2 and v3 change some chunks both, some alone, some neither.
class ComposeTest : public ::testing::Test {
 protected:
  ComposeTest()
      : plan_(Plan::Make({{"a", Dtype::kBF16, {5 * 2048 + 100}},
                          {"b", Dtype::kU8, {9}},
                          {"c", Dtype::kF64, {1000}},
                          {"d", Dtype::kF32, {4000}}},
                         4096)
                  .value()),
        v1_(plan_, 1),
        v2_(v1_),
        v3_(v1_) {
    SetShare(0.02);
  }

  void SetShare(double share) {
    v2_ = v1_;
    Mutate(plan_, v2_, share, 2, 0x03);
    std::copy_n(v1_.Tensor(0), 4096, v2_.Tensor(0));  // Chunk 0: the second alone.
    v3_ = v2_;
    Mutate(plan_, v3_, share, 3, 0x07);
    std::copy_n(v2_.Tensor(0) + 4096, 4096, v3_.Tensor(0) + 4096);  // Chunk 1: the first alone.
    // Chunk 2: what the second does cancels what the first did.
    std::copy_n(v1_.Tensor(0) + 8192, 4096, v3_.Tensor(0) + 8192);
  }

  Plan plan_;
  Model v1_;
  Model v2_;
  Model v3_;
};

TEST_F(ComposeTest, AllPairsOfEncodingsUnderAllProfiles) {
  for (const double share : {0.02, 0.4}) {
    SetShare(share);
    for (const Encoding a : test::kEncodings) {
      const ByteVector first = test::EncodeAs(plan_, v1_, v2_, std::span(&a, 1));
      for (const Encoding b : test::kEncodings) {
        const ByteVector second = test::EncodeAs(plan_, v2_, v3_, std::span(&b, 1));
        for (const Profile profile : kProfiles) {
          SCOPED_TRACE(std::string(EncodingName(a)) + " then " + std::string(EncodingName(b)));
          auto payload = Compose(plan_, first, second, profile);
          ASSERT_TRUE(payload.ok()) << payload.status().ToString();
          ASSERT_NO_FATAL_FAILURE(ExpectLeads(plan_, *payload, v1_, v3_));
        }
      }
    }
  }
}

TEST_F(ComposeTest, MergedEqualsDirect) {
  for (const Profile profile : kProfiles) {
    const auto first = test::Encode(plan_, v1_, v2_, {.profile = profile});
    const auto second = test::Encode(plan_, v2_, v3_, {.profile = profile});
    const auto direct = test::Encode(plan_, v1_, v3_, {.profile = profile});
    auto merged = Compose(plan_, first.payload, second.payload, profile);
    ASSERT_TRUE(merged.ok());
    ExpectLeads(plan_, *merged, v1_, v3_);
    const StagedDelta a = test::Stage(plan_, *merged);
    const StagedDelta b = test::Stage(plan_, direct.payload);
    ASSERT_EQ(a.rows().size(), b.rows().size());
    for (std::size_t i = 0; i < a.rows().size(); ++i) {
      EXPECT_EQ(a.rows()[i].chunk, b.rows()[i].chunk);
      EXPECT_EQ(a.rows()[i].before, b.rows()[i].before);
      EXPECT_EQ(a.rows()[i].after, b.rows()[i].after);
      if (b.rows()[i].encoding == Encoding::kRaw) continue;
      EXPECT_EQ(a.rows()[i].change_count, b.rows()[i].change_count);
    }
  }
}

TEST_F(ComposeTest, WhatCancelsLeavesNoRow) {
  for (const Encoding a : test::kEncodings) {
    for (const Encoding b : test::kEncodings) {
      if (a == Encoding::kRaw || b == Encoding::kRaw) continue;
      auto payload =
          Compose(plan_, test::EncodeAs(plan_, v1_, v2_, std::span(&a, 1)),
                  test::EncodeAs(plan_, v2_, v1_, std::span(&b, 1)), Profile::kSparseZstd);
      ASSERT_TRUE(payload.ok());
      const StagedDelta staged = test::Stage(plan_, *payload);
      for (const ChunkRow& row : staged.rows()) EXPECT_EQ(row.encoding, Encoding::kRaw);
      ExpectLeads(plan_, *payload, v1_, v1_);
    }
  }
}

TEST_F(ComposeTest, AnEmptyDeltaIsNeutral) {
  const ByteVector empty = test::WritePayload([](GroupBuilder&) {});
  const auto delta = test::Encode(plan_, v1_, v2_, {});
  for (const bool first : {true, false}) {
    auto payload = first ? Compose(plan_, empty, delta.payload, Profile::kSparseZstd)
                         : Compose(plan_, delta.payload, empty, Profile::kSparseZstd);
    ASSERT_TRUE(payload.ok());
    ExpectLeads(plan_, *payload, v1_, v2_);
    const StagedDelta a = test::Stage(plan_, *payload);
    const StagedDelta b = test::Stage(plan_, delta.payload);
    EXPECT_TRUE(std::equal(a.rows().begin(), a.rows().end(), b.rows().begin(), b.rows().end()));
  }
}

TEST_F(ComposeTest, LongChainsFoldFromEitherSide) {
  std::vector<Model> versions = {v1_};
  std::vector<ByteVector> deltas;
  for (std::uint64_t i = 0; i < 6; ++i) {
    Model next = versions.back();
    Mutate(plan_, next, i == 3 ? 0.5 : 0.01, 50 + i);
    const Profile profile = kProfiles[i % kProfiles.size()];
    deltas.push_back(test::Encode(plan_, versions.back(), next, {.profile = profile}).payload);
    versions.push_back(next);
  }
  ByteVector left = deltas.front();
  ByteVector right = deltas.back();
  for (std::size_t i = 1; i < deltas.size(); ++i) {
    left = Compose(plan_, left, deltas[i], Profile::kSparseZstd).value();
    right = Compose(plan_, deltas[deltas.size() - 1 - i], right, Profile::kLz4Zstd).value();
  }
  ExpectLeads(plan_, left, versions.front(), versions.back());
  ExpectLeads(plan_, right, versions.front(), versions.back());
}

TEST_F(ComposeTest, RefusesABrokenChain) {
  Model other = v2_;
  other.Tensor(2)[0] ^= std::byte{1};
  Model v3 = other;
  v3.Tensor(2)[8] ^= std::byte{1};
  const auto first = test::Encode(plan_, v1_, v2_, {});
  for (const Profile profile : kProfiles) {
    const auto second = test::Encode(plan_, other, v3, {.profile = profile});
    auto payload = Compose(plan_, first.payload, second.payload, profile);
    EXPECT_EQ(payload.status().code(), StatusCode::kCorruption);
    EXPECT_THAT(payload.status().message(), HasSubstr("tensor 'c' chunk 0"));
    EXPECT_THAT(payload.status().message(), HasSubstr("chain is broken"));
  }
}

TEST_F(ComposeTest, AWrongByteAnywhereInAMergedChunkIsRefused) {
  const auto first = test::Encode(plan_, v1_, v2_, {});
  const auto second = test::Encode(plan_, v2_, v3_, {});
  const ByteVector payload =
      Compose(plan_, first.payload, second.payload, Profile::kSparseZstd).value();
  const StagedDelta staged = test::Stage(plan_, payload);
  const std::uint64_t chunk = 3;  // Of tensor a; both deltas touch it.
  const auto row = std::find_if(staged.rows().begin(), staged.rows().end(),
                                [&](const ChunkRow& each) { return each.chunk == chunk; });
  ASSERT_NE(row, staged.rows().end());
  ASSERT_EQ(row->encoding, Encoding::kSparse);
  EXPECT_EQ(row->touched, 0u);
  for (std::uint64_t byte = chunk * 4096; byte < (chunk + 1) * 4096; byte += 61) {
    Model live = v1_;
    live.Tensor(0)[byte] ^= std::byte{0x20};
    const Model copy = live;
    EXPECT_EQ(test::Preflight(plan_, staged, live).code(), StatusCode::kVersionMismatch) << byte;
    EXPECT_TRUE(live == copy);
  }
}

TEST_F(ComposeTest, ASinkThatFailsEndsTheComposition) {
  const auto first = test::Encode(plan_, v1_, v2_, {});
  const auto second = test::Encode(plan_, v2_, v3_, {});
  const auto result =
      ComposeDeltas(plan_, test::Stage(plan_, first.payload), test::Stage(plan_, second.payload),
                    Profile::kSparseZstd, [](ByteSpan) { return Unavailable("disk is full"); });
  EXPECT_EQ(result.status().code(), StatusCode::kUnavailable);
}

}  // namespace
}  // namespace segue
