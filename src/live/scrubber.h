// SPDX-License-Identifier: Apache-2.0
//
// Scrubber: reads all live weights again and again at a set rate and holds their digest against the
// version's. It covers what no update touches: preflight and apply read changed elements alone.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <stop_token>

#include "live/live_weights.h"
#include "sync/environment.h"

namespace segue {

class Scrubber {
 public:
  // `rate`: bytes a second, at least 1. Stops in the destructor.
  Scrubber(LiveWeights& weights, std::uint64_t rate,
           Environment& environment = SystemEnvironment());

  std::uint64_t passes() const { return passes_; }
  std::uint64_t faults() const { return faults_; }
  // Whether the weights were found wrong since the last Forgive().
  bool found_fault() const { return fault_epoch_ == epoch_; }
  // The weights have been proven by other means; a scan under way does not count.
  void Forgive();

 private:
  void Run(const std::stop_token& stop);
  void Pass(const std::stop_token& stop);
  // One scan; false where it was stopped or the weights moved on meanwhile.
  bool Scan(const std::stop_token& stop, Digest& digest);

  LiveWeights& weights_;
  Environment& environment_;
  const std::uint64_t rate_;
  std::atomic<std::uint64_t> passes_{0};
  std::atomic<std::uint64_t> faults_{0};
  // Counts what was forgiven. A fault is one of the epoch that its scan began in, so that none that
  // is found during a Forgive() outlives it.
  std::atomic<std::uint64_t> epoch_{1};
  std::atomic<std::uint64_t> fault_epoch_{0};
  std::unique_ptr<BackgroundTask> task_;
};

}  // namespace segue
