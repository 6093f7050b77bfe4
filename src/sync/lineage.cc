// SPDX-License-Identifier: Apache-2.0
//
// Lineage: listing, checking and walking backwards from the target.
#include "sync/lineage.h"

#include <algorithm>

#include "base/limits.h"

namespace segue {

Result<Manifest> ReadManifest(Store& store, const LineageRecord& lineage, std::uint64_t version) {
  const std::string name = object_name::Version(lineage.lineage, version);
  SEGUE_ASSIGN_OR_RETURN(const ByteVector json, store.Get(name, limits::kManifestSizeMax));
  SEGUE_ASSIGN_OR_RETURN(Manifest manifest, Manifest::Parse(json, name));
  const DeltaIdentity& identity = manifest.identity;
  if (identity.lineage != lineage.lineage || identity.target_version != version) {
    return Corruption("manifest '" + name + "' is of version " +
                      std::to_string(identity.target_version) + " of lineage '" + identity.lineage +
                      "'");
  }
  if (identity.plan != lineage.plan) {
    return Corruption("manifest '" + name + "' has plan " + identity.plan.ToHex() +
                      ", its lineage has " + lineage.plan.ToHex());
  }
  return manifest;
}

Result<Lineage> Lineage::Open(Store& store, const std::string& name) {
  SEGUE_RETURN_IF_ERROR(CheckLineageName(name));
  Lineage lineage;
  // Listed first: an absent name costs the store's full patience (case G1), a listing does not.
  SEGUE_ASSIGN_OR_RETURN(const auto names, store.List(name));
  if (std::find(names.begin(), names.end(), "lineage.json") == names.end()) {
    return NotFound("store '" + store.url() + "' has no lineage '" + name + "'");
  }
  const std::string object = object_name::Lineage(name);
  SEGUE_ASSIGN_OR_RETURN(const ByteVector json, store.Get(object, limits::kManifestSizeMax));
  SEGUE_ASSIGN_OR_RETURN(lineage.record_, LineageRecord::Parse(json, object));
  if (lineage.record_.lineage != name) {
    return Corruption("'" + object + "' names lineage '" + lineage.record_.lineage + "'");
  }
  SEGUE_ASSIGN_OR_RETURN(const auto objects, store.List(object_name::VersionFolder(name)));
  for (const std::string& entry : objects) {
    const auto version = object_name::ParseVersion(entry);
    if (!version) continue;
    Result<Manifest> manifest = ReadManifest(store, lineage.record_, *version);
    if (manifest.status().code() == StatusCode::kNotFound) continue;
    if (!manifest.ok()) return manifest.status();
    lineage.manifests_.emplace(*version, std::move(manifest).value());
  }
  return lineage;
}

Result<std::vector<std::uint64_t>> Lineage::ListVersions(Store& store, const std::string& name) {
  SEGUE_RETURN_IF_ERROR(CheckLineageName(name));
  SEGUE_ASSIGN_OR_RETURN(const auto objects, store.List(object_name::VersionFolder(name)));
  std::vector<std::uint64_t> versions;
  for (const std::string& entry : objects) {
    if (const auto version = object_name::ParseVersion(entry)) versions.push_back(*version);
  }
  std::sort(versions.begin(), versions.end());
  return versions;
}

std::uint64_t Lineage::newest() const {
  return manifests_.empty() ? record_.origin_version : manifests_.rbegin()->first;
}

std::optional<VersionFacts> Lineage::Version(std::uint64_t version) const {
  if (version == record_.origin_version) {
    return VersionFacts{record_.origin_digest, record_.layout};
  }
  if (const auto found = manifests_.find(version); found != manifests_.end()) {
    return VersionFacts{found->second.identity.target_digest, found->second.identity.target_layout};
  }
  for (const auto& [target, manifest] : manifests_) {
    if (manifest.identity.base_version != version) continue;
    return VersionFacts{manifest.identity.base_digest, manifest.identity.base_layout};
  }
  return std::nullopt;
}

std::optional<std::uint64_t> Lineage::FindVersion(const Digest& digest,
                                                  std::uint64_t version_max) const {
  std::optional<std::uint64_t> best;
  const auto offer = [&](std::uint64_t version, const Digest& candidate) {
    if (candidate == digest && version <= version_max && (!best || version > *best)) best = version;
  };
  offer(record_.origin_version, record_.origin_digest);
  for (const auto& [version, manifest] : manifests_) {
    offer(version, manifest.identity.target_digest);
    offer(manifest.identity.base_version, manifest.identity.base_digest);
  }
  return best;
}

Result<std::vector<Manifest>> Lineage::Path(std::uint64_t from, std::uint64_t to) const {
  std::vector<Manifest> path;
  std::uint64_t version = to;
  while (version != from) {
    const auto found = manifests_.find(version);
    if (found == manifests_.end() || path.size() == limits::kChainLengthMax) {
      return NotFound("version " + std::to_string(version) + " of lineage '" + record_.lineage +
                      "' is missing (pruned, or never published); it is needed to reach version " +
                      std::to_string(to) + " from " + std::to_string(from));
    }
    const DeltaIdentity& identity = found->second.identity;
    if (!path.empty() && path.back().identity.base_digest != identity.target_digest) {
      return Corruption("the chain is broken at version " + std::to_string(version) +
                        ": the next version starts at " + path.back().identity.base_digest.ToHex() +
                        ", expected " + identity.target_digest.ToHex());
    }
    path.push_back(found->second);
    if (identity.base_version < from) {
      return NotFound("no way leads from version " + std::to_string(from) + " to " +
                      std::to_string(to) + " of lineage '" + record_.lineage + "': version " +
                      std::to_string(version) + " starts from " +
                      std::to_string(identity.base_version));
    }
    version = identity.base_version;
  }
  std::reverse(path.begin(), path.end());
  return path;
}

Result<Plan> Lineage::ReadPlan(Store& store) const {
  const std::string name = object_name::Plan(record_.lineage, record_.plan);
  SEGUE_ASSIGN_OR_RETURN(const ByteVector object, store.Get(name, limits::kPlanSizeMax));
  SEGUE_ASSIGN_OR_RETURN(Plan plan, Plan::Parse(object));
  if (plan.digest() != record_.plan) {
    return Corruption("plan '" + name + "' has SHA-256 " + plan.digest().ToHex());
  }
  return plan;
}

Result<Layout> Lineage::ReadLayout(Store& store, const Sha256& digest) const {
  const std::string name = object_name::Layout(record_.lineage, digest);
  SEGUE_ASSIGN_OR_RETURN(const ByteVector object, store.Get(name, limits::kLayoutSizeMax));
  SEGUE_ASSIGN_OR_RETURN(Layout layout, Layout::Parse(object));
  if (layout.digest() != digest) {
    return Corruption("layout '" + name + "' has SHA-256 " + layout.digest().ToHex());
  }
  return layout;
}

}  // namespace segue
