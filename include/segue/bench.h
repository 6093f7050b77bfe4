// SPDX-License-Identifier: Apache-2.0
//
// Bench: every profile and two baselines on the same data in one run, beside the machine's own read
// and copy bandwidth. docs/performance.md explains each figure.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "segue/progress.h"
#include "segue/status.h"

namespace segue {

struct BenchOptions {
  std::uint64_t size = 256ull << 20;   // Model bytes.
  std::string preset = "nvfp4-0.085";  // Of Presets(), or "trace".
  std::string trace = {};              // For "trace": a directory of checkpoints v0000, v0001, ...
  std::string directory = {};          // For the store and files; by default a temporary directory.
  unsigned threads = 0;
  unsigned repeats = 5;
  std::uint64_t seed = 1;
  Progress progress = {};
};

// Seconds are medians over the repeats.
struct ProfileFigures {
  std::uint64_t payload_bytes = 0;  // Payload, chunk table and digests, manifest.
  std::uint64_t staged_bytes = 0;
  double encode_s = 0;
  double fetch_s = 0;
  double stage_s = 0;
  double preflight_s = 0;
  double pause_s = 0;                      // Apply with proof.
  std::uint64_t publisher_peak_bytes = 0;  // Above the two versions.
  std::uint64_t receiver_peak_bytes = 0;   // Above the live weights.
};

struct BaselineFigures {
  std::uint64_t payload_bytes = 0;
  double total_s = 0;
  double pause_s = 0;
};

struct BenchReport {
  std::uint64_t model_bytes = 0;
  std::string preset;
  unsigned threads = 0;
  std::string kernels;  // Instruction set in use.
  double density = 0;
  std::uint64_t changed_elements = 0;
  double entropy_bound_bytes = 0;
  double read_gbps = 0;   // 10^9 bytes a second, all threads.
  double copy_gbps = 0;   // Read plus written.
  double compare_s = 0;   // A bare compare of the two versions.
  double copy_s = 0;      // A bare copy of the model, memory to memory.
  double floor_s = 0;     // Cache lines touched x 128 bytes over copy_gbps.
  bool verified = false;  // Every profile and baseline gave the target, byte for byte.
  std::map<std::string, ProfileFigures> profiles;
  std::map<std::string, BaselineFigures> baselines;  // "full_reload", "disk_delta".
};

Result<BenchReport> RunBench(const BenchOptions& options);

}  // namespace segue
