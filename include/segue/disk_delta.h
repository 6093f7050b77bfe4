// SPDX-License-Identifier: Apache-2.0
//
// Disk deltas of Miles and slime: their directories become versions of a lineage, versions become
// such directories, and a checkpoint directory is brought forward by them. docs/format.md, section
// 10, and docs/protocol.md, section 14, say what is promised.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "segue/keys.h"
#include "segue/progress.h"
#include "segue/status.h"

namespace segue {

struct ExportDeltaOptions {
  std::string store = {};
  std::string lineage = "default";
  std::string base = {};                   // Checkpoint directory at version `from`.
  std::string output = {};                 // Gets a directory for each version.
  std::optional<std::uint64_t> from = {};  // By default what the base is.
  std::optional<std::uint64_t> to = {};    // By default the newest.
  // Number of the first directory, the others follow it; by default the versions' own numbers.
  std::optional<std::uint64_t> first_number = {};
  std::string encoding = "xor";       // Or "overwrite".
  std::string checksum = "xxh3-128";  // Or "blake3", "adler32".
  std::uint64_t shards = 1;           // That a version is cut into, at most.
  unsigned threads = 0;               // 0: every core.
  Progress progress = {};
  KeyFiles keys = {};
};

struct ExportedDelta {
  std::uint64_t version = 0;  // In the lineage.
  std::uint64_t number = 0;   // Of the directory.
  std::string directory;
  std::uint64_t changed_tensors = 0;
  std::uint64_t bytes = 0;  // Of all its files.
};

struct ExportDeltaReport {
  std::string lineage;
  std::uint64_t from = 0;
  std::uint64_t to = 0;
  std::vector<ExportedDelta> versions;
  std::vector<std::string> warnings;
};

Result<ExportDeltaReport> ExportDiskDelta(const ExportDeltaOptions& options);

struct ImportDeltaOptions {
  std::string source = {};
  std::string store = {};
  std::string lineage = "default";
  std::string base = {};                   // Checkpoint that the first version starts from.
  std::optional<std::uint64_t> from = {};  // Its number; by default the one before the lowest.
  std::optional<std::uint64_t> to = {};    // By default the highest.
  std::string profile = "sparse-zstd";
  std::optional<std::uint64_t> chunk_size = {};  // For a new lineage.
  unsigned threads = 0;
  Progress progress = {};
  KeyFiles keys = {};
};

struct ImportedDelta {
  std::uint64_t version = 0;
  bool full = false;               // Was a full checkpoint.
  bool already_published = false;  // The lineage had it.
  std::uint64_t changed_elements = 0;
  std::uint64_t payload_bytes = 0;
  std::string digest;
};

struct ImportDeltaReport {
  std::string lineage;
  std::uint64_t from = 0;
  std::vector<ImportedDelta> versions;
  std::vector<std::string> warnings;
};

// A failure says which version it was; those before it are published.
Result<ImportDeltaReport> ImportDiskDelta(const ImportDeltaOptions& options);

struct PullOptions {
  std::string local_checkpoint = {};  // Directory; made where it is not there.
  std::string source = {};
  std::uint64_t target_version = 0;
  std::string base = {};                // Version 0, for a checkpoint without state; may be empty.
  std::vector<std::string> kept = {};   // Further checkpoints that no pull may change.
  std::vector<std::string> roots = {};  // Paths must lead below one of them; none: anywhere.
  unsigned threads = 0;
};

struct PullReport {
  std::optional<std::uint64_t> from;  // Version that was held, where that was known.
  std::uint64_t version = 0;          // Version that is held.
  bool reset = false;                 // Was copied anew.
  std::uint64_t changed_tensors = 0;  // By deltas.
  std::vector<std::string> warnings;
};

Result<PullReport> PullWeights(const PullOptions& options);

}  // namespace segue
