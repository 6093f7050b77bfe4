// SPDX-License-Identifier: Apache-2.0
//
// Tiled model: a model of many gigabytes whose tensors all hold the same pair of versions, so that
// the host needs memory for one of them. Encoder, decoder and kernels cannot tell: digests differ
// from tensor to tensor, and no window of a codec reaches from one to the next. On the device every
// tensor has bytes of its own, with a canary behind it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "bench/gpu/check.h"
#include "bench/gpu/gpu.h"
#include "bench/memory.h"
#include "checkpoint/plan.h"
#include "delta/model_view.h"
#include "delta/profile.h"
#include "delta/staged_delta.h"

namespace segue::gpu_check {

struct TiledModel {
  // `preset` of the generator, in whole units of the check's size, at most `size_max` bytes of them
  // and at least one.
  static Result<TiledModel> Generate(const CheckOptions& options, std::string_view preset,
                                     std::uint64_t size_max = ~std::uint64_t{0});
  // For a pair that the caller fills: base and target are zero.
  static Result<TiledModel> Make(Dtype dtype, std::uint64_t unit, std::uint64_t count);

  // Fills both: noise, and in the target another value in every `every`-th element (0: in none).
  void ChangeEvery(unsigned width, std::uint64_t every, std::uint64_t seed);

  ModelView Base() const { return View(base); }
  ModelView Target() const { return View(target); }
  std::uint64_t size() const { return plan.model_size(); }
  std::uint64_t unit() const { return base.bytes().size(); }
  std::uint64_t count() const { return plan.tensors().size(); }
  // Sectors of 32 bytes in which the versions differ, over all tensors.
  std::uint64_t TouchedSectors() const;
  // Elements as they are stored (bytes, for codes of 4 bits) in which they differ, likewise.
  std::uint64_t ChangedStoredElements() const;

  std::string workload;
  Plan plan;
  bench::HugeBuffer base;
  bench::HugeBuffer target;
  double density = 0;  // Share of the elements that change, as the preset counts them.

 private:
  ModelView View(const bench::HugeBuffer& buffer) const;
  std::uint64_t DifferingPieces(std::size_t piece_size) const;
};

// A tiled model's weights on the device.
class DeviceModel {
 public:
  static Result<DeviceModel> Make(const Gpu& gpu, const TiledModel& model);

  // The base in every tensor, and canaries.
  Status Restore() const { return Load(model_->base.bytes()); }
  // The same with other bytes of a tensor.
  Status Load(ByteSpan tensor) const;
  MutableModelView View() const;
  std::byte* Tensor(std::uint64_t tensor) const;
  // Whether every tensor holds the target (or the base) and every canary is whole.
  Result<bool> HoldsTarget() const { return Holds(model_->target.bytes()); }
  Result<bool> HoldsBase() const { return Holds(model_->base.bytes()); }

 private:
  DeviceModel(const Gpu& gpu, const TiledModel& model) : gpu_(&gpu), model_(&model) {}
  Result<bool> Holds(ByteSpan expected) const;
  std::uint64_t stride() const;

  const Gpu* gpu_;
  const TiledModel* model_;
  cuda::DeviceBuffer memory_;
};

// The delta of a model as a receiver has staged it, and what the host took for it.
struct TiledDelta {
  ByteVector payload;
  StagedDelta staged;
  double encode_s = 0;
  double stage_s = 0;  // SHA-256, outer decode and checks.
};
Result<TiledDelta> EncodeAndStage(const TiledModel& model, Profile profile, unsigned threads);

}  // namespace segue::gpu_check
