// SPDX-License-Identifier: Apache-2.0
//
// Optimizer: the path of FP32 master weights through Adam-like steps. Only what is stored after a
// cast or quantisation is published; which stored bits change, and where, follows from here.
//
// The path of an element is a pure function of the tensor's dynamics and the element's position:
// start values and gradients are hashes. So a band of rows can be followed through all versions on
// its own, nothing outlives the band, and any number of threads gives the same bytes. Parameters
// and where they come from: docs/workload.md, "Recipe".
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace segue::workload {

// Which rows a step can touch.
enum class RowUse : std::uint8_t {
  kAll,
  kZipf,  // Embeddings: the rows of the tokens that the step's batch holds.
};

// How far a step goes.
enum class StepRule : std::uint8_t {
  kAdam,
  kFarSteps,  // Every element by more than its unit in the last place: preset "all".
};

// The 16-bit format of the checkpoint that training started from; the master started on its grid.
enum class Origin : std::uint8_t { kBf16, kFp16 };

// Everything that an element's path depends on besides its position.
struct Dynamics {
  std::uint64_t key = 0;
  std::size_t rows = 0;
  std::size_t columns = 0;
  float mean = 0;       // Of the weights: 1 for norms.
  float scale = 0.02f;  // Their standard deviation.
  float learning_rate = 0;
  float damping = 300;       // Median of Adam's epsilon over an element's gradient.
  float gradient_scale = 1;  // Of the whole tensor: an expert's by its share of the tokens.
  float idle_share = 0;      // Of the steps in which no token reaches the tensor (experts).
  Origin origin = Origin::kBf16;
  RowUse row_use = RowUse::kAll;
  StepRule rule = StepRule::kAdam;
};

// Versions published before version 0: the warm-up and a stretch of training, folded into the start
// values, so that masters have left the grid of the origin as far as that many steps take them.
inline constexpr unsigned kStepsBeforeBase = 32;

// The learning rate of the step that leads from `version` to the next, in units of the peak. The
// warm-up lies before version 0, so what is left is a slow decay.
float LearningRateFactor(unsigned version);
// False when the step from `version` leaves the whole tensor, or the row, as it is.
bool TensorTakesPart(const Dynamics& dynamics, unsigned version);
bool RowTakesPart(const Dynamics& dynamics, unsigned version, std::size_t row);

// Some whole rows of one tensor, at one version. Not thread-safe; one object may be used for one
// band after the other and keeps its memory.
class Band {
 public:
  // At version 0.
  void Start(const Dynamics& dynamics, std::size_t first_row, std::size_t row_count);
  // To the next version.
  void Step();

  std::span<const float> values() const { return values_; }
  std::size_t columns() const { return dynamics_.columns; }
  unsigned version() const { return version_; }

 private:
  void StartRow(std::size_t row);
  void TakeGradients(std::size_t row);
  void MoveRow(std::size_t row, float learning_rate);
  void MoveRowFar(std::size_t row);

  Dynamics dynamics_;
  std::size_t first_row_ = 0;
  unsigned version_ = 0;
  std::vector<float> column_damping_;
  std::vector<float> values_;
  // Per element, in units of its gradient's root mean square: the steady part of the gradient,
  // first moment, root of the second moment, and Adam's epsilon.
  std::vector<float> signal_;
  std::vector<float> first_moment_;
  std::vector<float> second_root_;
  std::vector<float> damping_;
  std::vector<float> gradient_;  // Noise of one row.
};

}  // namespace segue::workload
