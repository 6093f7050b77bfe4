// SPDX-License-Identifier: Apache-2.0
//
// Bench model: base, target and live weights in memory, and the plan that describes them. Generated
// from a preset, or the first two checkpoints of a recorded trace, repeated up to the size.
#pragma once

#include <cstdint>
#include <vector>

#include "bench/memory.h"
#include "checkpoint/plan.h"
#include "delta/model_view.h"
#include "segue/bench.h"
#include "segue/status.h"

namespace segue::bench {

struct BenchModel {
  Plan plan;
  HugeBuffer base;
  HugeBuffer target;
  HugeBuffer live;                     // Holds what the run at hand has made of the base.
  std::vector<std::uint64_t> offsets;  // Of the plan's tensors, in each buffer.
  // As the preset counts: 4-bit codes one by one.
  std::uint64_t element_count = 0;
  std::uint64_t changed_elements = 0;

  ModelView BaseView() const { return View<ModelView>(base); }
  ModelView TargetView() const { return View<ModelView>(target); }
  MutableModelView LiveView() const { return View<MutableModelView>(live); }
  MutableByteSpan LiveTensor(std::size_t tensor) const {
    return live.bytes().subspan(offsets[tensor], plan.tensors()[tensor].size);
  }
  // live == target, byte for byte.
  bool LiveIsTarget(unsigned threads) const;
  // live = base, and caches hold other bytes afterwards, so that what is timed next reads memory.
  void Restore(unsigned threads) const;

 private:
  template <typename ViewType>
  ViewType View(const HugeBuffer& buffer) const {
    std::vector<decltype(ViewType().Tensor(0))> tensors;
    for (const std::uint64_t offset : offsets) tensors.push_back(buffer.bytes().data() + offset);
    return ViewType(std::move(tensors));
  }
};

Result<BenchModel> MakeBenchModel(const BenchOptions& options);

}  // namespace segue::bench
