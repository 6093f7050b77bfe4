// SPDX-License-Identifier: Apache-2.0
//
// What a view costs: preflight and apply of one delta (BF16, 0.085 % of the elements, 256 MiB) into
// a tensor that lies as it is, as a slice of rows (still as it is, chunk by chunk), as a slice of
// columns, and transposed; and the scan of all bytes under each. One thread.
#include <benchmark/benchmark.h>

#include "base/check.h"
#include "delta/applier.h"
#include "delta/live_scan.h"
#include "delta/testing.h"

namespace segue {
namespace {

constexpr std::uint64_t kRows = 16384;
constexpr std::uint64_t kColumns = 8192;
constexpr std::uint64_t kSize = kRows * kColumns * 2;

struct Setup {
  Setup() : base(plan), target(base) {
    test::Mutate(plan, target, 0.00085, 1);
    staged = test::Stage(plan, test::Encode(plan, base, target, {}).payload);
  }
  Plan plan = Plan::Make({{"w", Dtype::kBF16, {kRows, kColumns}}}).value();
  test::Model base;
  test::Model target;
  StagedDelta staged;
};

enum Kind : std::int64_t { kWhole, kRowSlice, kColumnSlice, kTransposed };

std::vector<Placement> PlacementsOf(Kind kind, std::byte* live) {
  switch (kind) {
    case kWhole: return {{0, live, kSize}};
    case kRowSlice: return {{0, live, kSize, RowSlice(kColumns, 0, kRows, 2)}};
    case kTransposed: return {{0, live, kSize, TransposedView(kRows, kColumns, 2)}};
    case kColumnSlice: break;
  }
  // Both halves, so that as much changes as in the others.
  return {{0, live, kSize, ColumnSlice(kRows, kColumns, 0, kColumns / 2, 2)},
          {0, live, kSize, ColumnSlice(kRows, kColumns, kColumns / 2, kColumns / 2, 2, kSize / 2)}};
}

void BM_Apply(benchmark::State& state) {
  static const Setup& setup = *new Setup;
  ByteVector live(kSize);
  const LiveMap map =
      LiveMap::Make(setup.plan, PlacementsOf(static_cast<Kind>(state.range(0)), live.data()))
          .value();
  SEGUE_CHECK(CopyInto(setup.plan, setup.base.view(), map, 1).ok());
  const auto device = MakeHostDevice(1);
  const bool scan = state.range(1) == 2;
  Applier applier(setup.plan, setup.staged, map, *device);
  for (auto _ : state) {
    if (scan) {
      benchmark::DoNotOptimize(DigestLive(setup.plan, map, 1).value());
      continue;
    }
    if (state.range(1) == 0) {
      SEGUE_CHECK(applier.Preflight().ok());
      continue;
    }
    state.PauseTiming();
    SEGUE_CHECK(CopyInto(setup.plan, setup.base.view(), map, 1).ok());
    SEGUE_CHECK(applier.Preflight().ok());
    state.ResumeTiming();
    SEGUE_CHECK(applier.Apply().ok());
  }
  state.SetItemsProcessed(static_cast<std::int64_t>(setup.staged.changed_elements()) *
                          static_cast<std::int64_t>(state.iterations()));
}
BENCHMARK(BM_Apply)
    ->ArgNames({"view", "work"})
    ->ArgsProduct({{kWhole, kRowSlice, kColumnSlice, kTransposed}, {0, 1, 2}})
    ->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace segue
