// SPDX-License-Identifier: Apache-2.0
//
// Simulation: brings model, optimizer, formats and edits together and yields every stored byte of
// every version, in pieces. Work is cut into units (a band of rows, or a tensor) that share
// nothing, so memory is a few megabytes a thread whatever the size of the model and the count of
// versions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "base/bytes.h"
#include "segue/status.h"
#include "workload/model.h"
#include "workload/presets.h"
#include "workload/statistics.h"

namespace segue::workload {

// Elements of a band, about; FP8 needs whole blocks of 128 rows.
inline constexpr std::size_t kBandElements = 1u << 16;
// Rows of a band of a matrix of so many columns.
std::size_t BandRows(Format format, std::size_t columns);

// What a sink is given: bytes of one of a tensor's stored parts at one version.
enum class Part : std::uint8_t { kCodes, kScales, kTensorScale };
struct Piece {
  unsigned version = 0;
  std::size_t tensor = 0;
  Part part = Part::kCodes;
  std::uint64_t offset = 0;
  ByteSpan bytes;
};
// Called from several threads.
using Sink = std::function<Status(const Piece&)>;

class Simulation {
 public:
  // Versions 0 to `steps`. Finds what depends on whole tensors (NVFP4's tensor scales).
  static Result<Simulation> Make(const Preset& preset, std::vector<ModelTensor> tensors,
                                 std::uint64_t seed, unsigned steps, unsigned threads);

  // Yields all pieces of versions `first` to `last`, and sums their steps (version 0 has none).
  Status Run(unsigned first, unsigned last, unsigned threads, const Sink& sink);

  // One for each step.
  const std::vector<StepCounts>& counts() const { return counts_; }

 private:
  struct Unit {
    std::size_t tensor = 0;
    std::size_t first_row = 0;
    std::size_t row_count = 0;
  };
  struct Image;
  struct Range;

  Simulation() = default;
  void MakeUnits();
  Status FindTensorScales(unsigned threads);
  EncodeOptions OptionsFor(std::size_t tensor, unsigned version) const;
  Status RunBand(const Unit& unit, const Range& range);
  Status RunEdits(const Unit& unit, const Range& range);
  void FillBase(std::size_t tensor, Image& image) const;
  void Edit(std::size_t tensor, unsigned version, MutableByteSpan codes) const;
  void EditOneBit(std::size_t tensor, unsigned version, MutableByteSpan codes) const;
  Status Send(const Unit& unit, unsigned version, const Image& image, const Range& range) const;
  void CountRest(const Unit& unit, const Image& before, const Image& after,
                 StepCounts& counts) const;
  void Add(unsigned version, const StepCounts& counts, const Range& range);

  Preset preset_;
  std::uint64_t seed_ = 0;
  unsigned steps_ = 0;
  std::vector<ModelTensor> tensors_;
  std::vector<Dynamics> dynamics_;
  std::vector<Unit> units_;
  std::vector<std::vector<float>> tensor_scales_;  // By tensor and version; empty: not NVFP4.
  std::vector<std::uint64_t> first_element_;       // By tensor, among all of the model.
  std::vector<StepCounts> counts_;
  std::unique_ptr<std::mutex> mutex_ = std::make_unique<std::mutex>();
};

}  // namespace segue::workload
