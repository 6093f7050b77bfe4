// SPDX-License-Identifier: Apache-2.0
//
// Both versions to the device, a diff, a payload.
#include "bench/gpu/encodings.h"

#include <fmt/core.h>

#include <algorithm>

#include "bench/gpu/tiled_model.h"
#include "delta/delta_builder.h"
#include "device/differ.h"

namespace segue::gpu_check {
namespace {

// With a segment, a block and a sector that are not whole at its end.
constexpr std::uint64_t kUnit = (1 << 20) + (1 << 17) + 4096 + 40;

std::vector<TensorChange> ChangesOf(const ModelView& base, const ModelView& target) {
  std::vector<TensorChange> changes;
  for (std::size_t i = 0; i < base.tensor_count(); ++i) {
    changes.push_back({i, base.Tensor(i), target.Tensor(i)});
  }
  return changes;
}

Result<ByteVector> PayloadOf(const TiledModel& model, DeltaBuilder& builder, unsigned threads) {
  SEGUE_ASSIGN_OR_RETURN(const StagedDelta staged, builder.Take());
  ByteVector payload;
  const auto sink = [&](ByteSpan bytes) {
    AppendBytes(payload, bytes);
    return Status();
  };
  SEGUE_RETURN_IF_ERROR(WriteStagedDelta(model.plan, staged, threads, sink).status());
  return payload;
}

Status ExpectSame(Check& check, Gpu& gpu, const TiledModel& model, Profile profile,
                  const std::string& name) {
  const unsigned threads = check.options.threads;
  DeltaBuilder builder(model.plan, profile, threads);
  SEGUE_RETURN_IF_ERROR(builder.Add(ChangesOf(model.Base(), model.Target())).status());
  SEGUE_ASSIGN_OR_RETURN(const ByteVector expected, PayloadOf(model, builder, threads));

  SEGUE_ASSIGN_OR_RETURN(const DeviceModel base, DeviceModel::Make(gpu, model));
  SEGUE_ASSIGN_OR_RETURN(const DeviceModel target, DeviceModel::Make(gpu, model));
  SEGUE_RETURN_IF_ERROR(base.Restore());
  SEGUE_RETURN_IF_ERROR(target.Load(model.target.bytes()));
  const DifferOptions options = {.chunk_size_max = model.plan.chunk_size(), .memory_max = 32 << 20};
  SEGUE_ASSIGN_OR_RETURN(const std::shared_ptr<Differ> differ, OpenDiffer("cuda:0", options));
  SEGUE_ASSIGN_OR_RETURN(const std::shared_ptr<std::byte> pinned,
                         differ->Allocate(DiffMemory::kHost, model.unit()));
  std::ranges::copy(model.base.bytes(), pinned.get());
  const ModelView host_base(std::vector<const std::byte*>(model.count(), pinned.get()));
  for (const bool base_on_host : {false, true}) {
    const auto changes =
        ChangesOf(base_on_host ? host_base : ReadOnly(base.View()), ReadOnly(target.View()));
    SEGUE_RETURN_IF_ERROR(builder.AddOnDevice(changes, *differ, base_on_host).status());
    SEGUE_ASSIGN_OR_RETURN(const ByteVector found, PayloadOf(model, builder, threads));
    check.Expect(found == expected, name + ", base on the " + (base_on_host ? "host" : "device") +
                                        ": the device's payload is not the host's");
  }
  return {};
}

}  // namespace

Status CheckEncodings(Check& check, Gpu& gpu) {
  for (const Dtype dtype : {Dtype::kU8, Dtype::kBF16, Dtype::kF32, Dtype::kI64}) {
    for (const Profile profile : kProfiles) {
      for (const std::uint64_t every : {1'176, 0, 10'000, 100, 9, 8, 7, 1}) {
        SEGUE_ASSIGN_OR_RETURN(TiledModel model, TiledModel::Make(dtype, kUnit, 2));
        model.ChangeEvery(DtypeWidth(dtype), every, every + 7);
        const std::string name =
            fmt::format("encoding {} {}, one in {}", DtypeName(dtype), ProfileName(profile), every);
        SEGUE_RETURN_IF_ERROR(ExpectSame(check, gpu, model, profile, name));
        if (profile != Profile::kSparseZstd) break;  // Those take all chunks as they are.
      }
    }
  }
  return {};
}

}  // namespace segue::gpu_check
