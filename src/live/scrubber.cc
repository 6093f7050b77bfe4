// SPDX-License-Identifier: Apache-2.0
//
// Scrubber: chunk after chunk, sleeping in between to keep to its rate.
#include "live/scrubber.h"

#include <algorithm>
#include <chrono>

#include "base/out_of_memory.h"
#include "delta/live_scan.h"

namespace segue {
namespace {

// Bytes read between two looks at the clock.
constexpr std::uint64_t kPieceSize = 4ull << 20;
// Bytes that an accelerator reads at once, a chunk for each of its warps; an update waits for it.
constexpr std::uint64_t kAcceleratorPieceSize = 64ull << 20;
constexpr std::chrono::milliseconds kBetweenPasses(10);

}  // namespace

Scrubber::Scrubber(LiveWeights& weights, std::uint64_t rate, Environment& environment)
    : weights_(weights), environment_(environment), rate_(std::max<std::uint64_t>(rate, 1)) {
  task_ = environment.Start(TaskPriority::kLow, [this](const std::stop_token& stop) { Run(stop); });
}

void Scrubber::Forgive() { ++epoch_; }

void Scrubber::Run(const std::stop_token& stop) {
  while (!stop.stop_requested()) {
    // Where memory has run out the next pass may have it.
    (void)CatchOutOfMemory([&]() -> Status {
      Pass(stop);
      return {};
    });
    environment_.Sleep(kBetweenPasses, stop);
  }
}

void Scrubber::Pass(const std::stop_token& stop) {
  const std::uint64_t epoch = epoch_;
  const LiveVersion before = weights_.version();
  const Digest expected = weights_.local_digest();
  Digest digest;
  const bool whole = weights_.phase() == Phase::kServing && Scan(stop, digest);
  const LiveVersion after = weights_.version();
  const bool settled = weights_.phase() == Phase::kServing &&
                       before.applied_count == after.applied_count &&
                       before.version == after.version && before.digest == after.digest;
  if (!whole || !settled || epoch != epoch_) return;
  const bool agrees = digest == expected;
  ++(agrees ? passes_ : faults_);
  if (!agrees) fault_epoch_ = epoch;
}

bool Scrubber::Scan(const std::stop_token& stop, Digest& digest) {
  const auto start = environment_.Now();
  const Plan& plan = weights_.plan();
  std::uint64_t done = 0;
  std::uint64_t piece = 0;
  const bool here = weights_.map().accelerator() == nullptr;
  const std::uint64_t run =
      here ? 1 : std::max<std::uint64_t>(1, kAcceleratorPieceSize / plan.chunk_size());
  ChunkScanner scanner(plan, weights_.map());
  for (std::uint64_t chunk = 0; chunk < plan.chunk_count(); chunk += run) {
    std::uint64_t size = 0;
    const Status read = weights_.Read([&]() -> Status {
      SEGUE_ASSIGN_OR_RETURN(size, scanner.Add(chunk, std::min(chunk + run, plan.chunk_count())));
      return {};
    });
    if (!read.ok()) return false;
    done += size;
    piece += size;
    if (piece < kPieceSize && chunk + run < plan.chunk_count()) continue;
    piece = 0;
    const std::chrono::duration<double> due(static_cast<double>(done) / static_cast<double>(rate_));
    const auto left = due - (environment_.Now() - start);
    environment_.Sleep(std::chrono::duration_cast<Environment::Clock::duration>(left), stop);
    if (stop.stop_requested() || weights_.phase() != Phase::kServing) return false;
  }
  digest = scanner.digest().all;
  return true;
}

}  // namespace segue
