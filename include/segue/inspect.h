// SPDX-License-Identifier: Apache-2.0
//
// Inspect, verify and diff: look without changing anything.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "segue/keys.h"
#include "segue/progress.h"
#include "segue/status.h"

namespace segue {

// --- diff
// -------------------------------------------------------------------------------------------

struct DiffOptions {
  std::string base = {};
  std::string target = {};
  std::uint64_t chunk_size = 1ull << 20;
  unsigned threads = 0;
  Progress progress = {};
};

// Counts over one class of tensors (a dtype, or a kind of tensor such as "mlp").
struct DiffClass {
  std::uint64_t tensors = 0;
  std::uint64_t tensors_changed = 0;
  std::uint64_t bytes = 0;
  std::uint64_t elements = 0;
  std::uint64_t changed = 0;
};

struct DiffReport {
  DiffClass total;
  std::map<std::string, DiffClass> by_dtype;
  std::map<std::string, DiffClass> by_class;  // attention, mlp, experts, router, embedding, head,
                                              // norm, scale, other
  std::array<std::uint64_t, 64> xor_bits{};   // How often bit k of a mask is set.
  std::array<std::uint64_t, 40> gaps{};       // Gaps between changes, by floor(log2(gap)).
  std::uint64_t one_ulp = 0;                  // 16-bit floats that moved by one unit.
  double entropy_bound_bytes = 0;             // Positions and values taken as independent.
  std::map<std::string, std::uint64_t> payload_bytes;  // What each profile would send.
};

Result<DiffReport> Diff(const DiffOptions& options);

// --- verify
// -----------------------------------------------------------------------------------------

struct VerifyOptions {
  std::string checkpoint = {};
  std::string store = {};    // With it: which version the checkpoint is.
  std::string lineage = {};  // Empty: what the checkpoint's state says, else "default".
  std::optional<std::uint64_t> version = {};  // With a store: must be exactly this version.
  std::string against = {};                   // Another checkpoint, to be compared byte for byte.
  unsigned threads = 0;
  Progress progress = {};
  KeyFiles keys = {};
};

struct VerifyReport {
  std::string digest;  // 32 hexadecimal digits.
  std::string plan;    // SHA-256 of the plan.
  std::uint64_t model_bytes = 0;
  std::optional<std::uint64_t> version;  // Where a store was given and knows the digest.
  bool layout_matches = false;           // The files too are the same, byte for byte: those of
  std::vector<std::string> files;        // these names (shards, index). Others are not looked at.
  double seconds = 0;
  std::vector<std::string> warnings;
};

// Corruption where a file is damaged, VersionMismatch where the checkpoint is whole but not the
// version or the checkpoint that it was held against.
Result<VerifyReport> Verify(const VerifyOptions& options);

// --- inspect
// ----------------------------------------------------------------------------------------

// What `path` is (checkpoint, manifest, payload, plan, layout, lineage or store) and what it holds,
// as one JSON object. `plan`: path of the plan that a payload needs; found by itself inside a
// store.
Result<std::string> Inspect(const std::string& path, const std::string& plan = "");

}  // namespace segue
