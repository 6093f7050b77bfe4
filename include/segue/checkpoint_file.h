// SPDX-License-Identifier: Apache-2.0
//
// Delta checkpoints: a version as one file that holds what changed since the lineage's origin. With
// the base checkpoint it becomes a full one again (segue/apply.h, with store "file:PATH").
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "segue/keys.h"
#include "segue/progress.h"
#include "segue/status.h"

namespace segue {

struct CheckpointFileOptions {
  std::string store = {};
  std::string lineage = "default";
  std::optional<std::uint64_t> version = {};  // By default the newest.
  std::string output = {};                    // File that must not exist yet.
  std::string profile = "lz4-zstd";           // One transfer, small staging.
  unsigned threads = 0;
  Progress progress = {};
  KeyFiles keys = {};
};

struct CheckpointFileReport {
  std::string lineage;
  std::uint64_t base_version = 0;
  std::uint64_t version = 0;
  std::string base_digest;
  std::string digest;
  std::uint64_t steps = 0;  // Published deltas that were joined.
  std::uint64_t model_bytes = 0;
  std::uint64_t file_bytes = 0;
  std::uint64_t changed_elements = 0;
};

// NotFound: no such version, or no whole chain from the origin to it.
Result<CheckpointFileReport> WriteCheckpointFile(const CheckpointFileOptions& options);

}  // namespace segue
