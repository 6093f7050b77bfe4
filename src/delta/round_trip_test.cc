// SPDX-License-Identifier: Apache-2.0
//
// The whole path in memory: encode, stage, preflight, apply. Goal: the target's bits for every
// profile, dtype, size and density. Method: properties over generated pairs (apply gives the
// target, XOR rows applied twice give the base, digests agree with a full scan), then the values
// that a comparison of floats would get wrong.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "delta/testing.h"

namespace segue {
namespace {

using test::Encode;
using test::Model;
using test::Mutate;

constexpr Dtype kDtypes[] = {Dtype::kBool, Dtype::kF4,  Dtype::kF6E2M3, Dtype::kF8E4M3,
                             Dtype::kBF16, Dtype::kF32, Dtype::kC64,    Dtype::kI64};

// Applies base -> target with one profile and checks everything that must hold of it.
void CheckPair(const Plan& plan, const Model& base, const Model& target, Profile profile) {
  const auto [payload, report] = Encode(plan, base, target, {.profile = profile, .threads = 2});
  EXPECT_EQ(report.base_digest, DigestModel(plan, base.view(), 1));
  EXPECT_EQ(report.target_digest, DigestModel(plan, target.view(), 2));
  EXPECT_EQ(report.payload.difference, report.target_digest - report.base_digest);
  EXPECT_EQ(report.payload.size, payload.size());
  EXPECT_EQ(report.payload.sha256, HashSha256(payload));
  const StagedDelta staged = test::Stage(plan, payload);
  EXPECT_EQ(staged.difference(), report.payload.difference);
  EXPECT_EQ(staged.changed_elements(), report.payload.changed_elements);
  EXPECT_EQ(staged.rows().size(), report.payload.row_count);
  Model live = base;
  const Status status = test::PreflightAndApply(plan, staged, live);
  ASSERT_TRUE(status.ok()) << status.ToString();
  ASSERT_TRUE(live == target);
}

// Sparse and mask encodings undo themselves; raw does not, and its row must still be there.
void CheckTwice(const Plan& plan, const Model& base, const Model& target, Profile profile) {
  const auto encoded = Encode(plan, base, target, {.profile = profile, .threads = 1});
  const StagedDelta staged = test::Stage(plan, encoded.payload);
  const auto rows = staged.rows();
  if (std::any_of(rows.begin(), rows.end(),
                  [](const ChunkRow& row) { return row.encoding == Encoding::kRaw; })) {
    return;
  }
  Model live = base;
  const auto device = MakeHostDevice(1);
  Applier applier(plan, staged, live.live(), *device);
  ASSERT_TRUE(applier.Apply().ok());
  if (!rows.empty()) {
    EXPECT_FALSE(applier.Preflight().ok());                   // It is not the base any more.
    EXPECT_EQ(applier.Apply().code(), StatusCode::kTainted);  // Nor is the result its target.
  }
  // A tainted batch stops early; chunk by chunk the second XOR gives the base.
  live = target;
  for (const ChunkWork& work : applier.work()) (void)device->Apply(std::span(&work, 1));
  EXPECT_TRUE(live == base);
}

std::vector<std::uint64_t> SizesAround(std::uint64_t chunk_size) {
  return {0, 8, 16, 24, 64, 1000, chunk_size - 8, chunk_size, chunk_size + 8, 5 * chunk_size + 24};
}

TEST(RoundTripTest, EveryProfileDtypeSizeAndDensity) {
  std::uint64_t seed = 1;
  for (const Dtype dtype : kDtypes) {
    for (const std::uint64_t size : SizesAround(4096)) {
      const Plan plan = test::OneTensorPlan(dtype, size, 4096);
      for (const double share : {0.0, 1e-9, 0.001, 0.05, 0.12, 0.13, 0.5, 1.0}) {
        const Model base(plan, ++seed);
        Model target = base;
        Mutate(plan, target, share, ++seed);
        for (const Profile profile : kProfiles) {
          SCOPED_TRACE(std::string(ProfileName(profile)) + " " + std::string(DtypeName(dtype)) +
                       " size " + std::to_string(size) + " share " + std::to_string(share));
          ASSERT_NO_FATAL_FAILURE(CheckPair(plan, base, target, profile));
          ASSERT_NO_FATAL_FAILURE(CheckTwice(plan, base, target, profile));
        }
      }
    }
  }
}

// Every size from one element up, with one byte a chunk and all bytes changed.
TEST(RoundTripTest, TinyTensors) {
  for (const Dtype dtype : {Dtype::kU8, Dtype::kBF16, Dtype::kF32, Dtype::kF64}) {
    const unsigned width = DtypeWidth(dtype);
    for (std::uint64_t count = 1; count <= 40; ++count) {
      const Plan plan = test::OneTensorPlan(dtype, count * width, 4096);
      for (const double share : {1e-9, 0.3, 1.0}) {
        const Model base(plan, count);
        Model target = base;
        Mutate(plan, target, share, count);
        for (const Profile profile : kProfiles) {
          ASSERT_NO_FATAL_FAILURE(CheckPair(plan, base, target, profile)) << count;
        }
      }
    }
  }
}

TEST(RoundTripTest, DefaultChunkSizeWithSeveralChunks) {
  constexpr std::uint64_t kChunk = 1 << 20;
  for (const Dtype dtype : {Dtype::kU8, Dtype::kBF16, Dtype::kI64}) {
    const Plan plan =
        Plan::Make({test::SpecOfSize("a", dtype, kChunk - 8), test::SpecOfSize("b", dtype, kChunk),
                    test::SpecOfSize("c", dtype, 2 * kChunk + 8)})
            .value();
    for (const double share : {1e-9, 0.001, 0.125, 1.0}) {
      const Model base(plan, 1);
      Model target = base;
      Mutate(plan, target, share, 2, share == 0.125 ? 0x0f : 0x100);
      for (const Profile profile : kProfiles) {
        SCOPED_TRACE(ProfileName(profile));
        ASSERT_NO_FATAL_FAILURE(CheckPair(plan, base, target, profile));
      }
    }
  }
}

// Odd sizes put every later tensor at an odd address. case A6
TEST(RoundTripTest, FirstAndLastByteOfOddTensors) {
  const Plan plan = Plan::Make({{"a", Dtype::kU8, {3}},
                                {"b", Dtype::kBF16, {5}},
                                {"c", Dtype::kF32, {7}},
                                {"d", Dtype::kF64, {1}},
                                {"e", Dtype::kF32, {0}},
                                {"f", Dtype::kF32, {}}},
                               4096)
                        .value();
  const Model base(plan, 1);
  Model target = base;
  for (std::size_t t = 0; t < plan.tensors().size(); ++t) {
    const std::uint64_t size = plan.tensors()[t].size;
    if (size == 0) continue;
    target.Tensor(t)[0] ^= std::byte{1};
    target.Tensor(t)[size - 1] ^= std::byte{0x80};
  }
  for (const Profile profile : kProfiles) CheckPair(plan, base, target, profile);
}

struct SpecialValue {
  const char* name;
  std::uint16_t before;
  std::uint16_t after;
};

// case D11: as BF16, in a tensor that is otherwise equal.
TEST(RoundTripTest, SpecialFloatsGoOverBitForBit) {
  constexpr SpecialValue kValues[] = {
      {"zero to negative zero", 0x0000, 0x8000},   {"NaN payload to NaN payload", 0x7fc1, 0x7fc2},
      {"NaN to number", 0x7fc0, 0x3f80},           {"quiet to signalling NaN", 0x7fc0, 0x7f81},
      {"signalling NaN payloads", 0x7f81, 0xff82}, {"denormal to zero", 0x0001, 0x0000},
      {"denormal to denormal", 0x0001, 0x0002},    {"infinity to NaN", 0x7f80, 0x7f81},
  };
  const Plan plan = test::OneTensorPlan(Dtype::kBF16, 2000, 4096);
  for (const SpecialValue& value : kValues) {
    SCOPED_TRACE(value.name);
    Model base(plan, 1);
    StoreLittle(base.Tensor(0) + 998, value.before);
    Model target = base;
    StoreLittle(target.Tensor(0) + 998, value.after);
    for (const Profile profile : kProfiles) {
      CheckPair(plan, base, target, profile);
      const auto encoded = Encode(plan, base, target, {.profile = profile});
      EXPECT_EQ(encoded.report.payload.changed_elements, 1u);
    }
  }
}

// case D11: a BOOL that is neither 0 nor 1, and integers.
TEST(RoundTripTest, BoolByteTwoAndIntegers) {
  const Plan plan =
      Plan::Make({{"flags", Dtype::kBool, {100}}, {"ids", Dtype::kI64, {100}}}, 4096).value();
  Model base(plan, 1);
  base.Tensor(0)[50] = std::byte{1};
  Model target = base;
  target.Tensor(0)[50] = std::byte{2};
  target.Tensor(1)[799] ^= std::byte{0x80};
  for (const Profile profile : kProfiles) {
    CheckPair(plan, base, target, profile);
    EXPECT_EQ(Encode(plan, base, target, {.profile = profile}).report.payload.changed_elements, 2u);
  }
}

TEST(RoundTripTest, NothingChangedIsADeltaWithoutRows) {
  const Plan plan = test::OneTensorPlan(Dtype::kBF16, 100000, 4096);
  const Model base(plan, 1);
  for (const Profile profile : kProfiles) {
    CheckPair(plan, base, base, profile);
    EXPECT_EQ(Encode(plan, base, base, {.profile = profile}).report.payload.row_count, 0u);
  }
  const Plan empty = Plan::Make({}, 4096).value();
  CheckPair(empty, Model(empty), Model(empty), Profile::kSparseZstd);
}

}  // namespace
}  // namespace segue
