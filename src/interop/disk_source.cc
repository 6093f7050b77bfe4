// SPDX-License-Identifier: Apache-2.0
//
// Disk source: names and numbers.
#include "interop/disk_source.h"

#include "base/file.h"
#include "interop/delta_index.h"

namespace segue {

std::string DiskVersionPath(const std::string& source, std::uint64_t version) {
  return JoinPath(source, DiskVersionName(version));
}

Result<std::vector<std::uint64_t>> ListDiskVersions(const std::string& source) {
  SEGUE_ASSIGN_OR_RETURN(const auto names, ListDirectory(source));
  std::vector<std::uint64_t> versions;
  versions.reserve(names.size());
  for (const std::string& name : names) {
    const std::string_view prefix = "weight_v";
    if (!name.starts_with(prefix)) continue;
    if (const auto version = ParseDiskVersion(name.substr(prefix.size()))) {
      versions.push_back(*version);
    }
  }
  return versions;
}

}  // namespace segue
