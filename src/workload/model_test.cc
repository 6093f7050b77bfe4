// SPDX-License-Identifier: Apache-2.0
//
// Models come out near the wanted size, named and shaped as readers expect.
#include "workload/model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

namespace segue::workload {
namespace {

using testing::Contains;
using testing::Field;

std::uint64_t StoredSize(const std::vector<ModelTensor>& tensors) {
  std::uint64_t size = 0;
  for (const ModelTensor& tensor : tensors) {
    for (const TensorSpec& spec : StoredSpecs(tensor)) size += TensorSize(spec).value();
  }
  return size;
}

class ModelOfFormat : public testing::TestWithParam<Format> {};

TEST_P(ModelOfFormat, ComesNearTheWantedSize) {
  for (const bool has_experts : {false, true}) {
    for (const std::uint64_t bytes : {1ull << 20, 50ull << 20, 700ull << 20, 3ull << 33}) {
      const auto size =
          static_cast<double>(StoredSize(MakeModel({bytes, GetParam(), has_experts, 1})));
      EXPECT_NEAR(size / static_cast<double>(bytes), 1.0, 0.1) << bytes << " " << has_experts;
    }
  }
}

// Quantisers need pairs along a row, the 16- and 32-blocks are whole in real checkpoints.
TEST_P(ModelOfFormat, RowsAreWholeBlocks) {
  for (const bool has_experts : {false, true}) {
    for (const ModelTensor& tensor : MakeModel({2 << 20, GetParam(), has_experts, 1})) {
      if (tensor.format == GetParam() && !tensor.is_vector()) {
        EXPECT_EQ(tensor.columns % 32, 0u);
      }
      EXPECT_GT(tensor.rows * tensor.columns, 0u);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, ModelOfFormat,
                         testing::Values(Format::kBf16, Format::kFp16, Format::kFp8, Format::kNvfp4,
                                         Format::kMxfp4, Format::kInt4),
                         [](const auto& test) { return std::string(Info(test.param).name); });

TEST(Model, NamesAreHuggingFaces) {
  const std::vector<ModelTensor> tensors = MakeModel({8 << 20, Format::kBf16, true, 1});
  std::set<std::string> names;
  for (const ModelTensor& tensor : tensors) names.insert(tensor.name);
  EXPECT_EQ(names.size(), tensors.size());
  for (const char* name :
       {"model.embed_tokens.weight", "model.layers.0.self_attn.q_proj.weight",
        "model.layers.0.mlp.experts.1.gate_proj.weight", "model.layers.0.mlp.gate.weight",
        "model.layers.0.input_layernorm.weight", "model.norm.weight", "lm_head.weight"}) {
    EXPECT_TRUE(names.contains(name)) << name;
  }
  const std::vector<ModelTensor> dense = MakeModel({8 << 20, Format::kBf16, false, 1});
  EXPECT_THAT(dense, Contains(Field(&ModelTensor::name, "model.layers.0.mlp.up_proj.weight")));
}

TEST(Model, ScalesLieBesideQuantisedTensors) {
  ModelTensor tensor{"w.weight", 256, 192, Role::kMlp, Format::kNvfp4};
  const std::vector<TensorSpec> nvfp4 = {{"w.weight", Dtype::kU8, {256, 96}},
                                         {"w.weight_scale", Dtype::kF8E4M3, {256, 12}},
                                         {"w.weight_scale_2", Dtype::kF32, {}}};
  EXPECT_EQ(StoredSpecs(tensor), nvfp4);
  tensor.format = Format::kFp8;
  const std::vector<TensorSpec> fp8 = {{"w.weight", Dtype::kF8E4M3, {256, 192}},
                                       {"w.weight_scale_inv", Dtype::kF32, {2, 2}}};
  EXPECT_EQ(StoredSpecs(tensor), fp8);
  ModelTensor norm{"n.weight", 1, 64, Role::kNorm, Format::kBf16};
  EXPECT_EQ(StoredSpecs(norm), (std::vector<TensorSpec>{{"n.weight", Dtype::kBF16, {64}}}));
}

TEST(Model, DynamicsFollowTheRole) {
  const Preset preset = FindPreset("bf16-1").value();
  const std::vector<ModelTensor> tensors = MakeModel({8 << 20, Format::kBf16, true, 1});
  std::set<std::uint64_t> keys;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const Dynamics dynamics = MakeDynamics(tensors[i], i, preset, 1);
    keys.insert(dynamics.key);
    EXPECT_GE(dynamics.scale, 0.01f);
    EXPECT_LE(dynamics.scale, 0.05f);
    EXPECT_EQ(dynamics.mean, tensors[i].role == Role::kNorm ? 1.0f : 0.0f);
    EXPECT_EQ(dynamics.row_use == RowUse::kZipf, tensors[i].role == Role::kEmbedding);
    EXPECT_EQ(dynamics.idle_share > 0, tensors[i].role == Role::kExpert);
  }
  EXPECT_EQ(keys.size(), tensors.size());
}

}  // namespace
}  // namespace segue::workload
