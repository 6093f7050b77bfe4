// SPDX-License-Identifier: Apache-2.0
//
// Publish: makes the difference of two checkpoints a version in a store, and prunes old ones.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "segue/keys.h"
#include "segue/progress.h"
#include "segue/status.h"

namespace segue {

// A named version that the store keeps a delta against (docs/protocol.md, section 2, "Anchors").
struct AnchorWish {
  std::string name = {};
  // By default where the anchor is; where there is none yet, the origin for "base".
  std::optional<std::uint64_t> version = {};
};

struct AnchorReport {
  std::string name;
  std::uint64_t version = 0;         // What it anchors.
  std::uint64_t target_version = 0;  // Where its delta leads.
  std::string digest;                // Of `version`.
  std::uint64_t payload_bytes = 0;   // 0 where it is at its target.
  std::uint64_t changed_chunks = 0;
  std::uint64_t changed_elements = 0;
};

struct PublishOptions {
  std::string store = {};  // URL: "dir:PATH" or a path.
  std::string lineage = "default";
  std::string base = {};  // Checkpoint directory or file.
  std::string target = {};
  std::string profile = "sparse-zstd";
  std::optional<std::uint64_t> version = {};  // Of the target; by default one after the newest.
  // Starting from a version that is not the newest cuts off who holds a later one; it is refused
  // unless the caller says that the trainer went back.
  bool allow_branch = false;
  // For a new lineage: a power of two, 4 KiB to 16 MiB; by default 1 MiB.
  std::optional<std::uint64_t> chunk_size = {};
  unsigned threads = 0;  // 0: every core.
  // Several owners (trainer ranks) of one version: each calls with its number and the same session
  // name; owner 0 waits for the others and makes the version visible, for which the others wait.
  std::uint32_t owner = 0;
  std::uint32_t owner_count = 1;
  std::string session = {};  // [A-Za-z0-9._-]; required when owner_count > 1.
  double owner_timeout_seconds = 600;
  std::uint64_t retain = 0;              // Versions to keep after publishing; 0 keeps all.
  std::vector<AnchorWish> anchors = {};  // To set or move; those that are there are kept anyway.
  Progress progress = {};
  // Asked once everything was read and nothing is visible yet; a failure ends the publish. May be
  // empty.
  std::function<Status()> confirm = {};
  KeyFiles keys = {};
};

struct PublishReport {
  std::string lineage;
  std::uint64_t base_version = 0;
  std::uint64_t target_version = 0;
  std::string base_digest;  // 32 hexadecimal digits.
  std::string target_digest;
  bool already_published = false;  // A version with the same content was there: `target_version`.
  bool committed = false;          // The version is visible.
  std::uint64_t model_bytes = 0;
  std::uint64_t payload_bytes = 0;  // Of all owners known to this call.
  std::uint64_t published_bytes =
      0;  // Payloads, manifest, and plan and layout where they were new.
  std::uint64_t changed_chunks = 0;
  std::uint64_t changed_elements = 0;
  double open_s = 0;
  double encode_s = 0;  // Diff and encode, writing to the store included.
  double commit_s = 0;
  double anchor_s = 0;                // After the version was visible.
  std::vector<AnchorReport> anchors;  // Of the lineage, as they are now.
  std::vector<std::uint64_t> pruned;  // Versions removed.
  std::vector<std::string> warnings;
};

Result<PublishReport> Publish(const PublishOptions& options);

}  // namespace segue
