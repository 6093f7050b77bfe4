// SPDX-License-Identifier: Apache-2.0
//
// Two kinds of unit: a band of rows followed through all versions by the optimizer, and a whole
// tensor whose stored bytes are edited. Both compare each version with the one before as they go.
#include "workload/simulation.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "base/threads.h"
#include "workload/edits.h"
#include "workload/noise.h"

namespace segue::workload {
namespace {

// Parts of a seed.
enum : std::uint64_t { kEditPart = 16, kFillPart };

float MaximumMagnitude(std::span<const float> values) {
  float maximum = 0;
  for (const float value : values) maximum = std::max(maximum, std::fabs(value));
  return maximum;
}

// Calls job(block, bytes) for the blocks of a tensor's bytes.
template <typename Job>
void ForEachBlock(MutableByteSpan bytes, std::size_t block_size, Job job) {
  for (std::size_t block = 0; block * block_size < bytes.size(); ++block) {
    const std::size_t offset = block * block_size;
    job(block, bytes.subspan(offset, std::min(block_size, bytes.size() - offset)));
  }
}

}  // namespace

// Stored bytes of a unit at one version.
struct Simulation::Image {
  ByteVector codes;
  ByteVector scales;

  void Resize(Format format, std::size_t rows, std::size_t columns) {
    codes.resize(CodesSize(format, rows, columns));
    scales.resize(ScalesSize(format, rows, columns));
  }
};

struct Simulation::Range {
  unsigned first = 0;
  unsigned last = 0;
  const Sink* sink = nullptr;

  bool Has(unsigned version) const { return version >= first && version <= last; }
};

std::size_t BandRows(Format format, std::size_t columns) {
  const std::size_t block_rows = std::max<std::size_t>(1, Info(format).block_rows);
  const std::size_t rows = std::max<std::size_t>(1, kBandElements / columns);
  return DivideUp(rows, block_rows) * block_rows;
}

Result<Simulation> Simulation::Make(const Preset& preset, std::vector<ModelTensor> tensors,
                                    std::uint64_t seed, unsigned steps, unsigned threads) {
  Simulation simulation;
  simulation.preset_ = preset;
  simulation.seed_ = seed;
  simulation.steps_ = steps;
  simulation.tensors_ = std::move(tensors);
  simulation.counts_.resize(steps);
  simulation.MakeUnits();
  SEGUE_RETURN_IF_ERROR(simulation.FindTensorScales(threads));
  return simulation;
}

void Simulation::MakeUnits() {
  std::uint64_t elements = 0;
  for (std::size_t i = 0; i < tensors_.size(); ++i) {
    const ModelTensor& tensor = tensors_[i];
    dynamics_.push_back(MakeDynamics(tensor, i, preset_, seed_));
    first_element_.push_back(elements);
    elements += tensor.rows * tensor.columns;
    const std::size_t rows = preset_.mechanism == Mechanism::kOptimizer
                                 ? BandRows(tensor.format, tensor.columns)
                                 : tensor.rows;
    for (std::size_t row = 0; row < tensor.rows; row += rows) {
      units_.push_back({i, row, std::min(rows, tensor.rows - row)});
    }
  }
  first_element_.push_back(elements);
}

Status Simulation::FindTensorScales(unsigned threads) {
  tensor_scales_.resize(tensors_.size());
  for (std::size_t i = 0; i < tensors_.size(); ++i) {
    if (tensors_[i].format == Format::kNvfp4) tensor_scales_[i].resize(steps_ + 1, 0.0f);
  }
  const bool moves = preset_.mechanism == Mechanism::kOptimizer;
  const auto job = [&](std::size_t index, unsigned) -> Status {
    const Unit& unit = units_[index];
    std::vector<float>& scales = tensor_scales_[unit.tensor];
    if (scales.empty()) return {};
    Band band;
    band.Start(dynamics_[unit.tensor], unit.first_row, unit.row_count);
    for (unsigned version = 0; version <= steps_; ++version) {
      if (version > 0 && moves) band.Step();
      const float maximum = MaximumMagnitude(band.values());
      const std::lock_guard lock(*mutex_);
      scales[version] = std::max(scales[version], maximum);
    }
    return {};
  };
  SEGUE_RETURN_IF_ERROR(ParallelFor(units_.size(), threads, job));
  for (std::vector<float>& scales : tensor_scales_) {
    for (float& scale : scales) {
      // The cast is monotone: the largest weight before is the largest after.
      const bool cast = preset_.quantise_from == QuantiseFrom::kBf16;
      scale = Nvfp4TensorScale(cast ? FloatFromBf16(Bf16FromFloat(scale)) : scale);
    }
  }
  return {};
}

EncodeOptions Simulation::OptionsFor(std::size_t tensor, unsigned version) const {
  const std::vector<float>& scales = tensor_scales_[tensor];
  return {tensors_[tensor].format, preset_.quantise_from, scales.empty() ? 1.0f : scales[version]};
}

Status Simulation::Run(unsigned first, unsigned last, unsigned threads, const Sink& sink) {
  const Range range{first, last, &sink};
  return ParallelFor(units_.size(), threads, [&](std::size_t index, unsigned) {
    const Unit& unit = units_[index];
    return preset_.mechanism == Mechanism::kOptimizer ? RunBand(unit, range)
                                                      : RunEdits(unit, range);
  });
}

Status Simulation::RunBand(const Unit& unit, const Range& range) {
  const ModelTensor& tensor = tensors_[unit.tensor];
  Band band;
  Encoder encoder;
  Image before;
  Image after;
  before.Resize(tensor.format, unit.row_count, tensor.columns);
  after.Resize(tensor.format, unit.row_count, tensor.columns);
  band.Start(dynamics_[unit.tensor], unit.first_row, unit.row_count);
  encoder.Encode(OptionsFor(unit.tensor, 0), {band.values(), tensor.columns},
                 {after.codes, after.scales});
  if (range.Has(0)) SEGUE_RETURN_IF_ERROR(Send(unit, 0, after, range));
  ChangeCounter counter(tensor.format, after.codes);
  std::vector<float> values;
  for (unsigned version = 1; version <= range.last; ++version) {
    std::swap(before, after);
    values.assign(band.values().begin(), band.values().end());
    band.Step();
    encoder.Encode(OptionsFor(unit.tensor, version), {band.values(), tensor.columns},
                   {after.codes, after.scales});
    StepCounts counts;
    if (tensor.format == preset_.format) {
      counter.Count(before.codes, after.codes, values, counts);
    }
    CountRest(unit, before, after, counts);
    Add(version, counts, range);
    if (range.Has(version)) SEGUE_RETURN_IF_ERROR(Send(unit, version, after, range));
  }
  return {};
}

Status Simulation::RunEdits(const Unit& unit, const Range& range) {
  const ModelTensor& tensor = tensors_[unit.tensor];
  Image before;
  Image after;
  after.Resize(tensor.format, tensor.rows, tensor.columns);
  FillBase(unit.tensor, after);
  if (range.Has(0)) SEGUE_RETURN_IF_ERROR(Send(unit, 0, after, range));
  ChangeCounter counter(tensor.format, after.codes);
  for (unsigned version = 1; version <= range.last; ++version) {
    before = after;
    Edit(unit.tensor, version, after.codes);
    StepCounts counts;
    if (tensor.format == preset_.format) counter.Count(before.codes, after.codes, {}, counts);
    CountRest(unit, before, after, counts);
    Add(version, counts, range);
    if (range.Has(version)) SEGUE_RETURN_IF_ERROR(Send(unit, version, after, range));
  }
  return {};
}

void Simulation::FillBase(std::size_t tensor, Image& image) const {
  const ModelTensor& shape = tensors_[tensor];
  if (preset_.mechanism == Mechanism::kAdversarial) {
    const std::uint64_t key = SubKey(SubKey(seed_, kFillPart), tensor);
    return ForEachBlock(
        image.codes, kAdversarialBlockSize,
        [&](std::size_t block, MutableByteSpan bytes) { FillAdversarialBlock(key, block, bytes); });
  }
  Band band;
  Encoder encoder;
  const std::size_t band_rows = BandRows(shape.format, shape.columns);
  for (std::size_t row = 0; row < shape.rows; row += band_rows) {
    const std::size_t rows = std::min(band_rows, shape.rows - row);
    const auto part = [&](ByteVector& bytes, auto size) {
      return MutableByteSpan(bytes).subspan(size(shape.format, row, shape.columns),
                                            size(shape.format, rows, shape.columns));
    };
    band.Start(dynamics_[tensor], row, rows);
    encoder.Encode(OptionsFor(tensor, 0), {band.values(), shape.columns},
                   {part(image.codes, CodesSize), part(image.scales, ScalesSize)});
  }
}

void Simulation::Edit(std::size_t tensor, unsigned version, MutableByteSpan codes) const {
  const std::uint64_t key = SubKey(SubKey(SubKey(seed_, kEditPart), tensor), version);
  if (preset_.mechanism == Mechanism::kOneBit) return EditOneBit(tensor, version, codes);
  if (preset_.mechanism == Mechanism::kAdversarial) {
    return ForEachBlock(
        codes, kAdversarialBlockSize,
        [&](std::size_t block, MutableByteSpan bytes) { EditAdversarialBlock(key, block, bytes); });
  }
  const std::size_t element_size = Info(tensors_[tensor].format).bits == 16 ? 2 : 1;
  ForEachBlock(codes, kProxyFrameSize, [&](std::size_t frame, MutableByteSpan bytes) {
    FlipProxyFrame(key, frame, kProxyRate, element_size, bytes);
  });
}

void Simulation::EditOneBit(std::size_t tensor, unsigned version, MutableByteSpan codes) const {
  const std::uint64_t bits = HashAt(SubKey(seed_, kEditPart), version);
  const std::uint64_t element = bits % first_element_.back();
  if (element < first_element_[tensor] || element >= first_element_[tensor + 1]) return;
  codes[2 * (element - first_element_[tensor])] ^= std::byte{1};
}

Status Simulation::Send(const Unit& unit, unsigned version, const Image& image,
                        const Range& range) const {
  const ModelTensor& tensor = tensors_[unit.tensor];
  Piece piece{version, unit.tensor, Part::kCodes,
              CodesSize(tensor.format, unit.first_row, tensor.columns), image.codes};
  SEGUE_RETURN_IF_ERROR((*range.sink)(piece));
  if (!image.scales.empty()) {
    piece.part = Part::kScales;
    piece.offset = ScalesSize(tensor.format, unit.first_row, tensor.columns);
    piece.bytes = image.scales;
    SEGUE_RETURN_IF_ERROR((*range.sink)(piece));
  }
  if (unit.first_row != 0 || tensor_scales_[unit.tensor].empty()) return {};
  piece.part = Part::kTensorScale;
  piece.offset = 0;
  piece.bytes = std::as_bytes(std::span(&tensor_scales_[unit.tensor][version], 1));
  return (*range.sink)(piece);
}

void Simulation::CountRest(const Unit& unit, const Image& before, const Image& after,
                           StepCounts& counts) const {
  const FormatInfo& info = Info(tensors_[unit.tensor].format);
  if (tensors_[unit.tensor].format != preset_.format) {
    counts.rest += after.codes.size() * 8 / info.bits;
    counts.rest_changed += CountDifferent(info.bits, before.codes, after.codes);
  }
  if (after.scales.empty()) return;
  const unsigned bits = DtypeBits(info.scale_dtype);
  counts.scales += after.scales.size() * 8 / bits;
  counts.scales_changed += CountDifferent(bits, before.scales, after.scales);
}

void Simulation::Add(unsigned version, const StepCounts& counts, const Range& range) {
  if (!range.Has(version)) return;
  const std::lock_guard lock(*mutex_);
  counts_[version - 1] += counts;
}

}  // namespace segue::workload
