// SPDX-License-Identifier: Apache-2.0
//
// Goal: a plan's bytes are those of docs/format.md, every byte string that is not a plan is
// refused, and chunk numbers lead to the right bytes.
#include "checkpoint/plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "checkpoint/testing.h"

namespace segue {
namespace {

using testing::HasSubstr;

constexpr std::uint64_t kChunk = limits::kChunkSizeMin;

Plan SmallPlan() {
  return Plan::Make({{"a", Dtype::kBF16, {2, 3}}, {"b", Dtype::kU8, {}}}, kChunk).value();
}

ByteVector Copy(ByteSpan bytes) { return {bytes.begin(), bytes.end()}; }

Status ParseStatus(const ByteVector& object) { return Plan::Parse(object).status(); }

TEST(PlanTest, BytesOfTheFormat) {
  const Plan plan = SmallPlan();
  EXPECT_EQ(ToHex(plan.object()),
            "5345475545504c4e"  // magic
            "01000000"
            "0c000000"
            "0200000000000000"  // version, log2, count
            "0f"
            "02"
            "0100"
            "0200000000000000"
            "0300000000000000"  // BF16, rank 2, dims
            "61"
            "05"
            "00"
            "0100"
            "62");
  EXPECT_EQ(plan.digest(), HashSha256(plan.object()));
  EXPECT_EQ(plan.model_size(), 13u);
  EXPECT_EQ(plan.chunk_count(), 2u);
}

TEST(PlanTest, ParseGivesThePlanBack) {
  const Plan plan = SmallPlan();
  const Plan parsed = Plan::Parse(plan.object()).value();
  EXPECT_EQ(parsed.digest(), plan.digest());
  EXPECT_EQ(AsText(parsed.object()), AsText(plan.object()));
  EXPECT_EQ(parsed.chunk_size(), kChunk);
  ASSERT_EQ(parsed.tensors().size(), 2u);
  EXPECT_EQ(parsed.tensors()[0].spec, (TensorSpec{"a", Dtype::kBF16, {2, 3}}));
  EXPECT_EQ(parsed.tensors()[1].first_chunk, 1u);
  EXPECT_TRUE(Plan::Parse(Plan::Make({}).value().object()).value().tensors().empty());
}

TEST(PlanTest, ChunksSkipEmptyTensors) {  // case A1
  const Plan plan = Plan::Make({{"a", Dtype::kF32, {0}},
                                {"b", Dtype::kF32, {kChunk / 2 + 1}},
                                {"c", Dtype::kU8, {3, 0, 2}},
                                {"d", Dtype::kI64, {}},
                                {"e", Dtype::kU8, {0}}},
                               kChunk)
                        .value();
  EXPECT_EQ(plan.chunk_count(), 4u);
  const ChunkPlace first = plan.Chunk(0);
  EXPECT_EQ(first.tensor, 1u);
  EXPECT_EQ(first.offset, 0u);
  EXPECT_EQ(first.size, kChunk);
  EXPECT_EQ(first.width, 4u);
  const ChunkPlace last_of_b = plan.Chunk(2);
  EXPECT_EQ(last_of_b.tensor, 1u);
  EXPECT_EQ(last_of_b.offset, 2 * kChunk);
  EXPECT_EQ(last_of_b.size, 4u);
  const ChunkPlace of_d = plan.Chunk(3);
  EXPECT_EQ(of_d.tensor, 3u);
  EXPECT_EQ(of_d.size, 8u);
  EXPECT_EQ(of_d.width, 8u);
  EXPECT_EQ(plan.tensors()[2].first_chunk, 3u);
  EXPECT_EQ(plan.tensors()[4].first_chunk, 4u);
}

TEST(PlanTest, ChunkSizes) {
  for (std::uint64_t size = limits::kChunkSizeMin; size <= limits::kChunkSizeMax; size *= 2) {
    EXPECT_TRUE(Plan::Make({}, size).ok()) << size;
  }
  for (const std::uint64_t size :
       {0ull, 1ull, 2048ull, 4097ull, 12288ull, 1ull << 25, 1ull << 63}) {
    EXPECT_EQ(Plan::Make({}, size).status().code(), StatusCode::kInvalidArgument) << size;
  }
}

TEST(PlanTest, MakeRefuses) {
  const auto refusal = [](std::vector<TensorSpec> specs) {
    const Status status = Plan::Make(std::move(specs)).status();
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    return status.message();
  };
  EXPECT_THAT(refusal({{"b", Dtype::kU8, {}}, {"a", Dtype::kU8, {}}}),
              HasSubstr("tensor 'a': is not after 'b'"));
  EXPECT_THAT(refusal({{"a", Dtype::kU8, {}}, {"a", Dtype::kU8, {}}}),
              HasSubstr("tensor 'a': is not after 'a'"));
  EXPECT_THAT(refusal({{"", Dtype::kU8, {}}}), HasSubstr("empty"));
  EXPECT_THAT(refusal({{std::string(4097, 'n'), Dtype::kU8, {}}}), HasSubstr("4097"));
  EXPECT_THAT(refusal({{"a\xff", Dtype::kU8, {}}}), HasSubstr("UTF-8"));
  EXPECT_THAT(refusal({{"a", Dtype::kU8, std::vector<std::uint64_t>(33, 1)}}), HasSubstr("33"));
  EXPECT_THAT(refusal({{"a", Dtype::kF4, {3}}}), HasSubstr("F4 [3] is 12 bits"));  // case A7
  EXPECT_THAT(refusal({{"a", Dtype::kU8, {1ull << 32, 1ull << 32}}}),
              HasSubstr("2^64"));  // case A4
}

TEST(PlanTest, ChunkCountLimit) {
  // 2^46 bytes in chunks of 4 KiB are 2^34 chunks.
  const Status status = Plan::Make({{"a", Dtype::kU8, {1ull << 46}}}, kChunk).status();
  EXPECT_EQ(status.code(), StatusCode::kResourceExhausted);
  EXPECT_THAT(status.message(), HasSubstr("over 4294967296 chunks"));
  EXPECT_EQ(Plan::Make({{"a", Dtype::kU8, {1ull << 44}}}, kChunk).value().chunk_count(),
            limits::kChunkCountMax);
}

TEST(PlanTest, NamesOrderByBytes) {
  // Bytes, not letters: upper case before '_' before lower case; UTF-8 behind ASCII.
  const Plan plan = Plan::Make({{"Z", Dtype::kU8, {}},
                                {"_", Dtype::kU8, {}},
                                {"a", Dtype::kU8, {}},
                                {"a.b", Dtype::kU8, {}},
                                {"é", Dtype::kU8, {}}})
                        .value();
  EXPECT_TRUE(Plan::Parse(plan.object()).ok());
}

TEST(PlanTest, ParseRefusesEveryTruncationAndExtension) {
  ByteVector object = Copy(SmallPlan().object());
  for (std::size_t size = 0; size < object.size(); ++size) {
    EXPECT_EQ(
        ParseStatus({object.begin(), object.begin() + static_cast<std::ptrdiff_t>(size)}).code(),
        StatusCode::kCorruption)
        << size;
  }
  object.push_back(std::byte{0});
  EXPECT_EQ(ParseStatus(object).code(), StatusCode::kCorruption);
  EXPECT_THAT(ParseStatus(object).message(), HasSubstr("1 bytes lie past the last tensor"));
}

TEST(PlanTest, ParseRefusesHostileFields) {
  const ByteVector good = Copy(SmallPlan().object());
  const auto with = [&good](std::size_t offset, auto value) {
    ByteVector object = good;
    StoreLittle(object.data() + offset, value);
    return ParseStatus(object);
  };
  EXPECT_EQ(with(0, 'X').code(), StatusCode::kCorruption);
  EXPECT_EQ(with(8, std::uint32_t{2}).code(), StatusCode::kUnsupported);
  for (const std::uint32_t log2 : {0u, 11u, 25u, 63u, 64u, ~0u}) {
    EXPECT_EQ(with(12, log2).code(), StatusCode::kCorruption) << log2;
  }
  for (const std::uint64_t count : {1ull, 3ull, 4'000'001ull, 1ull << 60, ~0ull}) {
    EXPECT_EQ(with(16, count).code(), StatusCode::kCorruption) << count;
  }
  EXPECT_EQ(with(24, std::uint8_t{0}).code(), StatusCode::kUnsupported);
  EXPECT_EQ(with(24, std::uint8_t{23}).code(), StatusCode::kUnsupported);
  EXPECT_EQ(with(24, std::uint8_t{2}).code(), StatusCode::kOk);  // F4 [2, 3]: three bytes.
  EXPECT_EQ(with(25, std::uint8_t{33}).code(), StatusCode::kCorruption);
  EXPECT_EQ(with(26, std::uint16_t{0}).code(), StatusCode::kCorruption);
  EXPECT_EQ(with(26, std::uint16_t{0xffff}).code(), StatusCode::kCorruption);
  EXPECT_THAT(with(28, std::uint64_t{1} << 63).message(), HasSubstr("tensor 'a'"));  // case A4
  EXPECT_EQ(with(44, 'b').code(), StatusCode::kCorruption);  // Both are named "b".
}

TEST(PlanTest, FromCheckpointIgnoresFiles) {  // case C6
  const std::vector<test::TestTensor> tensors = {test::RandomTensor({"a", Dtype::kBF16, {4}}, 1),
                                                 test::RandomTensor({"b", Dtype::kF32, {2}}, 2),
                                                 test::RandomTensor({"c", Dtype::kU8, {5}}, 3)};
  const test::TemporaryDirectory one;
  const test::TemporaryDirectory other;
  test::WriteShardedCheckpoint(one.path(), {{tensors[0], tensors[1]}, {tensors[2]}});
  test::WriteShardedCheckpoint(other.path(), {{tensors[2]}, {tensors[1]}, {tensors[0]}},
                               {{"format", "pt"}});
  const Plan base = Plan::FromCheckpoint(Checkpoint::Open(one.path()).value()).value();
  const Plan target = Plan::FromCheckpoint(Checkpoint::Open(other.path()).value()).value();
  EXPECT_EQ(base.digest(), target.digest());
  EXPECT_TRUE(ComparePlans(base, target, "v1", "v2").ok());
}

}  // namespace
}  // namespace segue
