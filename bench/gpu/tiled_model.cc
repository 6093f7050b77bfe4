// SPDX-License-Identifier: Apache-2.0
//
// Making tiled models, bringing them to the device, and looking at what has become of them.
#include "bench/gpu/tiled_model.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstring>

#include "base/random.h"
#include "bench/bandwidth.h"
#include "delta/encoder.h"
#include "delta/manifest.h"
#include "segue/generate.h"

namespace segue::gpu_check {
namespace {

constexpr std::uint64_t kCanarySize = 256;
constexpr std::uint8_t kCanary = 0xa5;
constexpr std::size_t kSectorSize = 32;

Result<PresetInfo> FindPreset(std::string_view name) {
  for (const PresetInfo& preset : Presets()) {
    if (preset.name == name) return preset;
  }
  return InvalidArgument("no preset '" + std::string(name) + "'");
}

Dtype DtypeOf(std::string_view format) {
  if (format == "bf16") return Dtype::kBF16;
  if (format == "fp16") return Dtype::kF16;
  if (format == "fp8") return Dtype::kF8E4M3;
  return Dtype::kU8;  // Two 4-bit codes a byte.
}

}  // namespace

Result<TiledModel> TiledModel::Make(Dtype dtype, std::uint64_t unit, std::uint64_t count) {
  TiledModel model;
  std::vector<TensorSpec> specs;
  for (std::uint64_t i = 0; i < count; ++i) {
    specs.push_back({fmt::format("{:06}.weight", i), dtype, {unit / DtypeWidth(dtype)}});
  }
  SEGUE_ASSIGN_OR_RETURN(model.plan, Plan::Make(std::move(specs)));
  SEGUE_ASSIGN_OR_RETURN(model.base, bench::HugeBuffer::Make(unit));
  SEGUE_ASSIGN_OR_RETURN(model.target, bench::HugeBuffer::Make(unit));
  return model;
}

Result<TiledModel> TiledModel::Generate(const CheckOptions& options, std::string_view preset,
                                        std::uint64_t size_max) {
  const std::uint64_t unit = options.unit;
  const std::uint64_t count = std::max<std::uint64_t>(1, std::min(options.size, size_max) / unit);
  SEGUE_ASSIGN_OR_RETURN(const PresetInfo info, FindPreset(preset));
  const Dtype dtype = DtypeOf(info.format);
  SEGUE_ASSIGN_OR_RETURN(TiledModel model, Make(dtype, unit, count));
  model.workload = preset;
  SEGUE_ASSIGN_OR_RETURN(
      const std::uint64_t changed,
      GeneratePair(preset, 1, options.threads, model.base.bytes(), model.target.bytes()));
  const double elements = dtype == Dtype::kU8
                              ? 2.0 * static_cast<double>(unit)
                              : static_cast<double>(unit) / static_cast<double>(DtypeWidth(dtype));
  model.density = static_cast<double>(changed) / elements;
  return model;
}

std::uint64_t TiledModel::DifferingPieces(std::size_t piece_size) const {
  std::uint64_t differing = 0;
  for (std::size_t offset = 0; offset < base.bytes().size(); offset += piece_size) {
    const std::size_t size = std::min(piece_size, base.bytes().size() - offset);
    differing +=
        std::memcmp(base.bytes().data() + offset, target.bytes().data() + offset, size) != 0;
  }
  return differing * count();
}

void TiledModel::ChangeEvery(unsigned width, std::uint64_t every, std::uint64_t seed) {
  const MutableByteSpan old_bytes = base.bytes();
  const MutableByteSpan new_bytes = target.bytes();
  Random random(seed);
  for (std::size_t i = 0; i + 8 <= old_bytes.size(); i += 8) {
    const std::uint64_t word = random.Next();
    std::memcpy(old_bytes.data() + i, &word, 8);
  }
  std::memcpy(new_bytes.data(), old_bytes.data(), old_bytes.size());
  if (every == 0) return;
  for (std::size_t at = random.Next() % every * width; at + width <= new_bytes.size();
       at += every * width) {
    new_bytes[at + random.Next() % width] ^= static_cast<std::byte>(1 + random.Next() % 255);
  }
}

std::uint64_t TiledModel::TouchedSectors() const { return DifferingPieces(kSectorSize); }

std::uint64_t TiledModel::ChangedStoredElements() const {
  return DifferingPieces(DtypeWidth(plan.tensors().front().spec.dtype));
}

ModelView TiledModel::View(const bench::HugeBuffer& buffer) const {
  return ModelView(std::vector<const std::byte*>(count(), buffer.bytes().data()));
}

Result<DeviceModel> DeviceModel::Make(const Gpu& gpu, const TiledModel& model) {
  DeviceModel device(gpu, model);
  SEGUE_ASSIGN_OR_RETURN(device.memory_, gpu.Allocate(device.stride() * model.count()));
  return device;
}

std::uint64_t DeviceModel::stride() const {
  return DivideUp(model_->unit(), kCanarySize) * kCanarySize + kCanarySize;
}

std::byte* DeviceModel::Tensor(std::uint64_t tensor) const {
  return memory_.as<std::byte>() + tensor * stride();
}

MutableModelView DeviceModel::View() const {
  std::vector<std::byte*> tensors;
  for (std::uint64_t i = 0; i < model_->count(); ++i) tensors.push_back(Tensor(i));
  return MutableModelView(std::move(tensors));
}

Status DeviceModel::Load(ByteSpan tensor_bytes) const {
  const std::uint64_t unit = model_->unit();
  SEGUE_RETURN_IF_ERROR(gpu_->Upload(memory_.address(), tensor_bytes));
  for (std::uint64_t i = 0; i < model_->count(); ++i) {
    const CUdeviceptr tensor = memory_.address() + i * stride();
    if (i != 0) SEGUE_RETURN_IF_ERROR(gpu_->Copy(tensor, memory_.address(), unit));
    SEGUE_RETURN_IF_ERROR(gpu_->Fill(tensor + unit, kCanary, stride() - unit));
  }
  return gpu_->Wait();
}

Result<bool> DeviceModel::Holds(ByteSpan expected) const {
  const ByteVector canary(stride() - model_->unit(), std::byte{kCanary});
  for (std::uint64_t i = 0; i < model_->count(); ++i) {
    const CUdeviceptr tensor = memory_.address() + i * stride();
    SEGUE_ASSIGN_OR_RETURN(const bool weights, gpu_->Holds(tensor, expected));
    SEGUE_ASSIGN_OR_RETURN(const bool behind, gpu_->Holds(tensor + model_->unit(), canary));
    if (!weights || !behind) return false;
  }
  return true;
}

Result<TiledDelta> EncodeAndStage(const TiledModel& model, Profile profile, unsigned threads) {
  TiledDelta delta;
  EncodeOptions options;
  options.profile = profile;
  options.threads = threads;
  Result<EncodeReport> encoded = Internal("not run");
  delta.encode_s = bench::Seconds([&] {
    encoded = EncodeDelta(model.plan, model.Base(), model.Target(), options, [&](ByteSpan bytes) {
      delta.payload.insert(delta.payload.end(), bytes.begin(), bytes.end());
      return Status();
    });
  });
  if (!encoded.ok()) return encoded.status();
  const PayloadEntry entry = {0, "payload", encoded->payload.size, encoded->payload.sha256,
                              encoded->payload.row_count};
  const ByteSpan payloads[] = {delta.payload};
  Status status;
  delta.stage_s = bench::Seconds([&] {
    status = StagedDelta::VerifyPayload(entry, delta.payload);
    if (!status.ok()) return;
    Result<StagedDelta> staged = StagedDelta::Stage(model.plan, payloads, threads);
    status = staged.status();
    if (staged.ok()) delta.staged = std::move(*staged);
  });
  SEGUE_RETURN_IF_ERROR(status);
  return delta;
}

}  // namespace segue::gpu_check
