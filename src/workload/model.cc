// SPDX-License-Identifier: Apache-2.0
//
// Sizing works in squares of the hidden size: first the hidden size, then as many layers as fit,
// then experts (or the dense width) to come close to the wanted bytes.
#include "workload/model.h"

#include <algorithm>
#include <cmath>

#include "workload/noise.h"

namespace segue::workload {
namespace {

// Parts of a seed.
enum : std::uint64_t { kTensorPart, kTokenPart, kScalePart };

// A model of this many squares of its hidden size has about ten layers of 32 experts, or 40 dense.
constexpr double kSquaresPerModel = 512;
constexpr std::size_t kHiddenMin = 64;
constexpr std::size_t kHiddenMax = 4096;
// Of the bytes, for the embedding and the head together.
constexpr double kVocabularyShare = 0.05;
constexpr double kAttentionSquares = 2.5;  // q and o: 1 each; k and v: 1/4 each.
constexpr double kExpertSquares = 1.5;     // Three matrices of hidden x hidden / 2.
constexpr double kTokenSpread = 0.5;
// A step's batch leaves out an expert of average share once in 22,000 steps, one of a third once
// in 28.
constexpr double kTokensAtAverageExpert = 10;

struct Shape {
  std::size_t hidden = 0;
  std::size_t vocabulary = 0;
  std::size_t layers = 0;
  std::size_t experts = 0;       // 0: dense.
  std::size_t intermediate = 0;  // Of an expert, or of the dense block.
};

// Bits of one matrix element with its share of the scales.
double StoredBits(Format format) {
  const FormatInfo& info = Info(format);
  const auto bits = static_cast<double>(info.bits);
  if (info.block_rows == 0) return bits;
  return bits +
         DtypeBits(info.scale_dtype) / static_cast<double>(info.block_rows * info.block_columns);
}

std::size_t ChooseHidden(double elements) {
  std::size_t hidden = kHiddenMin;
  while (hidden < kHiddenMax &&
         4 * kSquaresPerModel * static_cast<double>(hidden * hidden) <= elements) {
    hidden *= 2;
  }
  return hidden;
}

// `value` as a multiple of `unit`, at least `least`.
std::size_t RoundTo(double value, std::size_t unit, std::size_t least) {
  const double count = std::max(0.0, std::round(value / static_cast<double>(unit)));
  return std::max(least, static_cast<std::size_t>(count) * unit);
}

Shape ChooseShape(const ModelOptions& options) {
  const auto bits = static_cast<double>(options.bytes) * 8;
  Shape shape;
  shape.hidden = ChooseHidden(bits / StoredBits(options.format));
  const auto hidden = static_cast<double>(shape.hidden);
  shape.vocabulary = RoundTo(bits * kVocabularyShare / 16 / (2 * hidden), 64, 64);
  const double vocabulary_bits = 2 * 16 * hidden * static_cast<double>(shape.vocabulary);
  const double squares =
      std::max(0.0, bits - vocabulary_bits) / StoredBits(options.format) / (hidden * hidden);
  if (options.has_experts) {
    const double experts = shape.hidden >= 256 ? 32 : 8;
    shape.layers = RoundTo(squares / (kAttentionSquares + experts * kExpertSquares), 1, 1);
    const double left = squares / static_cast<double>(shape.layers) - kAttentionSquares;
    shape.experts = RoundTo(left / kExpertSquares, 1, 2);
    shape.intermediate = shape.hidden / 2;
    return shape;
  }
  shape.layers = RoundTo(squares / (kAttentionSquares + 9), 1, 1);
  const double left = squares / static_cast<double>(shape.layers) - kAttentionSquares;
  shape.intermediate = RoundTo(left * hidden / 3, 32, 32);
  return shape;
}

// Collects tensors; knows which roles are quantised.
class Builder {
 public:
  explicit Builder(const ModelOptions& options)
      : options_(options),
        plain_(options.format == Format::kFp16 ? Format::kFp16 : Format::kBf16) {}

  void Add(const std::string& name, std::size_t rows, std::size_t columns, Role role,
           double token_share = 1) {
    const bool quantised = role == Role::kAttention || role == Role::kMlp || role == Role::kExpert;
    tensors_.push_back(
        {name + ".weight", rows, columns, role, quantised ? options_.format : plain_, token_share});
  }

  void AddMlp(const std::string& prefix, const Shape& shape, Role role, double token_share = 1) {
    Add(prefix + ".gate_proj", shape.intermediate, shape.hidden, role, token_share);
    Add(prefix + ".up_proj", shape.intermediate, shape.hidden, role, token_share);
    Add(prefix + ".down_proj", shape.hidden, shape.intermediate, role, token_share);
  }

  void AddLayer(std::size_t layer, const Shape& shape) {
    const std::string prefix = "model.layers." + std::to_string(layer);
    const std::size_t hidden = shape.hidden;
    Add(prefix + ".input_layernorm", 1, hidden, Role::kNorm);
    Add(prefix + ".self_attn.q_proj", hidden, hidden, Role::kAttention);
    Add(prefix + ".self_attn.k_proj", hidden / 4, hidden, Role::kAttention);
    Add(prefix + ".self_attn.v_proj", hidden / 4, hidden, Role::kAttention);
    Add(prefix + ".self_attn.o_proj", hidden, hidden, Role::kAttention);
    const std::size_t head_size = std::min<std::size_t>(128, hidden / 4);
    Add(prefix + ".self_attn.q_norm", 1, head_size, Role::kNorm);
    Add(prefix + ".self_attn.k_norm", 1, head_size, Role::kNorm);
    Add(prefix + ".post_attention_layernorm", 1, hidden, Role::kNorm);
    if (shape.experts == 0) return AddMlp(prefix + ".mlp", shape, Role::kMlp);
    Add(prefix + ".mlp.gate", shape.experts, hidden, Role::kRouter);
    for (std::size_t expert = 0; expert < shape.experts; ++expert) {
      AddMlp(prefix + ".mlp.experts." + std::to_string(expert), shape, Role::kExpert,
             TokenShare(layer, expert));
    }
  }

  std::vector<ModelTensor> Take() { return std::move(tensors_); }

 private:
  // Log-normal with mean 1.
  double TokenShare(std::size_t layer, std::size_t expert) const {
    const std::uint64_t key = SubKey(SubKey(options_.seed, kTokenPart), layer);
    const float normal =
        NormalTable::Get().FromBits(static_cast<std::uint32_t>(HashAt(key, expert)));
    return std::exp(kTokenSpread * static_cast<double>(normal) - kTokenSpread * kTokenSpread / 2);
  }

  ModelOptions options_;
  Format plain_;
  std::vector<ModelTensor> tensors_;
};

// Standard deviation of a tensor's weights: by its role, within 20 % by its key, as configurations
// of the Qwen and GLM families have them.
float WeightScale(Role role, std::uint64_t key) {
  constexpr float kByRole[] = {0.025f, 0.018f, 0.05f, 0.012f, 0.022f, 0.02f, 0.018f};
  const float normal =
      NormalTable::Get().FromBits(static_cast<std::uint32_t>(HashAt(key, kScalePart)));
  const float scale = kByRole[static_cast<std::size_t>(role)] * std::exp(0.2f * normal);
  return std::clamp(scale, 0.01f, 0.05f);
}

}  // namespace

std::vector<ModelTensor> MakeModel(const ModelOptions& options) {
  const Shape shape = ChooseShape(options);
  Builder builder(options);
  builder.Add("model.embed_tokens", shape.vocabulary, shape.hidden, Role::kEmbedding);
  for (std::size_t layer = 0; layer < shape.layers; ++layer) builder.AddLayer(layer, shape);
  builder.Add("model.norm", 1, shape.hidden, Role::kNorm);
  builder.Add("lm_head", shape.vocabulary, shape.hidden, Role::kHead);
  return builder.Take();
}

Dynamics MakeDynamics(const ModelTensor& tensor, std::size_t index, const Preset& preset,
                      std::uint64_t seed) {
  Dynamics dynamics;
  dynamics.key = SubKey(SubKey(seed, kTensorPart), index);
  dynamics.rows = tensor.rows;
  dynamics.columns = tensor.columns;
  dynamics.mean = tensor.role == Role::kNorm ? 1.0f : 0.0f;
  dynamics.scale = WeightScale(tensor.role, dynamics.key);
  dynamics.learning_rate = preset.learning_rate;
  dynamics.damping = preset.damping;
  dynamics.rule = preset.rule;
  dynamics.origin = tensor.format == Format::kFp16 ? Origin::kFp16 : Origin::kBf16;
  if (preset.rule == StepRule::kFarSteps) return dynamics;
  if (tensor.role == Role::kEmbedding) dynamics.row_use = RowUse::kZipf;
  if (tensor.role == Role::kExpert) {
    dynamics.gradient_scale = static_cast<float>(std::sqrt(tensor.token_share));
    dynamics.idle_share =
        static_cast<float>(std::exp(-kTokensAtAverageExpert * tensor.token_share));
  }
  return dynamics;
}

std::vector<TensorSpec> StoredSpecs(const ModelTensor& tensor) {
  const FormatInfo& info = Info(tensor.format);
  const std::size_t codes_a_byte = info.bits == 4 ? 2 : 1;
  std::vector<std::uint64_t> shape = {tensor.rows, tensor.columns / codes_a_byte};
  if (tensor.is_vector()) shape.erase(shape.begin());
  std::vector<TensorSpec> specs = {{tensor.name, info.dtype, shape}};
  if (info.block_rows != 0) {
    specs.push_back(
        {tensor.name + std::string(info.scale_suffix),
         info.scale_dtype,
         {DivideUp(tensor.rows, info.block_rows), DivideUp(tensor.columns, info.block_columns)}});
  }
  if (!info.tensor_scale_suffix.empty()) {
    specs.push_back({tensor.name + std::string(info.tensor_scale_suffix), Dtype::kF32, {}});
  }
  return specs;
}

}  // namespace segue::workload
