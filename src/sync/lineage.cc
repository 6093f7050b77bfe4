// SPDX-License-Identifier: Apache-2.0
//
// Lineage: listing, checking and walking backwards from the target.
#include "sync/lineage.h"

#include <algorithm>
#include <functional>
#include <set>
#include <utility>

#include "base/file.h"
#include "base/limits.h"

namespace segue {
namespace {

constexpr std::size_t kLineagesShownMax = 20;

bool HoldsLineage(Store& store, const std::string& name) {
  const auto names = store.List(name);
  return CheckLineageName(name).ok() && names.ok() &&
         std::find(names.value().begin(), names.value().end(), "lineage.json") !=
             names.value().end();
}

// "; it has 'a', 'b'", for a message.
std::string KnownLineages(Store& store) {
  const auto names = Lineage::ListLineages(store);
  if (!names.ok()) return "";
  std::string text;
  std::size_t count = 0;
  for (const std::string& name : names.value()) {
    if (count == kLineagesShownMax) return text + " and more";
    text += (count++ == 0 ? "; it has '" : ", '") + name + "'";
  }
  return count == 0 ? "; it has none" : text;
}

// The chain to `to` passes `from` by: `step` is where.
Status NoWay(const DeltaIdentity& step, std::uint64_t from, std::uint64_t to) {
  const std::string base = std::to_string(step.base_version);
  return VersionMismatch("no way leads from version " + std::to_string(from) + " to " +
                         std::to_string(to) + " of lineage '" + step.lineage + "': version " +
                         std::to_string(step.target_version) + " starts from " + base +
                         "; rebuild from a full copy of version " + base +
                         " (apply with --output)");
}

}  // namespace

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

Result<UsedNumbers> ListNumbers(Store& store, const std::string& lineage) {
  SEGUE_ASSIGN_OR_RETURN(const auto objects, store.List(object_name::VersionFolder(lineage)));
  UsedNumbers numbers;
  std::vector<std::uint64_t> manifests;
  for (const std::string& entry : objects) {
    if (const auto version = object_name::ParseVersion(entry)) manifests.push_back(*version);
    if (const auto version = object_name::ParseGone(entry)) numbers.gone.push_back(*version);
  }
  std::sort(manifests.begin(), manifests.end());
  std::sort(numbers.gone.begin(), numbers.gone.end());
  for (const std::uint64_t version : manifests) {
    const bool gone = std::binary_search(numbers.gone.begin(), numbers.gone.end(), version);
    (gone ? numbers.ghosts : numbers.versions).push_back(version);
  }
  return numbers;
}

std::vector<std::string> FindLineages(const std::string& folder) {
  std::vector<std::string> lineages;
  const auto names = ListDirectory(folder);
  if (!names.ok()) return lineages;
  for (const std::string& name : names.value()) {
    const bool may_be = CheckLineageName(name).ok();
    if (may_be && FileExists(JoinPath(JoinPath(folder, name), "lineage.json"))) {
      lineages.push_back(name);
    }
  }
  return lineages;
}

Result<std::vector<std::string>> Lineage::ListLineages(Store& store) {
  SEGUE_ASSIGN_OR_RETURN(std::vector<std::string> names, store.ListFolders(""));
  std::erase_if(names, [&store](const std::string& name) { return !HoldsLineage(store, name); });
  return names;
}

Result<LineageRecord> Lineage::ReadRecord(Store& store, const std::string& name) {
  SEGUE_RETURN_IF_ERROR(CheckLineageName(name));
  // Listed first: an absent name costs the store's full patience (case G1), a listing does not.
  SEGUE_ASSIGN_OR_RETURN(const auto names, store.List(name));
  if (std::find(names.begin(), names.end(), "lineage.json") == names.end()) {
    return NotFound("store '" + store.url() + "' has no lineage '" + name + "'" +
                    KnownLineages(store));
  }
  const std::string object = object_name::Lineage(name);
  const Result<ByteVector> json = store.Get(object, limits::kManifestSizeMax);
  // Never deleted, so this is not "no such lineage", which callers act upon.
  if (json.status().code() == StatusCode::kNotFound) {
    return Unavailable("'" + object + "' is listed and cannot be read yet");
  }
  if (!json.ok()) return json.status();
  SEGUE_ASSIGN_OR_RETURN(LineageRecord record, LineageRecord::Parse(json.value(), object));
  if (record.lineage != name) {
    return Corruption("'" + object + "' names lineage '" + record.lineage + "'");
  }
  return record;
}

Result<Lineage> Lineage::Open(Store& store, const std::string& name) {
  Lineage lineage;
  SEGUE_ASSIGN_OR_RETURN(lineage.record_, ReadRecord(store, name));
  SEGUE_ASSIGN_OR_RETURN(const auto versions, ListVersions(store, name));
  for (const std::uint64_t version : versions) {
    Result<Manifest> manifest = ReadManifest(store, lineage.record_, version);
    if (manifest.status().code() == StatusCode::kNotFound) continue;
    if (!manifest.ok()) return manifest.status();
    lineage.manifests_.emplace(version, std::move(manifest).value());
  }
  SEGUE_RETURN_IF_ERROR(lineage.DropGone(store));
  SEGUE_RETURN_IF_ERROR(lineage.CheckAgreement());
  return lineage;
}

// What was pruned while the manifests were read: one of that number that was read may be of a put
// that came back to it, and so have another content. The mark came before that.
Status Lineage::DropGone(Store& store) {
  if (manifests_.empty()) return {};
  SEGUE_ASSIGN_OR_RETURN(const UsedNumbers numbers, ListNumbers(store, record_.lineage));
  for (const std::uint64_t version : numbers.gone) manifests_.erase(version);
  return {};
}

// Origin, targets and bases speak of the same versions; none may say otherwise than another.
Status Lineage::CheckAgreement() const {
  std::map<std::uint64_t, Digest> digests = {{record_.origin_version, record_.origin_digest}};
  const auto check = [&](std::uint64_t version, const Digest& digest) {
    const auto [known, added] = digests.emplace(version, digest);
    if (added || known->second == digest) return Status();
    return Corruption("lineage '" + record_.lineage + "' contradicts itself: version " +
                      std::to_string(version) + " has digest " + known->second.ToHex() + " and " +
                      digest.ToHex());
  };
  for (const auto& [version, manifest] : manifests_) {
    if (version <= record_.origin_version) {
      return Corruption(
          "lineage '" + record_.lineage + "' contradicts itself: it begins with version " +
          std::to_string(record_.origin_version) + " and has version " + std::to_string(version));
    }
    SEGUE_RETURN_IF_ERROR(check(version, manifest.identity.target_digest));
  }
  for (const auto& [version, manifest] : manifests_) {
    SEGUE_RETURN_IF_ERROR(check(manifest.identity.base_version, manifest.identity.base_digest));
  }
  return {};
}

Result<std::vector<std::uint64_t>> Lineage::ListVersions(Store& store, const std::string& name) {
  SEGUE_RETURN_IF_ERROR(CheckLineageName(name));
  SEGUE_ASSIGN_OR_RETURN(UsedNumbers numbers, ListNumbers(store, name));
  return std::move(numbers.versions);
}

Result<std::optional<Lineage>> Lineage::OpenIfThere(Store& store, const std::string& name) {
  Result<Lineage> lineage = Open(store, name);
  if (lineage.ok()) return std::optional(std::move(lineage).value());
  if (lineage.status().code() == StatusCode::kNotFound) return std::optional<Lineage>();
  return lineage.status();
}

Result<VersionFacts> Lineage::Require(std::uint64_t version) const {
  if (const auto facts = Version(version)) return *facts;
  return NotFound("lineage '" + record_.lineage + "' has no version " + std::to_string(version) +
                  "; its newest is " + std::to_string(newest()));
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

std::vector<std::uint64_t> Lineage::FindVersions(const Digest& digest,
                                                 std::uint64_t version_max) const {
  std::set<std::uint64_t, std::greater<>> versions;
  const auto offer = [&](std::uint64_t version, const Digest& candidate) {
    if (candidate == digest && version <= version_max) versions.insert(version);
  };
  offer(record_.origin_version, record_.origin_digest);
  for (const auto& [version, manifest] : manifests_) {
    offer(version, manifest.identity.target_digest);
    offer(manifest.identity.base_version, manifest.identity.base_digest);
  }
  return {versions.begin(), versions.end()};
}

std::optional<std::uint64_t> Lineage::FindVersion(const Digest& digest,
                                                  std::uint64_t version_max) const {
  const auto versions = FindVersions(digest, version_max);
  return versions.empty() ? std::nullopt : std::optional(versions.front());
}

Result<Way> Lineage::FindWay(const Digest& digest, std::uint64_t to) const {
  const auto versions = FindVersions(digest, to);
  if (versions.empty()) {
    return VersionMismatch("digest " + digest.ToHex() + " is no version up to " +
                           std::to_string(to) + " of lineage '" + record_.lineage + "'");
  }
  Status failure;
  for (const std::uint64_t from : versions) {
    Result<std::vector<Manifest>> path = Path(from, to);
    if (path.ok()) return Way{from, std::move(path).value()};
    if (failure.ok()) failure = path.status();
  }
  return failure;
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
    if (identity.base_version < from) return NoWay(identity, from, to);
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

Status Lineage::CheckPlan(Store& store, const Plan& plan, const std::string& name) const {
  if (record_.plan == plan.digest()) return {};
  SEGUE_ASSIGN_OR_RETURN(const Plan known, ReadPlan(store));
  SEGUE_RETURN_IF_ERROR(ComparePlans(known, plan, "lineage '" + record_.lineage + "'", name));
  return Internal("plans agree but their digests do not");
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
