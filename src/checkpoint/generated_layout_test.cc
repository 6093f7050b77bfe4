// SPDX-License-Identifier: Apache-2.0
//
// The layout of a publisher without files: valid by the reader's own checks, cut by size, aligned.
#include <gtest/gtest.h>

#include "checkpoint/layout.h"
#include "checkpoint/safetensors.h"

namespace segue {
namespace {

Plan MakePlan() {
  return Plan::Make({{"a", Dtype::kU8, {3}},
                     {"b \"quoted\"\n", Dtype::kF64, {2}},
                     {"c", Dtype::kBF16, {5}},
                     {"d", Dtype::kF32, {0}},
                     {"e", Dtype::kF32, {100}}})
      .value();
}

// What a reader makes of the stored object: its checks are those of any layout from outside.
Layout Reread(const Layout& layout) {
  const Result<Layout> parsed = Layout::Parse(layout.MakeObject().value());
  EXPECT_TRUE(parsed.ok()) << parsed.status().ToString();
  EXPECT_EQ(parsed->digest(), layout.digest());
  return parsed.value();
}

TEST(GeneratedLayoutTest, OneShard) {
  const Layout layout = Reread(Layout::Generate(MakePlan(), 1000).value());
  ASSERT_EQ(layout.shards().size(), 1u);
  EXPECT_EQ(layout.shards()[0].name, "model.safetensors");
  EXPECT_EQ(layout.index_json(), "");
  const SafetensorsHeader header =
      ParseSafetensorsHeader(AsBytes(layout.shards()[0].header_json), "h").value();
  ASSERT_EQ(header.entries.size(), 5u);
  EXPECT_EQ(header.data_size, 3u + 16 + 10 + 400);
  EXPECT_EQ(header.metadata.at("format"), "pt");
  for (const SafetensorsEntry& entry : header.entries) {
    EXPECT_EQ(entry.offset % DtypeWidth(entry.spec.dtype), 0u) << entry.spec.name;
  }
}

TEST(GeneratedLayoutTest, SeveralShards) {
  const Layout layout = Reread(Layout::Generate(MakePlan(), 19).value());
  ASSERT_EQ(layout.shards().size(), 3u);  // a and b; c and d; e alone, over the size.
  EXPECT_EQ(layout.shards()[0].name, "model-00001-of-00003.safetensors");
  EXPECT_EQ(layout.shards()[2].name, "model-00003-of-00003.safetensors");
  EXPECT_NE(layout.index_json().find("\"total_size\": 429"), std::string::npos);
  EXPECT_NE(layout.index_json().find("\"b \\\"quoted\\\"\\n\": \"model-00001-of-00003"),
            std::string::npos);
}

TEST(GeneratedLayoutTest, DependsOnPlanAndSizeAlone) {
  const Layout layout = Layout::Generate(MakePlan(), 1000).value();
  EXPECT_EQ(layout.digest(), Layout::Generate(MakePlan(), 2000).value().digest());
  EXPECT_NE(layout.digest(), Layout::Generate(MakePlan(), 100).value().digest());
}

TEST(GeneratedLayoutTest, NoTensors) {
  const Layout layout = Reread(Layout::Generate(Plan::Make({}).value(), 1000).value());
  EXPECT_EQ(layout.shards().size(), 1u);
}

TEST(GeneratedLayoutTest, ManyTensors) {
  std::vector<TensorSpec> tensors;
  for (int i = 0; i < 100'001; ++i) {
    tensors.push_back({"t" + std::to_string(1'000'000 + i), Dtype::kU8, {1}});
  }
  const Layout layout = Layout::Generate(Plan::Make(std::move(tensors)).value(), 1u << 30).value();
  EXPECT_EQ(layout.shards().size(), 2u);
}

}  // namespace
}  // namespace segue
