// SPDX-License-Identifier: Apache-2.0
//
// Cost model: what an update should cost, from sizes and bandwidths alone (docs/performance.md,
// "Cost model"). It says what a machine could reach and why; nothing here was measured on the GPU
// that it speaks of, and every stage names where its rate comes from.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "segue/status.h"

namespace segue::cli {

struct CostInput {
  double model_bytes = 0;
  double density = 0;  // Share of the elements that change, 0 to 1.
  std::string format = "nvfp4";
  std::string gpu = "h200";
  unsigned gpus = 1;       // Of one host, which share the model; trainer and engine alike.
  double link_gbps = 100;  // 10^9 bits a second, of the store to an engine's host.
  unsigned threads = 32;   // Of a host, for the outer codec and hashes.
};

// Sizes in bytes, of the whole model unless said otherwise.
struct CostSizes {
  double changed_elements = 0;
  double entropy_bound = 0;
  double payload = 0;
  double staged = 0;
  double touched_sectors = 0;  // Sectors of 32 bytes, a count.
};

// One stage, of all GPUs at once.
struct CostStage {
  std::string name;
  std::string place;         // "trainer", "link", "engine", "pause".
  double bytes = 0;          // That pass the narrowest place, on one GPU or the host.
  double rate = 0;           // Bytes a second there.
  double fixed_seconds = 0;  // Of them, whatever the bytes.
  double seconds = 0;
  std::string source;  // Where the rate comes from.
};

struct CostEstimate {
  CostSizes sizes;
  std::vector<CostStage> stages;  // In order; those of place "pause" are the pause.
  CostStage dense;                // The pause if every byte of a mask had to be applied.
  double until_ready_seconds = 0;
  double pause_seconds = 0;
  // Bytes on one GPU, and what it has.
  double engine_memory = 0;   // Weights and staged streams.
  double trainer_memory = 0;  // Weights and baseline.
  double gpu_memory = 0;
};

// Names for --gpu and --format.
std::vector<std::string> CostGpus();
std::vector<std::string> CostFormats();

// InvalidArgument: an unknown name, or a number out of its range.
Result<CostEstimate> EstimateCost(const CostInput& input);

}  // namespace segue::cli
