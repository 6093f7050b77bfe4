// SPDX-License-Identifier: Apache-2.0
//
// Check: one run over everything that Segue does on a GPU: whether it is right, and how long it
// takes beside what the GPU can do at best (docs/cuda.md, "The check"). Parts add findings, which
// make the run fail, and figures, which a run against the fake driver leaves out: there the same
// steps are gone through, and a time would mean nothing.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "segue/status.h"

namespace segue::gpu_check {

struct CheckOptions {
  std::uint64_t size = 0;   // Of the model that is measured.
  std::uint64_t unit = 0;   // Of the pair of versions that it repeats; a tensor.
  std::uint64_t large = 0;  // Of the one large tensor (case H1).
  unsigned threads = 0;     // Of the host; 0 for every core.
  unsigned repeats = 3;
  bool fake = false;
  std::string scratch = "/dev/shm";  // For stores: a RAM disk, so that no disk is measured.
};

// The goals of an update are stated for 55.6 GB: the reference run's share of one of eight GPUs.
inline constexpr std::uint64_t kGoalSize = 55'000'000'000;

struct Figure {
  std::string name;  // Of the stage, as `segue predict` calls it where that knows it.
  std::string workload;
  std::uint64_t model_bytes = 0;
  double seconds = 0;  // Median.
  std::map<std::string, double> details = {};
};

// What issue and model ask of a figure.
struct Goal {
  std::string name;
  double value = 0;
  double limit = 0;  // At most.
  std::string unit;
};

// Who hears of things as they come: a part may not reach its end.
struct Listener {
  std::function<void(const Figure&)> figure;
  std::function<void(const Goal&)> goal;
  std::function<void(const std::string&)> finding;
};

class Check {
 public:
  Check(const CheckOptions& given, Listener listener)
      : options(given), listener_(std::move(listener)) {}

  const CheckOptions& options;

  void Add(Figure figure) {
    if (options.fake) return;
    listener_.figure(figure);
    figures_.push_back(std::move(figure));
  }
  void Add(Goal goal) {
    if (options.fake) return;
    listener_.goal(goal);
    goals_.push_back(std::move(goal));
  }
  // Something that could not be measured here, and why.
  void Skip(std::string what) { skipped_.push_back(std::move(what)); }
  // Something is wrong.
  void Find(std::string what) {
    listener_.finding(what);
    findings_.push_back(std::move(what));
  }
  void Expect(bool holds, const std::string& what) {
    ++expectations_;
    if (!holds) Find(what);
  }

  const std::vector<Figure>& figures() const { return figures_; }
  const std::vector<Goal>& goals() const { return goals_; }
  const std::vector<std::string>& skipped() const { return skipped_; }
  const std::vector<std::string>& findings() const { return findings_; }
  std::uint64_t expectations() const { return expectations_; }

 private:
  Listener listener_;
  std::vector<Figure> figures_;
  std::vector<Goal> goals_;
  std::vector<std::string> skipped_;
  std::vector<std::string> findings_;
  std::uint64_t expectations_ = 0;
};

class Gpu;

// A part of the run. What it fails with is a finding, and the parts behind it run all the same.
struct Part {
  std::string_view name;
  Status (*run)(Check& check, Gpu& gpu);
};

Status CheckBits(Check& check, Gpu& gpu);       // Every density and encoding, canaries.
Status CheckLarge(Check& check, Gpu& gpu);      // A tensor over 2^31 and 2^32 bytes.
Status MeasureMachine(Check& check, Gpu& gpu);  // Copies, beside which all else stands.
Status MeasureApply(Check& check, Gpu& gpu);    // Load, preflight, pause; sparse and dense.
Status CheckDecoders(Check& check, Gpu& gpu);   // Each that there is, beside the others.
Status MeasureDensity(Check& check, Gpu& gpu);  // From 0.01 to 40 %, and where the paths cross.
Status MeasureScrub(Check& check, Gpu& gpu);
Status MeasureTrainer(Check& check, Gpu& gpu);   // Diff and encode on the device.
Status MeasurePipeline(Check& check, Gpu& gpu);  // Trainer to engine, stage by stage.
Status MeasureBesideProduct(Check& check, Gpu& gpu);

}  // namespace segue::gpu_check
