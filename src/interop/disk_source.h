// SPDX-License-Identifier: Apache-2.0
//
// A source of disk deltas: which versions it holds, and where they are (docs/format.md, section
// 10).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "segue/status.h"

namespace segue {

// "SOURCE/weight_v000007".
std::string DiskVersionPath(const std::string& source, std::uint64_t version);

// The numbers of its directories, ascending. Names of another form are not looked at.
Result<std::vector<std::uint64_t>> ListDiskVersions(const std::string& source);

}  // namespace segue
