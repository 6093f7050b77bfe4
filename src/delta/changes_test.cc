// SPDX-License-Identifier: Apache-2.0
//
// Changes: the journal's view of a row. Goal: from every encoding the same positions and mask, and
// base values that can be written back any number of times, at any point of an apply. Method:
// generated pairs, one row a chunk, against plain loops over base and target.
#include "delta/changes.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "delta/testing.h"

namespace segue {
namespace {

using test::Model;

struct Pair {
  Plan plan;
  Model base;
  Model target;
  StagedDelta staged;
};

Pair MakePair(Dtype dtype, Encoding encoding, double share) {
  Plan plan = test::OneTensorPlan(dtype, 3 * 4096 + 48, 4096);
  Model base(plan, 1);
  Model target = base;
  test::Mutate(plan, target, share, 2, 0x0f);
  const ByteVector payload = test::EncodeAs(plan, base, target, std::span(&encoding, 1));
  StagedDelta staged = test::Stage(plan, payload);
  return {std::move(plan), std::move(base), std::move(target), std::move(staged)};
}

template <typename Check>
void ForAllPairs(Check check) {
  for (const Dtype dtype : {Dtype::kU8, Dtype::kBF16, Dtype::kF32, Dtype::kI64}) {
    for (const Encoding encoding : test::kEncodings) {
      for (const double share : {1e-9, 0.01, 0.3, 1.0}) {
        SCOPED_TRACE(std::string(EncodingName(encoding)) + " " + std::string(DtypeName(dtype)));
        Pair pair = MakePair(dtype, encoding, share);
        check(pair);
      }
    }
  }
}

TEST(ChangesTest, PositionsAndMaskEqualAPlainLoop) {
  ForAllPairs([](Pair& pair) {
    ChangeReader reader(pair.plan.chunk_size());
    for (std::size_t i = 0; i < pair.staged.rows().size(); ++i) {
      const ChunkPlace place = pair.plan.Chunk(pair.staged.rows()[i].chunk);
      const std::byte* base = pair.base.view().Chunk(place);
      const std::byte* target = pair.target.view().Chunk(place);
      const bool raw = pair.staged.rows()[i].encoding == Encoding::kRaw;
      const ChunkWork work = pair.staged.Work(pair.plan, i, nullptr);
      std::vector<std::uint32_t> expected;
      ByteVector mask(place.size);
      for (std::uint64_t k = 0; k < place.size; ++k) {
        mask[k] = base[k] ^ target[k];
        const auto element = static_cast<std::uint32_t>(k / place.width);
        const bool differs = raw || mask[k] != std::byte{0};
        if (differs && (expected.empty() || expected.back() != element))
          expected.push_back(element);
      }
      const auto positions = reader.ReadPositions(work);
      ASSERT_TRUE(positions.ok());
      EXPECT_TRUE(
          std::equal(positions->begin(), positions->end(), expected.begin(), expected.end()));
      if (raw) continue;
      ASSERT_TRUE(reader.ReadMask(work).ok());
      EXPECT_TRUE(std::equal(mask.begin(), mask.end(), reader.mask().begin()));
    }
  });
}

TEST(ChangesTest, CollectedValuesRestoreTheBaseAnyNumberOfTimes) {
  ForAllPairs([](Pair& pair) {
    ChangeReader reader(pair.plan.chunk_size());
    Model live = pair.base;
    const auto device = MakeHostDevice(1);
    Applier applier(pair.plan, pair.staged, live.live(), *device);
    std::vector<ByteVector> journal;
    for (const ChunkWork& work : applier.work()) {
      ASSERT_TRUE(reader.CollectValues(work, journal.emplace_back()).ok());
    }
    EXPECT_TRUE(live == pair.base);
    ASSERT_TRUE(applier.Apply().ok());
    EXPECT_TRUE(live == pair.target);
    for (int round = 0; round < 2; ++round) {
      for (std::size_t i = 0; i < journal.size(); ++i) {
        ASSERT_TRUE(reader.RestoreValues(applier.work()[i], journal[i]).ok());
      }
      EXPECT_TRUE(live == pair.base);
    }
    // And after the restore the delta can be applied again.
    ASSERT_TRUE(applier.Preflight().ok());
    ASSERT_TRUE(applier.Apply().ok());
    EXPECT_TRUE(live == pair.target);
  });
}

// A crash may leave any part of a chunk old and the rest new.
TEST(ChangesTest, RestoresFromAMixOfOldAndNewBytes) {
  Pair pair = MakePair(Dtype::kBF16, Encoding::kSparse, 0.1);
  ChangeReader reader(pair.plan.chunk_size());
  Model live = pair.base;
  const auto device = MakeHostDevice(1);
  Applier applier(pair.plan, pair.staged, live.live(), *device);
  std::vector<ByteVector> journal;
  for (const ChunkWork& work : applier.work()) {
    ASSERT_TRUE(reader.CollectValues(work, journal.emplace_back()).ok());
  }
  Random random(1);
  for (std::size_t k = 0; k < pair.plan.model_size(); ++k) {
    if (random.Below(2) == 0) live.Tensor(0)[k] = pair.target.Tensor(0)[k];
  }
  for (std::size_t i = 0; i < journal.size(); ++i) {
    ASSERT_TRUE(reader.RestoreValues(applier.work()[i], journal[i]).ok());
  }
  EXPECT_TRUE(live == pair.base);
}

TEST(ChangesTest, CollectAppendsBehindWhatIsThere) {
  Pair pair = MakePair(Dtype::kBF16, Encoding::kSparse, 0.1);
  ChangeReader reader(pair.plan.chunk_size());
  const auto device = MakeHostDevice(1);
  Applier applier(pair.plan, pair.staged, pair.base.live(), *device);
  ByteVector all;
  std::size_t expected = 0;
  for (std::size_t i = 0; i < applier.work().size(); ++i) {
    ASSERT_TRUE(reader.CollectValues(applier.work()[i], all).ok());
    expected += std::size_t{pair.staged.rows()[i].change_count} * 2;
    EXPECT_EQ(all.size(), expected);
  }
}

TEST(ChangesTest, RefusesValuesOfAnotherSize) {
  Pair pair = MakePair(Dtype::kBF16, Encoding::kSparse, 0.1);
  ChangeReader reader(pair.plan.chunk_size());
  const ChunkWork work = pair.staged.Work(pair.plan, 0, pair.base.Tensor(0));
  const Model copy = pair.base;
  ByteVector values;
  ASSERT_TRUE(reader.CollectValues(work, values).ok());
  values.push_back(std::byte{0});
  EXPECT_EQ(reader.RestoreValues(work, values).code(), StatusCode::kCorruption);
  EXPECT_EQ(reader.RestoreValues(work, {}).code(), StatusCode::kCorruption);
  EXPECT_TRUE(pair.base == copy);
}

}  // namespace
}  // namespace segue
