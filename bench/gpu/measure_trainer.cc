// SPDX-License-Identifier: Apache-2.0
//
// The trainer's side: what the device encodes is held against the processor; then both versions of
// a large model in device memory are compared and brought to the host as streams of `sparse` rows,
// before the outer codec.
#include <algorithm>
#include <vector>

#include "bench/bandwidth.h"
#include "bench/gpu/check.h"
#include "bench/gpu/encodings.h"
#include "bench/gpu/machine.h"
#include "bench/gpu/tiled_model.h"
#include "device/differ.h"

namespace segue::gpu_check {
namespace {

constexpr double kDiffMax = 60e-3;  // Issue: 55.6 GB, both versions in device memory.
constexpr std::uint64_t kDifferMemory = 2ull << 30;

// Takes every changed chunk as streams, and counts.
class Counter final : public DiffConsumer {
 public:
  DiffForm Choose(std::size_t, const host::DiffSums& sums) override {
    changed_ += sums.change_count;
    return DiffForm::kSparse;
  }
  Status Take(std::span<const DiffResult> results) override {
    for (const DiffResult& result : results) {
      taken_ += result.sums.change_count;
      if (result.form != DiffForm::kSparse) return Internal("a chunk came back in another form");
    }
    return {};
  }
  std::uint64_t changed() const { return changed_; }
  std::uint64_t taken() const { return taken_; }

 private:
  std::uint64_t changed_ = 0;
  std::uint64_t taken_ = 0;
};

std::vector<DiffWork> WorkOf(const TiledModel& model, const DeviceModel& base,
                             const DeviceModel& target) {
  std::vector<DiffWork> work;
  for (std::uint64_t chunk = 0; chunk < model.plan.chunk_count(); ++chunk) {
    const ChunkPlace place = model.plan.Chunk(chunk);
    work.push_back({.base = base.Tensor(place.tensor) + place.offset,
                    .target = target.Tensor(place.tensor) + place.offset,
                    .size = place.size,
                    .width = place.width,
                    .key = host::ChunkKey{place.tensor, place.offset / kDigestBlockSize}});
  }
  return work;
}

}  // namespace

Status MeasureTrainer(Check& check, Gpu& gpu) {
  SEGUE_RETURN_IF_ERROR(CheckEncodings(check, gpu));
  const CheckOptions& options = check.options;
  SEGUE_ASSIGN_OR_RETURN(const double copy_rate, CopyRate(check, gpu));
  SEGUE_ASSIGN_OR_RETURN(const TiledModel model, TiledModel::Generate(options, "nvfp4-0.085"));
  SEGUE_ASSIGN_OR_RETURN(const DeviceModel base, DeviceModel::Make(gpu, model));
  SEGUE_ASSIGN_OR_RETURN(const DeviceModel target, DeviceModel::Make(gpu, model));
  SEGUE_RETURN_IF_ERROR(base.Restore());
  SEGUE_RETURN_IF_ERROR(target.Load(model.target.bytes()));
  DifferOptions differ_options;
  differ_options.chunk_size_max = model.plan.chunk_size();
  differ_options.memory_max = std::min<std::uint64_t>(kDifferMemory, 4 * options.size + (64 << 20));
  SEGUE_ASSIGN_OR_RETURN(const std::shared_ptr<Differ> differ,
                         OpenDiffer("cuda:0", differ_options));
  const std::vector<DiffWork> work = WorkOf(model, base, target);
  const std::uint64_t expected = model.ChangedStoredElements();
  std::vector<double> samples;
  for (unsigned repeat = 0; repeat <= options.repeats; ++repeat) {
    Counter counter;
    Status status;
    const double seconds = bench::Seconds([&] { status = differ->Diff(work, counter); });
    SEGUE_RETURN_IF_ERROR(status);
    check.Expect(counter.changed() == expected && counter.taken() == expected,
                 "trainer: the diff did not find the elements that changed");
    if (repeat != 0) samples.push_back(seconds);
  }
  const double seconds = bench::Median(samples);
  const double floor_s = 2 * static_cast<double>(model.size()) / copy_rate;
  check.Add(Figure{
      "diff and encode", model.workload, model.size(), seconds, {{"floor_seconds", floor_s}}});
  if (model.size() >= kGoalSize) {
    check.Add(Goal{"diff and encode, both versions on the device", seconds, kDiffMax, "s"});
  }
  return {};
}

}  // namespace segue::gpu_check
