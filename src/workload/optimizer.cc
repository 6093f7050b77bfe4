// SPDX-License-Identifier: Apache-2.0
//
// The constants of the mechanism, with what decided them, and the loops over a band. Loops that run
// for every element and version have no branches and no hidden calls.
#include "workload/optimizer.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "workload/noise.h"
#include "workload/quantise.h"

namespace segue::workload {
namespace {

// A published version stands for 32 optimizer steps (the mini-batches of one reinforcement-learning
// step), so of Adam's momentum 0.9 and 0.999 only 0.9^32 and 0.999^32 carry over. This decides how
// many changed positions repeat: about 46 % here, 22 to 30 % with 0.9 itself, 45 to 52 % in the
// field's measurements.
constexpr float kFirstDecay = 0.0343f;
constexpr float kSecondDecay = 0.9685f;
// Root of the stationary variance of the first moment: (1 - decay) / (1 + decay).
constexpr float kFirstMomentSpread = 0.9663f;
// Root of the mean square of a gradient's steady part over its noise: RL gradients are mostly
// noise.
constexpr float kSignal = 0.05f;
constexpr float kSecondMoment = 1.0f + kSignal * kSignal;
constexpr double kSecondRootSpread = 0.063;

// Of Adam's epsilon over the root mean square of an element's gradient, which is log-normal.
constexpr double kDampingSpread = 2.5;
constexpr double kRowSpread = 0.3;
constexpr double kColumnSpread = 0.3;

constexpr unsigned kWarmUpSteps = 10;
constexpr unsigned kDecaySteps = 2000;
constexpr double kFactorAtEnd = 0.1;

// Tokens of a step's batch over the rows of an embedding.
constexpr double kTokensPerRow = 2.0;

// Parts of a tensor's key.
enum : std::uint64_t { kStartPart, kRowPart, kColumnPart, kIdlePart, kStepPart };

struct Tables {
  const NormalTable& normal = NormalTable::Get();
  LogNormalTable damping{kDampingSpread};
  LogNormalTable second_root{kSecondRootSpread};
  LogNormalTable row{kRowSpread};
  LogNormalTable column{kColumnSpread};
};

const Tables& GetTables() {
  static const Tables tables;
  return tables;
}

std::uint64_t StepKey(const Dynamics& dynamics, unsigned version) {
  return SubKey(SubKey(dynamics.key, kStepPart), version);
}

// Versions before the base, each weighted by its learning rate, and the same for squares.
struct Before {
  float sum = 0;
  float root = 0;
};

double FactorAt(unsigned step) {
  if (step < kWarmUpSteps) return (step + 1.0) / kWarmUpSteps;
  const double progress = std::min(1.0, static_cast<double>(step) / kDecaySteps);
  return kFactorAtEnd + (1 - kFactorAtEnd) * 0.5 * (1 + std::cos(progress * 3.14159265358979));
}

const Before& GetBefore() {
  static const Before before = [] {
    double sum = 0;
    double squares = 0;
    for (unsigned step = 0; step < kStepsBeforeBase; ++step) {
      sum += FactorAt(step);
      squares += FactorAt(step) * FactorAt(step);
    }
    return Before{static_cast<float>(sum), static_cast<float>(std::sqrt(squares))};
  }();
  return before;
}

// What the start of a tensor's elements has in common.
struct StartRule {
  explicit StartRule(const Dynamics& dynamics)
      : tables(GetTables()),
        origin(dynamics.origin),
        mean(dynamics.mean),
        scale(dynamics.scale),
        signal_drift(dynamics.learning_rate * GetBefore().sum / std::sqrt(kSecondMoment)),
        noise_drift(dynamics.learning_rate * GetBefore().root) {}

  const Tables& tables;
  Origin origin;
  float mean;
  float scale;
  float signal_drift;
  float noise_drift;
};

struct StartState {
  float value;
  float signal;
  float first_moment;
  float second_root;
  float damping;
};

// An element at version 0 from 128 random bits: the origin's weight, moved by the steps before.
// Without branches: this is where most of the generator's time goes.
inline StartState StartElement(const StartRule& rule, float damping_factor, std::uint64_t bits,
                               std::uint64_t more) {
  const Tables& tables = rule.tables;
  const auto low = [](std::uint64_t word) { return static_cast<std::uint32_t>(word); };
  const std::uint32_t sign = low(more) & 0x80000000u;
  StartState start;
  start.signal = std::bit_cast<float>(std::bit_cast<std::uint32_t>(kSignal) | sign);
  start.first_moment = start.signal + kFirstMomentSpread * tables.normal.FromBits(low(more >> 32));
  start.second_root = tables.second_root.FromBits(more >> LogNormalTable::kBits);
  start.damping = tables.damping.FromBits(more) * damping_factor;
  const float noise = tables.normal.FromBits(low(bits));
  const float drift = rule.signal_drift * start.signal + rule.noise_drift * noise;
  const float drawn = rule.mean + rule.scale * tables.normal.FromBits(low(bits >> 32));
  const float origin = rule.origin == Origin::kBf16 ? FloatFromBf16(Bf16FromFloat(drawn))
                                                    : FloatFromFp16(Fp16FromFloat(drawn));
  start.value = origin - drift / (1.0f + start.damping);
  return start;
}

}  // namespace

float LearningRateFactor(unsigned version) {
  return static_cast<float>(FactorAt(kStepsBeforeBase + version));
}

bool TensorTakesPart(const Dynamics& dynamics, unsigned version) {
  const std::uint64_t bits = HashAt(SubKey(dynamics.key, kIdlePart), version);
  return UniformFromBits(bits) >= static_cast<double>(dynamics.idle_share);
}

bool RowTakesPart(const Dynamics& dynamics, unsigned version, std::size_t row) {
  if (dynamics.row_use == RowUse::kAll) return true;
  // Zipf: row r has 1 / (r + 1) of the tokens, over the harmonic sum.
  const auto rows = static_cast<double>(dynamics.rows);
  const double share = 1.0 / ((static_cast<double>(row) + 1) * (std::log(rows) + 0.5772));
  const double used = 1 - std::exp(-kTokensPerRow * rows * share);
  const std::uint64_t key = SubKey(SubKey(dynamics.key, kRowPart), version + 1);
  return UniformFromBits(HashAt(key, row)) < used;
}

void Band::Start(const Dynamics& dynamics, std::size_t first_row, std::size_t row_count) {
  dynamics_ = dynamics;
  first_row_ = first_row;
  version_ = 0;
  const std::uint64_t column_key = SubKey(dynamics.key, kColumnPart);
  column_damping_.resize(dynamics.columns);
  for (std::size_t column = 0; column < dynamics.columns; ++column) {
    const float factor = GetTables().column.FromBits(HashAt(column_key, column));
    column_damping_[column] = dynamics.damping / dynamics.gradient_scale * factor;
  }
  gradient_.resize(dynamics.columns + 1);  // An odd last column draws a pair too.
  for (auto* state : {&values_, &signal_, &first_moment_, &second_root_, &damping_}) {
    state->resize(row_count * dynamics.columns);
  }
  for (std::size_t row = 0; row < row_count; ++row) StartRow(row);
}

void Band::StartRow(std::size_t row) {
  const std::size_t columns = dynamics_.columns;
  const std::uint64_t start_key = SubKey(dynamics_.key, kStartPart);
  const std::uint64_t row_bits = HashAt(SubKey(dynamics_.key, kRowPart), first_row_ + row);
  const float row_damping = GetTables().row.FromBits(row_bits);
  const StartRule rule(dynamics_);
  float* const values = values_.data() + row * columns;
  float* const signals = signal_.data() + row * columns;
  float* const first_moments = first_moment_.data() + row * columns;
  float* const second_roots = second_root_.data() + row * columns;
  float* const dampings = damping_.data() + row * columns;
  const std::uint64_t first_position = (first_row_ + row) * columns;
  for (std::size_t column = 0; column < columns; ++column) {
    const std::uint64_t position = first_position + column;
    const StartState start =
        StartElement(rule, column_damping_[column] * row_damping, HashAt(start_key, 2 * position),
                     HashAt(start_key, 2 * position + 1));
    values[column] = start.value;
    signals[column] = start.signal;
    first_moments[column] = start.first_moment;
    second_roots[column] = start.second_root;
    dampings[column] = start.damping;
  }
}

void Band::Step() {
  const std::size_t row_count = values_.size() / std::max<std::size_t>(dynamics_.columns, 1);
  const bool tensor_takes_part = TensorTakesPart(dynamics_, version_);
  const float rate = dynamics_.learning_rate * LearningRateFactor(version_);
  for (std::size_t row = 0; row < row_count; ++row) {
    // The start values hold the first step's moments already.
    if (version_ > 0 && dynamics_.rule == StepRule::kAdam) TakeGradients(row);
    if (!tensor_takes_part || !RowTakesPart(dynamics_, version_, first_row_ + row)) continue;
    if (dynamics_.rule == StepRule::kAdam) MoveRow(row, rate);
    if (dynamics_.rule == StepRule::kFarSteps) MoveRowFar(row);
  }
  ++version_;
}

void Band::TakeGradients(std::size_t row) {
  const std::size_t columns = dynamics_.columns;
  const std::uint64_t key = SubKey(StepKey(dynamics_, version_), first_row_ + row);
  const NormalTable& normal = NormalTable::Get();
  float* const gradients = gradient_.data();
  // One hash serves two elements.
  for (std::size_t column = 0; column < columns; column += 2) {
    const std::uint64_t bits = HashAt(key, column);
    gradients[column] = normal.FromBits(static_cast<std::uint32_t>(bits));
    gradients[column + 1] = normal.FromBits(static_cast<std::uint32_t>(bits >> 32));
  }
  const float* const signals = signal_.data() + row * columns;
  float* const first_moments = first_moment_.data() + row * columns;
  float* const second_roots = second_root_.data() + row * columns;
  for (std::size_t column = 0; column < columns; ++column) {
    const float gradient = signals[column] + gradients[column];
    const float root = second_roots[column];
    const float moment = kSecondDecay * root * root + (1 - kSecondDecay) * gradient * gradient;
    first_moments[column] = kFirstDecay * first_moments[column] + (1 - kFirstDecay) * gradient;
    // The root by one step of Heron's method from the last: near enough, and it vectorises.
    second_roots[column] = 0.5f * (root + moment / root);
  }
}

void Band::MoveRow(std::size_t row, float learning_rate) {
  const std::size_t first = row * dynamics_.columns;
  const std::size_t last = first + dynamics_.columns;
  for (std::size_t at = first; at < last; ++at) {
    values_[at] -= learning_rate * first_moment_[at] / (second_root_[at] + damping_[at]);
  }
}

void Band::MoveRowFar(std::size_t row) {
  // Four units in the last place of BF16 (8 significant bits) at the largest weight to expect.
  const float largest = std::fabs(dynamics_.mean) + NormalTable::kBound * dynamics_.scale;
  const float distance = std::ldexp(1.0f, std::ilogb(largest) - 7 + 2);
  const std::size_t columns = dynamics_.columns;
  const std::uint64_t key = StepKey(dynamics_, version_);
  for (std::size_t column = 0; column < columns; ++column) {
    const std::uint64_t bits = HashAt(key, (first_row_ + row) * columns + column);
    values_[row * columns + column] += (bits & 1) != 0 ? distance : -distance;
  }
}

}  // namespace segue::workload
