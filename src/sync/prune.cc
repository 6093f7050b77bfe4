// SPDX-License-Identifier: Apache-2.0
//
// Prune. The manifest goes first: from then on no reader starts on the version, and one that has
// begun is told that it is gone (case G2). Other pruners may do the same at the same time.
#include "sync/prune.h"

#include <algorithm>
#include <set>
#include <span>

#include "base/limits.h"

namespace segue {
namespace {

// Objects that the kept versions name; one of them may lie in an older version's folder.
Result<std::set<std::string>> NeededObjects(Store& store, const LineageRecord& lineage,
                                            std::span<const std::uint64_t> kept) {
  std::set<std::string> needed;
  for (const std::uint64_t version : kept) {
    const std::string name = object_name::Version(lineage.lineage, version);
    SEGUE_ASSIGN_OR_RETURN(const ByteVector json, store.Get(name, limits::kManifestSizeMax));
    SEGUE_ASSIGN_OR_RETURN(const Manifest manifest, Manifest::Parse(json, name));
    for (const PayloadEntry& payload : manifest.payloads) needed.insert(payload.object);
  }
  return needed;
}

Status PruneVersion(Store& store, const LineageRecord& lineage, std::uint64_t version,
                    const std::set<std::string>& needed) {
  SEGUE_RETURN_IF_ERROR(store.Delete(object_name::Version(lineage.lineage, version)));
  const std::string folder = object_name::PayloadFolder(lineage.lineage, version);
  SEGUE_ASSIGN_OR_RETURN(const auto objects, store.List(folder));
  for (const std::string& object : objects) {
    const std::string name = folder + "/" + object;
    if (!needed.contains(name)) SEGUE_RETURN_IF_ERROR(store.Delete(name));
  }
  return {};
}

}  // namespace

PruneReport PruneVersions(Store& store, const LineageRecord& lineage, std::uint64_t retain) {
  PruneReport report;
  const auto listed = store.List(object_name::VersionFolder(lineage.lineage));
  if (!listed.ok()) {
    report.warnings.push_back("nothing was pruned: " + listed.status().message());
    return report;
  }
  std::vector<std::uint64_t> versions;
  for (const std::string& name : listed.value()) {
    if (const auto version = object_name::ParseVersion(name)) versions.push_back(*version);
  }
  std::sort(versions.begin(), versions.end());
  if (retain == 0 || versions.size() <= retain) return report;
  const std::size_t count = versions.size() - retain;
  const auto needed = NeededObjects(store, lineage, std::span(versions).subspan(count));
  if (!needed.ok()) {
    report.warnings.push_back("nothing was pruned: " + needed.status().message());
    return report;
  }
  for (std::size_t i = 0; i < count; ++i) {
    const Status status = PruneVersion(store, lineage, versions[i], needed.value());
    if (status.ok()) {
      report.pruned.push_back(versions[i]);
    } else {
      report.warnings.push_back("version " + std::to_string(versions[i]) +
                                " could not be pruned: " + status.message());
    }
  }
  return report;
}

}  // namespace segue
