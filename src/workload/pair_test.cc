// SPDX-License-Identifier: Apache-2.0
//
// Pairs in memory: any size, any count of threads, and a count that agrees with the bytes.
#include <gtest/gtest.h>

#include "segue/generate.h"
#include "workload/statistics.h"

namespace segue {
namespace {

struct Pair {
  ByteVector base;
  ByteVector target;
  std::uint64_t changed = 0;
};

Pair Make(std::string_view preset, std::size_t size, unsigned threads, std::uint64_t seed = 1) {
  Pair pair{ByteVector(size), ByteVector(size)};
  pair.changed = GeneratePair(preset, seed, threads, pair.base, pair.target).value();
  return pair;
}

TEST(Pair, DoesNotDependOnThreads) {
  for (const PresetInfo& info : Presets()) {
    const Pair one = Make(info.name, 600'000, 1);
    const Pair three = Make(info.name, 600'000, 3);
    EXPECT_EQ(one.base, three.base) << info.name;
    EXPECT_EQ(one.target, three.target) << info.name;
    EXPECT_EQ(one.changed, three.changed) << info.name;
  }
}

TEST(Pair, CountIsThatOfTheBytes) {
  const Pair bf16 = Make("bf16-10", 600'000, 2);
  EXPECT_EQ(bf16.changed, workload::CountDifferent(16, bf16.base, bf16.target));
  const Pair int4 = Make("int4-0.1", 600'001, 2);
  EXPECT_EQ(int4.changed, workload::CountDifferent(4, int4.base, int4.target));
  EXPECT_EQ(Make("none", 100'000, 2).changed, 0u);
  EXPECT_EQ(Make("one-bit", 100'000, 2).changed, 1u);
  EXPECT_EQ(Make("all", 100'000, 2).changed, 50'000u);
}

// The tensor is the same one, cut: a smaller pair is the beginning of a larger (whole blocks
// apart).
TEST(Pair, ASmallerPairIsThePrefix) {
  for (const std::string_view preset : {"bf16-1", "nvfp4-0.085", "adversarial"}) {
    const Pair large = Make(preset, 300'000, 2);
    const Pair small = Make(preset, 150'002, 2);
    EXPECT_TRUE(std::equal(small.base.begin(), small.base.end(), large.base.begin())) << preset;
    EXPECT_TRUE(std::equal(small.target.begin(), small.target.end(), large.target.begin()));
  }
}

TEST(Pair, SeedsDiffer) {
  EXPECT_NE(Make("bf16-1", 10'000, 1, 1).base, Make("bf16-1", 10'000, 1, 2).base);
}

TEST(Pair, OddSizesAreRefusedOrCut) {
  EXPECT_EQ(Make("bf16-1", 0, 2).changed, 0u);
  EXPECT_EQ(Make("one-bit", 0, 2).changed, 0u);
  ByteVector base(9);
  ByteVector target(9);
  EXPECT_EQ(GeneratePair("bf16-1", 1, 1, base, target).status().code(),
            StatusCode::kInvalidArgument);
  EXPECT_TRUE(GeneratePair("fp8-0.07", 1, 1, base, target).ok());
  target.resize(10);
  EXPECT_EQ(GeneratePair("fp8-0.07", 1, 1, base, target).status().code(),
            StatusCode::kInvalidArgument);
  EXPECT_EQ(GeneratePair("no-such", 1, 1, base, base).status().code(),
            StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace segue
