// SPDX-License-Identifier: Apache-2.0
//
// Whether every encoding, width and density gives the target bit for bit and nothing else, a wrong
// base is refused with nothing written, and offsets pass 2^31 and 2^32 (case H1).
#include <fmt/core.h>

#include "bench/gpu/check.h"
#include "bench/gpu/updates.h"
#include "delta/applier.h"

namespace segue::gpu_check {
namespace {

constexpr std::uint64_t kBitsUnit = 1 << 20;
constexpr std::uint64_t kOddBytes =
    36;  // So that tensors end within a chunk, a block and a sector.

Status CheckOne(Check& check, Gpu& gpu, Dtype dtype, Profile profile, std::uint64_t every) {
  SEGUE_ASSIGN_OR_RETURN(TiledModel model, TiledModel::Make(dtype, kBitsUnit + kOddBytes, 3));
  model.ChangeEvery(DtypeWidth(dtype), every, every + DtypeWidth(dtype));
  const std::string name =
      fmt::format("{} {}, one in {}", DtypeName(dtype), ProfileName(profile), every);
  SEGUE_ASSIGN_OR_RETURN(const TiledDelta delta,
                         EncodeAndStage(model, profile, check.options.threads));
  SEGUE_ASSIGN_OR_RETURN(const DeviceModel live, DeviceModel::Make(gpu, model));
  SEGUE_RETURN_IF_ERROR(TimeUpdate(check, gpu, model, live, delta, name, 1).status());

  // From its own target it must be refused, and leave that as it is.
  if (every == 0) return {};
  SEGUE_ASSIGN_OR_RETURN(const bool applied, live.HoldsTarget());
  if (!applied) return {};  // Found already.
  Applier applier(model.plan, delta.staged, live.View(), *gpu.accelerator());
  check.Expect(!applier.Preflight().ok(), name + ": a wrong base was taken");
  SEGUE_ASSIGN_OR_RETURN(const bool untouched, live.HoldsTarget());
  check.Expect(untouched, name + ": a preflight wrote");
  return {};
}

}  // namespace

Status CheckBits(Check& check, Gpu& gpu) {
  for (const Dtype dtype : {Dtype::kU8, Dtype::kBF16, Dtype::kF32, Dtype::kI64}) {
    for (const Profile profile : kProfiles) {
      for (const std::uint64_t every : {0, 10'000, 1'176, 100, 10, 2, 1}) {
        // One that fails does not hide the others.
        const Status status = CheckOne(check, gpu, dtype, profile, every);
        if (!status.ok()) {
          check.Find(fmt::format("{} {}, one in {}: {}", DtypeName(dtype), ProfileName(profile),
                                 every, status.ToString()));
        }
      }
    }
  }
  return {};
}

// Changes on both sides of each power of two that a 32-bit offset would lose, and at the ends.
Status CheckLarge(Check& check, Gpu& gpu) {
  const std::uint64_t size = check.options.large;
  SEGUE_ASSIGN_OR_RETURN(TiledModel model, TiledModel::Make(Dtype::kBF16, size, 1));
  for (std::uint64_t edge : {std::uint64_t{0}, std::uint64_t{1} << 20, std::uint64_t{1} << 31,
                             std::uint64_t{1} << 32, size}) {
    for (const std::int64_t step : {-4096, -2, 0, 2, 4096}) {
      const std::uint64_t at = edge + static_cast<std::uint64_t>(step);
      if (at < size) model.target.bytes()[at] ^= std::byte{0x41};
    }
  }
  for (const Profile profile : {Profile::kSparseZstd, Profile::kLz4Zstd}) {
    SEGUE_ASSIGN_OR_RETURN(const TiledDelta delta,
                           EncodeAndStage(model, profile, check.options.threads));
    SEGUE_ASSIGN_OR_RETURN(const DeviceModel live, DeviceModel::Make(gpu, model));
    const std::string name = fmt::format("tensor of {} bytes, {}", size, ProfileName(profile));
    SEGUE_RETURN_IF_ERROR(TimeUpdate(check, gpu, model, live, delta, name, 1).status());
  }
  return {};
}

}  // namespace segue::gpu_check
