// SPDX-License-Identifier: Apache-2.0
//
// The index of a disk delta's directory (docs/format.md, section 10), read and written.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/bytes.h"
#include "checkpoint/index.h"
#include "interop/delta_frame.h"
#include "interop/tensor_checksum.h"
#include "segue/status.h"

namespace segue {

struct DeltaIndex {
  std::uint64_t version = 0;
  std::uint64_t base_version = 0;
  DeltaEncoding encoding = DeltaEncoding::kXor;
  ChecksumKind checksum = ChecksumKind::kXxh3;
  IndexFile map;  // Empty where nothing differs.
};

// Nothing where the index is that of a full checkpoint. Corruption naming `path` and the fault;
// Unsupported for an encoding, compression or checksum that is not known.
Result<std::optional<DeltaIndex>> ParseDeltaIndex(ByteSpan json, const std::string& path);

// The text as a writer makes it; entries in the order of `index.map`.
std::string MakeDeltaIndex(const DeltaIndex& index);

// "000007". `version` is within limits.
std::string DiskVersionText(std::uint64_t version);
// Exactly six digits, or nothing.
std::optional<std::uint64_t> ParseDiskVersion(std::string_view text);
// "weight_v000007".
std::string DiskVersionName(std::uint64_t version);

}  // namespace segue
