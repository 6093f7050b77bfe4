// SPDX-License-Identifier: Apache-2.0
//
// Written checkpoints are valid ones, with every byte where it was put.
#include "workload/writer.h"

#include <gtest/gtest.h>

#include "checkpoint/checkpoint.h"
#include "checkpoint/testing.h"

namespace segue::workload {
namespace {

std::vector<TensorSpec> Specs() {
  return {{"a.weight", Dtype::kU8, {3, 5}},
          {"a.weight_scale", Dtype::kF8E4M3, {3}},
          {"a.weight_scale_2", Dtype::kF32, {}},
          {"b.weight", Dtype::kBF16, {7}},
          {"c.weight", Dtype::kBF16, {2, 9}}};
}

TEST(Writer, PiecesLandWhereTheyBelong) {
  for (const unsigned shards : {1u, 2u, 5u, 99u}) {
    test::TemporaryDirectory directory;
    const ShardLayout layout = ShardLayout::Make(Specs(), shards).value();
    EXPECT_EQ(layout.shard_count(), std::min(shards, 5u));
    VersionWriter writer = VersionWriter::Create(layout, directory.File("v")).value();
    for (std::size_t i = 0; i < Specs().size(); ++i) {
      const std::uint64_t size = TensorSize(Specs()[i]).value();
      for (std::uint64_t offset = size; offset-- > 0;) {
        const auto byte = static_cast<std::byte>(16 * i + offset);
        ASSERT_TRUE(writer.Write(i, offset, {&byte, 1}).ok());
      }
    }
    ASSERT_TRUE(writer.Close().ok());
    const Result<Checkpoint> checkpoint = Checkpoint::Open(directory.File("v"));
    ASSERT_TRUE(checkpoint.ok()) << checkpoint.status().ToString();
    EXPECT_TRUE(checkpoint.value().warnings().empty());
    ASSERT_EQ(checkpoint.value().tensors().size(), Specs().size());
    for (std::size_t i = 0; i < Specs().size(); ++i) {
      EXPECT_EQ(checkpoint.value().tensors()[i].spec, Specs()[i]);
      const ByteSpan bytes = checkpoint.value().TensorBytes(i);
      for (std::size_t at = 0; at < bytes.size(); ++at) {
        ASSERT_EQ(bytes[at], static_cast<std::byte>(16 * i + at));
      }
    }
  }
}

TEST(Writer, AVersionThatWasNotClosedHasNoIndex) {
  test::TemporaryDirectory directory;
  const ShardLayout layout = ShardLayout::Make(Specs(), 2).value();
  { const VersionWriter writer = VersionWriter::Create(layout, directory.File("v")).value(); }
  EXPECT_FALSE(FileExists(directory.File("v/model.safetensors.index.json")));
  EXPECT_TRUE(FileExists(directory.File("v/model-00001-of-00002.safetensors")));
}

TEST(Writer, TensorsThatAreNotWholeBytesAreRefused) {
  const Status status = ShardLayout::Make({{"f", Dtype::kF4, {3}}}, 1).status();
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace segue::workload
