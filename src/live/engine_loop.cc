// SPDX-License-Identifier: Apache-2.0
//
// Engine loop: enter, read everything, leave.
#include "segue/engine_loop.h"

#include <algorithm>

#include "device/host/kernels.h"
#include "segue/engine.h"

namespace segue {
namespace {

using Clock = std::chrono::steady_clock;

// Waits shorter than this are the gate's own cost, not an update.
constexpr double kWaitWorthNoting = 1e-4;

double SecondsSince(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// The whole model's digest; the tensors come in the plan's order, which gives them their numbers.
Digest ReadAllWeights(const EngineWeights& weights) {
  Digest digest;
  for (std::size_t i = 0; i < weights.tensors().size(); ++i) {
    const EngineTensor& tensor = weights.tensors()[i];
    digest += host::ActiveKernels().digest({i, 0}, tensor.data, tensor.size);
  }
  return digest;
}

class EngineLoop {
 public:
  EngineLoop(const EngineLoopOptions& options, EngineWeights& weights)
      : options_(options), weights_(weights) {}

  Result<EngineLoopReport> Run() {
    while (!Done()) {
      const Status status = Step();
      // Stopped while it waited is stopped, not a failure.
      if (!status.ok() && !(status.code() == StatusCode::kUnavailable && Stopped())) return status;
    }
    if (!step_s_.empty()) {
      std::sort(step_s_.begin(), step_s_.end());
      report_.step_s_median = step_s_[step_s_.size() / 2];
      report_.step_s_max = step_s_.back();
    }
    return report_;
  }

 private:
  bool Stopped() const { return options_.stop && options_.stop(); }

  bool Done() const {
    if (Stopped()) return true;
    if (options_.steps != 0 && report_.steps >= options_.steps) return true;
    return options_.until_version != 0 && !report_.seen.empty() &&
           report_.seen.back().version >= options_.until_version;
  }

  Status Step() {
    const Clock::time_point start = Clock::now();
    SEGUE_ASSIGN_OR_RETURN(const EngineWeights::Step step,
                           weights_.BeginStepUnless(options_.stop, options_.step_deadline));
    const double wait = SecondsSince(start);
    if (report_.steps == 0) {
      report_.start_wait_s = wait;
    } else {
      report_.wait_s_max = std::max(report_.wait_s_max, wait);
      if (wait > kWaitWorthNoting) report_.waits_s.push_back(wait);
    }
    const Clock::time_point inside = Clock::now();
    const EngineVersion version = weights_.version();
    const std::string found = ReadAllWeights(weights_).ToHex();
    step_s_.push_back(SecondsSince(inside));
    ++report_.steps;
    if (options_.verify && (!version.serving || found != version.digest)) {
      return Corruption("a step saw digest " + found + ", version " +
                        std::to_string(version.version) + " has " + version.digest);
    }
    if (report_.seen.empty() || report_.seen.back().version != version.version) {
      report_.seen.push_back({version.version, version.digest, 0});
    }
    ++report_.seen.back().steps;
    return {};
  }

  const EngineLoopOptions& options_;
  EngineWeights& weights_;
  EngineLoopReport report_;
  std::vector<double> step_s_;
};

}  // namespace

Result<EngineLoopReport> RunEngineLoop(const EngineLoopOptions& options) {
  auto weights = EngineWeights::AttachUnless(options.stop, options.name, options.attach_deadline);
  // Stopped while it waited is stopped, not a failure.
  const bool stopped =
      weights.status().code() == StatusCode::kUnavailable && options.stop && options.stop();
  if (stopped) return EngineLoopReport();
  if (!weights.ok()) return weights.status();
  return EngineLoop(options, *weights).Run();
}

}  // namespace segue
