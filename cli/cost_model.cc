// SPDX-License-Identifier: Apache-2.0
//
// The cost model's constants, each with its source, and the arithmetic over them.
#include "cli/cost_model.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <string_view>

namespace segue::cli {
namespace {

constexpr double kGiga = 1e9;

// Of a data sheet: 10^9 bytes; peak rates in 10^9 bytes a second, the host link in one direction.
struct Gpu {
  std::string_view name;
  double size;
  double memory;
  double host_link;
  double decompression_engine;  // 0: it has none.
};
constexpr std::array kGpus = {
    Gpu{"a100", 80, 2039, 32, 0},     Gpu{"h100", 80, 3350, 64, 0},
    Gpu{"h200", 141, 4800, 64, 0},    Gpu{"b200", 180, 8000, 64, 800},
    Gpu{"b300", 288, 8000, 128, 800},
};

// An element's bits; bits of an XOR value under its entropy bound, and payload over that bound, as
// `segue bench` counts them (exact, 128 MiB, seed 1).
struct Format {
  std::string_view name;
  double element_bits;
  double stored_bits;  // Of what `sparse` takes for an element: a byte holds two of NVFP4.
  double value_bits;
  double over_bound;
};
constexpr std::array kFormats = {
    Format{"nvfp4", 4, 8, 1.64, 1.036},
    Format{"fp8", 8, 8, 2.54, 1.062},
    Format{"bf16", 16, 16, 3.15, 1.07},
};

// Bits of a position as staged beyond log2(1/density): 3.6 to 5.0 in the same runs.
constexpr double kStagedPositionBits = 4.3;
constexpr double kSectorSize = 32;
// A plain copy on an H200 moved 4.3 of 4.8 TB/s; links lose more.
constexpr double kMemoryShare = 0.9;
constexpr double kLinkShare = 0.85;
// Host rates a core, from docs/performance.md (two cores): payload bytes staged (SHA-256, outer
// decode, checks; 2 GiB NVFP4), and payload bytes written in the time that an encode takes beyond a
// compare (BF16, 0.56 to 9.8 %: 0.04 to 0.10).
constexpr double kStageRate = 0.28 * kGiga;
constexpr double kOuterEncodeRate = 0.06 * kGiga;
// What the apply should take over its floor on a GPU at most: the goal, until one was measured.
constexpr double kApplyOverFloor = 2.5;
constexpr double kLaunchSeconds = 20e-6;
// Share of the stored elements up to which the encoder stays with `sparse` (docs/performance.md,
// "Crossing point"): what lies beyond is not modelled.
constexpr double kSparseShareMax = 0.125;
constexpr double kLinkMin = 1e-3;
// A dense mask: written by the decoder, read, live bytes read and written.
constexpr double kDensePasses = 4;

template <typename Table>
const auto* Find(const Table& table, std::string_view name) {
  const auto found = std::find_if(table.begin(), table.end(),
                                  [name](const auto& row) { return row.name == name; });
  return found == table.end() ? nullptr : &*found;
}

template <typename Table>
std::vector<std::string> Names(const Table& table) {
  std::vector<std::string> names;
  for (const auto& row : table) names.emplace_back(row.name);
  return names;
}

Status Check(const CostInput& input) {
  const auto positive = [](double value) { return std::isfinite(value) && value > 0; };
  if (!positive(input.model_bytes)) return InvalidArgument("model: expected more than 0 bytes");
  if (!(input.density >= 0 && input.density <= 1)) {
    return InvalidArgument(fmt::format("density: expected 0 to 1, found {}", input.density));
  }
  if (input.gpus == 0) return InvalidArgument("gpus: expected at least 1");
  if (input.threads == 0) return InvalidArgument("threads: expected at least 1");
  if (!positive(input.link_gbps) || input.link_gbps < kLinkMin) {
    return InvalidArgument(fmt::format("link: expected at least {} Gbit/s", kLinkMin));
  }
  return {};
}

// Bits that say which of many elements changed, for each that did.
double PositionBits(double density) {
  if (density <= 0 || density >= 1) return 0;
  const double unchanged = 1 - density;
  return -std::log2(density) - unchanged / density * std::log2(unchanged);
}

// Of what `sparse` takes for an element, the share that changes.
double StoredDensity(double density, const Format& format) {
  return 1 - std::pow(1 - density, format.stored_bits / format.element_bits);
}

Status CheckDensity(double density, const Format& format) {
  if (StoredDensity(density, format) <= kSparseShareMax) return {};
  const double most = 1 - std::pow(1 - kSparseShareMax, format.element_bits / format.stored_bits);
  return Unsupported(fmt::format(
      "density: the model covers up to {:.3g} of {}, where the encoder changes over to dense "
      "encodings; found {}",
      most, format.name, density));
}

CostSizes Sizes(const CostInput& input, const Format& format) {
  const double elements = input.model_bytes * 8 / format.element_bits;
  CostSizes sizes;
  sizes.changed_elements = elements * input.density;
  sizes.entropy_bound =
      sizes.changed_elements * (PositionBits(input.density) + format.value_bits) / 8;
  sizes.payload = sizes.entropy_bound * format.over_bound;
  if (input.density > 0) {
    const double stored_density = StoredDensity(input.density, format);
    const double stored = input.model_bytes * 8 / format.stored_bits * stored_density;
    sizes.staged =
        stored * (format.stored_bits - std::log2(stored_density) + kStagedPositionBits) / 8;
  }
  const double elements_a_sector = kSectorSize * 8 / format.element_bits;
  sizes.touched_sectors =
      input.model_bytes / kSectorSize * (1 - std::pow(1 - input.density, elements_a_sector));
  return sizes;
}

CostStage Stage(std::string name, std::string place, double bytes, double rate,
                std::string source) {
  return {std::move(name), std::move(place), bytes, rate, 0, bytes / rate, std::move(source)};
}

std::string Sheet(double peak, double share) {
  return fmt::format("data sheet, {:.0f} GB/s x {}", peak, share);
}

std::string HostRate(double rate, unsigned threads) {
  return fmt::format("measured on 2 cores, {:.2f} GB/s each, x {}", rate / kGiga, threads);
}

// The rates of one GPU, bytes a second, and their sources.
struct GpuRates {
  explicit GpuRates(const Gpu& gpu)
      : memory(gpu.memory * kGiga * kMemoryShare),
        host_link(gpu.host_link * kGiga * kLinkShare),
        memory_source(Sheet(gpu.memory, kMemoryShare)),
        link_source(Sheet(gpu.host_link, kLinkShare)) {}
  double memory;
  double host_link;
  std::string memory_source;
  std::string link_source;
};

std::vector<CostStage> Stages(const CostInput& input, const CostSizes& sizes,
                              const GpuRates& rates) {
  const double share = 1.0 / input.gpus;
  const double link = input.link_gbps / 8 * kGiga;
  const double touched = sizes.touched_sectors * kSectorSize * share;
  const double scattered = rates.memory / kApplyOverFloor;
  const std::string scattered_source =
      rates.memory_source + fmt::format(", goal: / {}", kApplyOverFloor);
  std::vector<CostStage> stages = {
      Stage("compare old and new", "trainer", 2 * input.model_bytes * share, rates.memory,
            rates.memory_source),
      Stage("changes to the host", "trainer", sizes.staged * share, rates.host_link,
            rates.link_source),
      Stage("outer Zstd", "trainer", sizes.payload, kOuterEncodeRate * input.threads,
            HostRate(kOuterEncodeRate, input.threads)),
      Stage("write to the store", "link", sizes.payload, link, "--link-gbps"),
      Stage("fetch", "link", sizes.payload, link, "--link-gbps"),
      Stage("hash, outer decode", "engine", sizes.payload, kStageRate * input.threads,
            HostRate(kStageRate, input.threads)),
      Stage("to the GPU", "engine", sizes.staged * share, rates.host_link, rates.link_source),
      Stage("preflight", "engine", touched, scattered, scattered_source),
      Stage("apply with proof", "pause", 2 * touched, scattered, scattered_source),
  };
  // Nothing changed: no pause at all.
  if (touched > 0) {
    stages.back().fixed_seconds = kLaunchSeconds;
    stages.back().seconds += kLaunchSeconds;
    stages.back().source += fmt::format(", + {:.0f} us", kLaunchSeconds * 1e6);
  }
  return stages;
}

// The least a dense mask takes: its traffic, or the decompression engine where that is slower.
CostStage DensePause(const CostInput& input, const Gpu& gpu, const GpuRates& rates) {
  const double own = input.model_bytes / input.gpus;
  CostStage traffic = Stage("dense mask", "pause", kDensePasses * own, rates.memory,
                            rates.memory_source + ", decoding not counted");
  if (gpu.decompression_engine == 0) return traffic;
  CostStage engine = Stage("dense mask", "pause", own, gpu.decompression_engine * kGiga,
                           Sheet(gpu.decompression_engine, 1) + ", decompression engine");
  return engine.seconds > traffic.seconds ? engine : traffic;
}

}  // namespace

std::vector<std::string> CostGpus() { return Names(kGpus); }
std::vector<std::string> CostFormats() { return Names(kFormats); }

Result<CostEstimate> EstimateCost(const CostInput& input) {
  SEGUE_RETURN_IF_ERROR(Check(input));
  const Gpu* const gpu = Find(kGpus, input.gpu);
  const Format* const format = Find(kFormats, input.format);
  if (gpu == nullptr) return InvalidArgument("gpu: unknown: '" + input.gpu + "'");
  if (format == nullptr) return InvalidArgument("format: unknown: '" + input.format + "'");
  SEGUE_RETURN_IF_ERROR(CheckDensity(input.density, *format));
  const GpuRates rates(*gpu);
  CostEstimate cost;
  cost.sizes = Sizes(input, *format);
  cost.stages = Stages(input, cost.sizes, rates);
  cost.dense = DensePause(input, *gpu, rates);
  const double weights = input.model_bytes / input.gpus;
  cost.engine_memory = weights + cost.sizes.staged / input.gpus;
  cost.trainer_memory = 2 * weights;
  cost.gpu_memory = gpu->size * kGiga;
  for (const CostStage& stage : cost.stages) {
    (stage.place == "pause" ? cost.pause_seconds : cost.until_ready_seconds) += stage.seconds;
  }
  return cost;
}

}  // namespace segue::cli
