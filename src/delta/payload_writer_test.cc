// SPDX-License-Identifier: Apache-2.0
//
// Payload writer: groups, streams and frames as docs/format.md lays them out. Method: rows put in
// by hand, the table read back, and each part of each stream compared with what went in.
#include "delta/payload_writer.h"

#include <gtest/gtest.h>

#include <vector>

#include "delta/testing.h"

namespace segue {
namespace {

using test::Model;

RowSums Sums(std::uint32_t change_count) { return {{{1, 2}}, {{3, 4}}, 5, change_count}; }

TEST(PayloadWriterTest, ConstantPlanesAreElided) {
  const Plan plan = test::OneTensorPlan(Dtype::kF32, 4096, 4096);
  const std::vector<std::uint32_t> positions = {3, 100, 1023};
  ByteVector values(12);
  for (std::size_t i = 0; i < 3; ++i) {
    values[4 * i] = static_cast<std::byte>(i + 1);  // Plane 0 varies, 1 is 0, 2 and 3 constant.
    values[4 * i + 2] = std::byte{0x22};
    values[4 * i + 3] = std::byte{0x33};
  }
  const ByteVector payload = test::WritePayload([&](GroupBuilder& group) {
    group.AddSparse(0, plan.Chunk(0), Sums(3), positions, values.data());
  });
  const StagedDelta staged = test::Stage(plan, payload);
  const ChunkRow& row = staged.rows()[0];
  EXPECT_EQ(row.plane_mask, 1);
  EXPECT_EQ(row.constants, 0x33220000u);
  EXPECT_EQ(row.touched, 5u);
  EXPECT_EQ(row.before, (Digest{{1, 2}}));
  EXPECT_EQ(row.after, (Digest{{3, 4}}));
  const auto parts = staged.Parts(plan, 0);
  EXPECT_EQ(ByteVector(parts[kStreamPlane0].begin(), parts[kStreamPlane0].end()),
            (ByteVector{std::byte{1}, std::byte{2}, std::byte{3}}));
  std::vector<std::uint32_t> decoded(3);
  ASSERT_TRUE(
      DecodePositions(RowShape(row, plan.Chunk(0)), parts[kStreamLow], parts[kStreamHigh], decoded)
          .ok());
  EXPECT_EQ(decoded, positions);
}

TEST(PayloadWriterTest, RowsOfAGroupShareStreamsInOrder) {
  const Plan plan = test::OneTensorPlan(Dtype::kU8, 20 * 4096, 4096);
  std::vector<ByteVector> data;
  for (std::uint64_t i = 0; i < 20; ++i) {
    ByteVector bytes(4096);
    for (std::byte& byte : bytes) byte = static_cast<std::byte>(i);
    data.push_back(bytes);
  }
  const ByteVector payload = test::WritePayload([&](GroupBuilder& group) {
    for (std::uint64_t i = 0; i < 20; ++i) {
      group.AddDense(i, plan.Chunk(i), Sums(1), Encoding::kRaw, data[i]);
    }
  });
  const PayloadTable table = ReadPayloadTable(payload, plan).value();
  ASSERT_EQ(table.groups.size(), 1u);
  EXPECT_EQ(table.groups[0].row_count, 20u);
  EXPECT_EQ(table.groups[0].stream_mask, 1u << kStreamDense);
  ASSERT_EQ(table.frames.size(), 1u);
  EXPECT_EQ(table.frames[0].outer, Outer::kZstd);
  const StagedDelta staged = test::Stage(plan, payload);
  for (std::size_t i = 0; i < 20; ++i) {
    const auto parts = staged.Parts(plan, i);
    EXPECT_EQ(ByteVector(parts[kStreamDense].begin(), parts[kStreamDense].end()), data[i]);
  }
}

TEST(PayloadWriterTest, WhatDoesNotCompressIsStored) {
  const Plan plan = test::OneTensorPlan(Dtype::kU8, 4096, 4096);
  Model noise(plan, 1);
  const ByteVector payload = test::WritePayload([&](GroupBuilder& group) {
    group.AddDense(0, plan.Chunk(0), Sums(1), Encoding::kRaw, ByteSpan(noise.Tensor(0), 4096));
  });
  const PayloadTable table = ReadPayloadTable(payload, plan).value();
  EXPECT_EQ(table.frames[0].outer, Outer::kStored);
  EXPECT_EQ(table.frames[0].outer_size, 4096u);
}

TEST(PayloadWriterTest, AnEmptyPayloadHasNoRowsAndAPrelude) {
  const Plan plan = test::OneTensorPlan(Dtype::kU8, 4096, 4096);
  const ByteVector payload = test::WritePayload([](GroupBuilder&) {});
  const PayloadTable table = ReadPayloadTable(payload, plan).value();
  EXPECT_TRUE(table.rows.empty() && table.groups.empty() && table.frames.empty());
  EXPECT_EQ(AsText(ByteSpan(payload).first(8)), kPayloadMagic);
}

TEST(PayloadWriterTest, ABuilderIsAsNewAfterFinish) {
  const Plan plan = test::OneTensorPlan(Dtype::kBF16, 2 * 4096, 4096);
  Model base(plan, 1);
  Model target = base;
  test::Mutate(plan, target, 0.1, 2, 7);
  GroupBuilder used;
  for (const Encoding encoding : test::kEncodings) {
    const ChunkPlace place = plan.Chunk(0);
    test::AddAs(0, place, base.Tensor(0), target.Tensor(0), encoding, used);
    const EncodedGroup again = used.Finish().value();
    EXPECT_TRUE(used.empty());
    EXPECT_EQ(used.inner_size(), 0u);
    GroupBuilder fresh;
    test::AddAs(0, place, base.Tensor(0), target.Tensor(0), encoding, fresh);
    const EncodedGroup once = fresh.Finish().value();
    EXPECT_EQ(again.bytes, once.bytes);
    EXPECT_EQ(again.rows, once.rows);
    EXPECT_EQ(again.stream_mask, once.stream_mask);
  }
}

TEST(PayloadWriterTest, SummaryDescribesWhatWasWritten) {
  const Plan plan = test::OneTensorPlan(Dtype::kU8, 3 * 4096, 4096);
  const Model noise(plan, 1);
  ByteVector payload;
  PayloadWriter writer([&](ByteSpan bytes) {
    AppendBytes(payload, bytes);
    return Status();
  });
  for (std::uint64_t i = 0; i < 3; ++i) {
    GroupBuilder group;
    group.AddDense(i, plan.Chunk(i), Sums(10), Encoding::kRaw,
                   ByteSpan(noise.view().Chunk(plan.Chunk(i)), 4096));
    ASSERT_TRUE(writer.Append(group.Finish().value()).ok());
  }
  const PayloadSummary summary = writer.Finish().value();
  EXPECT_EQ(summary.size, payload.size());
  EXPECT_EQ(summary.sha256, HashSha256(payload));
  EXPECT_EQ(summary.row_count, 3u);
  EXPECT_EQ(summary.changed_elements, 30u);
  EXPECT_EQ(summary.difference, (Digest{{6, 6}}));
  EXPECT_EQ(ReadPayloadTable(payload, plan).value().groups.size(), 3u);
}

}  // namespace
}  // namespace segue
