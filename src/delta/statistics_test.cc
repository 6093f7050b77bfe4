// SPDX-License-Identifier: Apache-2.0
//
// Statistics against examples that were worked out by hand.
#include "delta/statistics.h"

#include <gtest/gtest.h>

#include <cmath>

#include "segue/status.h"

namespace segue {
namespace {

constexpr std::uint64_t kChunkSize = 4096;

struct Pair {
  Plan plan;
  std::vector<ByteVector> base;
  std::vector<ByteVector> target;

  explicit Pair(std::vector<TensorSpec> specs)
      : plan(Plan::Make(std::move(specs), kChunkSize).value()) {
    for (const PlanTensor& tensor : plan.tensors()) base.emplace_back(tensor.size);
    target = base;
  }
  ChangeStatistics Count(unsigned threads = 2) const {
    return CountChanges(plan, View(base), View(target), {threads, {}});
  }
  static ModelView View(const std::vector<ByteVector>& tensors) {
    std::vector<const std::byte*> pointers;
    pointers.reserve(tensors.size());
    for (const ByteVector& tensor : tensors) pointers.push_back(tensor.data());
    return ModelView(std::move(pointers));
  }
};

void SetHalf(ByteVector& tensor, std::size_t index, std::uint16_t bits) {
  StoreLittle(tensor.data() + 2 * index, bits);
}

TEST(CountChanges, NothingChanged) {
  const Pair pair({{"a", Dtype::kU8, {10000}}, {"b", Dtype::kF32, {0}}});
  const ChangeStatistics statistics = pair.Count();
  EXPECT_EQ(statistics.changed, (std::vector<std::uint64_t>{0, 0}));
  EXPECT_EQ(statistics.changed_total, 0u);
  EXPECT_EQ(statistics.entropy_bound_bytes, 0);
}

TEST(CountChanges, GapsCrossChunksButNotTensors) {
  Pair pair({{"a", Dtype::kU8, {3 * kChunkSize}}, {"b", Dtype::kU8, {100}}});
  for (const std::size_t place : {5u, 6u, 9u, 5u + 2 * 4096u})
    pair.target[0][place] = std::byte{0x81};
  pair.target[1][0] = std::byte{1};
  const ChangeStatistics statistics = pair.Count();
  EXPECT_EQ(statistics.changed, (std::vector<std::uint64_t>{4, 1}));
  EXPECT_EQ(statistics.gaps[0], 1u);   // 6 - 5.
  EXPECT_EQ(statistics.gaps[1], 1u);   // 9 - 6 = 3.
  EXPECT_EQ(statistics.gaps[12], 1u);  // 8197 - 9 = 8188.
  EXPECT_EQ(statistics.xor_bits[0], 5u);
  EXPECT_EQ(statistics.xor_bits[7], 4u);
  EXPECT_EQ(statistics.lines_touched, 3u);
}

TEST(CountChanges, OneUlpFollowsTheOrderOfValues) {
  Pair pair({{"w", Dtype::kBF16, {64}}, {"x", Dtype::kI16, {64}}});
  const std::pair<std::uint16_t, std::uint16_t> moves[] = {
      {0x3f80, 0x3f81},  // Up by one.
      {0xbf80, 0xbf7f},  // Down in magnitude, up in value, across an exponent.
      {0x8000, 0x0001},  // -0 to the smallest positive.
      {0x0001, 0x8001},  // Two apart.
      {0x0000, 0x8000},  // The same value: no unit at all.
      {0x3f80, 0x3f90},  // Sixteen apart.
  };
  for (std::size_t i = 0; i < std::size(moves); ++i) {
    SetHalf(pair.base[0], i, moves[i].first);
    SetHalf(pair.target[0], i, moves[i].second);
  }
  SetHalf(pair.target[1], 0, 1);  // Not a float.
  const ChangeStatistics statistics = pair.Count();
  EXPECT_EQ(statistics.one_ulp, 3u);
  EXPECT_EQ(statistics.changed, (std::vector<std::uint64_t>{6, 1}));
  EXPECT_EQ(statistics.xor_bits[15], 3u);  // Moves 3, 4 and 5.
}

TEST(CountChanges, WideElementsCountBitsOfEveryPlane) {
  Pair pair({{"w", Dtype::kF64, {600}}});
  StoreLittle<std::uint64_t>(pair.target[0].data() + 8 * 599, 1ull << 63 | 1ull << 9);
  const ChangeStatistics statistics = pair.Count();
  EXPECT_EQ(statistics.changed_total, 1u);
  EXPECT_EQ(statistics.xor_bits[63], 1u);
  EXPECT_EQ(statistics.xor_bits[9], 1u);
  EXPECT_NEAR(statistics.entropy_bound_bytes, (std::log2(600.0) + 599 * std::log2(600.0 / 599)) / 8,
              1e-9);
}

TEST(CountChanges, ThreadsDoNotMatter) {
  Pair pair({{"w", Dtype::kBF16, {50000}}});
  for (std::size_t i = 0; i < 50000; i += 1 + i % 97) {
    SetHalf(pair.target[0], i, static_cast<std::uint16_t>(i | 1));
  }
  const ChangeStatistics one = pair.Count(1);
  const ChangeStatistics many = pair.Count(7);
  EXPECT_EQ(one.changed, many.changed);
  EXPECT_EQ(one.xor_bits, many.xor_bits);
  EXPECT_EQ(one.gaps, many.gaps);
  EXPECT_EQ(one.lines_touched, many.lines_touched);
  EXPECT_EQ(one.entropy_bound_bytes, many.entropy_bound_bytes);
}

TEST(EntropyBound, AgreesWithHandMadeNumbers) {
  // Half of 16 elements: one bit each for the positions; two equal values: one bit a change.
  const std::uint64_t values[4] = {0, 4, 4, 0};
  EXPECT_DOUBLE_EQ(EntropyBoundBytes(16, 8, values, 4), (16 + 8) / 8.0);
  // Two planes, of which the second is constant.
  const std::uint64_t planes[4] = {4, 4, 8, 0};
  EXPECT_DOUBLE_EQ(EntropyBoundBytes(16, 8, planes, 2), (16 + 8) / 8.0);
  // Everything changed: positions are free.
  const std::uint64_t all[2] = {16, 0};
  EXPECT_DOUBLE_EQ(EntropyBoundBytes(16, 16, all, 2), 0);
  EXPECT_DOUBLE_EQ(EntropyBoundBytes(16, 0, all, 2), 0);
}

TEST(TensorClass, FollowsNames) {
  EXPECT_EQ(TensorClass("model.layers.0.self_attn.q_proj.weight"), "attention");
  EXPECT_EQ(TensorClass("model.layers.0.self_attn.q_proj.weight_scale"), "scale");
  EXPECT_EQ(TensorClass("model.layers.0.self_attn.q_norm.weight"), "norm");
  EXPECT_EQ(TensorClass("model.layers.0.mlp.gate_proj.weight"), "mlp");
  EXPECT_EQ(TensorClass("model.layers.0.mlp.gate.weight"), "router");
  EXPECT_EQ(TensorClass("model.layers.0.mlp.gate.e_score_correction_bias"), "router");
  EXPECT_EQ(TensorClass("model.layers.0.mlp.experts.7.down_proj.weight"), "experts");
  EXPECT_EQ(TensorClass("model.layers.0.mlp.shared_expert_gate.weight"), "router");
  EXPECT_EQ(TensorClass("model.embed_tokens.weight"), "embedding");
  EXPECT_EQ(TensorClass("lm_head.weight"), "head");
  EXPECT_EQ(TensorClass("model.norm.weight"), "norm");
  EXPECT_EQ(TensorClass("rotary.inv_freq"), "other");
}

}  // namespace
}  // namespace segue
