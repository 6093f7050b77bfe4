// SPDX-License-Identifier: Apache-2.0
//
// What the gate costs an engine (a step begun and ended while it is open; time a step, also from
// several threads that share a slot) and the receiver (closed and opened with no engine inside,
// and handed over by a thread that leaves).
#include <benchmark/benchmark.h>
#include <unistd.h>

#include <chrono>
#include <memory>
#include <string>
#include <thread>

#include "base/check.h"
#include "live/segment.h"
#include "segue/engine.h"

namespace segue {
namespace {

constexpr std::chrono::milliseconds kDeadline{10'000};

struct Served {
  std::string name = "gate-benchmark-" + std::to_string(::getpid());
  std::unique_ptr<Segment> segment;
  EngineWeights engine;

  Served() : segment(MakeSegment()), engine(EngineWeights::Attach(name, kDeadline).value()) {}
  ~Served() { SEGUE_CHECK(Segment::Remove(name).ok()); }

  std::unique_ptr<Segment> MakeSegment() const {
    const Plan plan = Plan::Make({{"a", Dtype::kU8, {1}}}).value();
    auto made = Segment::Create(name, plan, "main").value();
    SEGUE_CHECK(made->gate().Open().ok());
    return made;
  }
};

void BM_EnterAndLeave(benchmark::State& state) {
  static std::unique_ptr<Served> served;
  if (state.thread_index() == 0) served = std::make_unique<Served>();
  for (auto _ : state) {
    if (!served->engine.Enter(kDeadline).ok()) std::abort();
    served->engine.Leave();
  }
  if (state.thread_index() == 0) served.reset();
}

void BM_Step(benchmark::State& state) {
  Served served;
  for (auto _ : state) {
    const auto step = served.engine.BeginStep(kDeadline);
    if (!step.ok()) std::abort();
  }
}

void BM_CloseAndOpenEmpty(benchmark::State& state) {
  const Served served;
  for (auto _ : state) {
    if (!served.segment->gate().Close(kDeadline).ok()) std::abort();
    if (!served.segment->gate().Open().ok()) std::abort();
  }
}

// One engine thread that enters again at once: the close waits for it to leave.
void BM_CloseAndOpenBusy(benchmark::State& state) {
  Served served;
  std::jthread reader([&served](const std::stop_token& stop) {
    while (!stop.stop_requested()) {
      if (served.engine.Enter(kDeadline).ok()) served.engine.Leave();
    }
  });
  for (auto _ : state) {
    if (!served.segment->gate().Close(kDeadline).ok()) std::abort();
    if (!served.segment->gate().Open().ok()) std::abort();
  }
}

BENCHMARK(BM_EnterAndLeave)->ThreadRange(1, 2)->UseRealTime();
BENCHMARK(BM_Step);
BENCHMARK(BM_CloseAndOpenEmpty);
BENCHMARK(BM_CloseAndOpenBusy)->UseRealTime();

}  // namespace
}  // namespace segue
