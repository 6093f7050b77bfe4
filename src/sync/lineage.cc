// SPDX-License-Identifier: Apache-2.0
//
// Lineage: listing, checking and walking backwards from the target.
#include "sync/lineage.h"

#include <algorithm>
#include <functional>
#include <set>
#include <tuple>
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

namespace {

Status CheckAnchor(const AnchorRecord& record, const LineageRecord& lineage,
                   const std::string& anchor, const std::string& object) {
  const DeltaIdentity& identity = record.manifest.identity;
  const std::string expected =
      object_name::Anchor(lineage.lineage, anchor, identity.base_version, identity.target_version);
  if (identity.lineage != lineage.lineage || record.anchor != anchor || object != expected) {
    return Corruption("anchor record '" + object + "' is of anchor '" + record.anchor +
                      "' of lineage '" + identity.lineage + "', version " +
                      std::to_string(identity.base_version) + " to " +
                      std::to_string(identity.target_version));
  }
  if (identity.plan == lineage.plan) return {};
  return Corruption("anchor record '" + object + "' has plan " + identity.plan.ToHex() +
                    ", its lineage has " + lineage.plan.ToHex());
}

Result<AnchorRecord> ReadAnchor(Store& store, const LineageRecord& lineage,
                                const std::string& anchor, std::uint64_t base,
                                std::uint64_t target) {
  const std::string name = object_name::Anchor(lineage.lineage, anchor, base, target);
  SEGUE_ASSIGN_OR_RETURN(const ByteVector json, store.Get(name, limits::kManifestSizeMax));
  SEGUE_ASSIGN_OR_RETURN(AnchorRecord record, AnchorRecord::Parse(json, name));
  SEGUE_RETURN_IF_ERROR(CheckAnchor(record, lineage, anchor, name));
  return record;
}

}  // namespace

std::uint64_t PayloadBytes(const Manifest& manifest) {
  std::uint64_t size = 0;
  for (const PayloadEntry& payload : manifest.payloads) size += payload.size;
  return size;
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
  SEGUE_RETURN_IF_ERROR(lineage.ReadManifests(store));
  SEGUE_RETURN_IF_ERROR(lineage.ReadAnchors(store));
  SEGUE_RETURN_IF_ERROR(lineage.CheckAgreement());
  return lineage;
}

Status Lineage::ReadManifests(Store& store) {
  SEGUE_ASSIGN_OR_RETURN(const auto versions, ListVersions(store, record_.lineage));
  for (const std::uint64_t version : versions) {
    Result<Manifest> manifest = ReadManifest(store, record_, version);
    if (manifest.status().code() == StatusCode::kNotFound) continue;
    if (!manifest.ok()) return manifest.status();
    manifests_.emplace(version, std::move(manifest).value());
  }
  return DropGone(store);
}

// One that vanishes meanwhile (renewed, removed) is left out, as versions are.
Status Lineage::ReadAnchors(Store& store) {
  const std::string& name = record_.lineage;
  SEGUE_ASSIGN_OR_RETURN(const auto anchors, store.ListFolders(object_name::AnchorFolders(name)));
  if (anchors.size() > limits::kAnchorCountMax) {
    return ResourceExhausted("lineage '" + name + "' has " + std::to_string(anchors.size()) +
                             " anchors, the limit is " + std::to_string(limits::kAnchorCountMax));
  }
  for (const std::string& anchor : anchors) {
    SEGUE_ASSIGN_OR_RETURN(const auto objects, store.List(object_name::AnchorFolder(name, anchor)));
    for (const std::string& entry : objects) {
      const auto range = object_name::ParseAnchor(entry);
      if (!range) continue;
      Result<AnchorRecord> record = ReadAnchor(store, record_, anchor, range->first, range->second);
      if (record.status().code() == StatusCode::kNotFound) continue;
      if (!record.ok()) return record.status();
      anchors_.push_back(std::move(record).value());
    }
  }
  return {};
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
  for (const Manifest* step : Steps()) {
    SEGUE_RETURN_IF_ERROR(check(step->identity.base_version, step->identity.base_digest));
    SEGUE_RETURN_IF_ERROR(check(step->identity.target_version, step->identity.target_digest));
  }
  return {};
}

std::vector<const Manifest*> Lineage::Steps() const {
  std::vector<const Manifest*> steps;
  steps.reserve(manifests_.size() + anchors_.size());
  for (const auto& [version, manifest] : manifests_) steps.push_back(&manifest);
  for (const AnchorRecord& anchor : anchors_) steps.push_back(&anchor.manifest);
  return steps;
}

std::map<std::string, AnchorRecord> Lineage::CurrentAnchors() const {
  std::map<std::string, AnchorRecord> current;
  const auto rank = [](const AnchorRecord& record) {
    return std::pair(record.manifest.identity.target_version,
                     record.manifest.identity.base_version);
  };
  for (const AnchorRecord& anchor : anchors_) {
    const auto [known, added] = current.emplace(anchor.anchor, anchor);
    if (!added && rank(anchor) > rank(known->second)) known->second = anchor;
  }
  return current;
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
  const char* const why = version < newest() ? " (pruned, or never published)" : "";
  return NotFound("lineage '" + record_.lineage + "' has no version " + std::to_string(version) +
                  why + "; its newest is " + std::to_string(newest()));
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
  for (const Manifest* step : Steps()) {
    const DeltaIdentity& identity = step->identity;
    if (identity.base_version == version) {
      return VersionFacts{identity.base_digest, identity.base_layout};
    }
    if (identity.target_version == version) {
      return VersionFacts{identity.target_digest, identity.target_layout};
    }
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
  for (const Manifest* step : Steps()) {
    offer(step->identity.target_version, step->identity.target_digest);
    offer(step->identity.base_version, step->identity.base_digest);
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
    if (const auto later = FindVersion(digest, UINT64_MAX)) {
      return VersionMismatch("version " + std::to_string(*later) + " of lineage '" +
                             record_.lineage + "' does not lead back to " + std::to_string(to) +
                             ": Segue only goes forward; rebuild from a checkpoint of version " +
                             std::to_string(to) + " or of an earlier one");
    }
    return VersionMismatch("digest " + digest.ToHex() + " is no version up to " +
                           std::to_string(to) + " of lineage '" + record_.lineage + "'");
  }
  if (auto way = FindCheapest(versions, to)) return std::move(*way);
  return WhyNoWay(versions.front(), to);
}

Result<std::vector<Manifest>> Lineage::Path(std::uint64_t from, std::uint64_t to) const {
  if (auto way = FindCheapest({from}, to)) return std::move(way->manifests);
  return WhyNoWay(from, to);
}

// Every step leads to a higher version, so one walk over the steps in the order of their targets
// knows the cheapest way to each.
std::optional<Way> Lineage::FindCheapest(const std::vector<std::uint64_t>& from,
                                         std::uint64_t to) const {
  struct Best {
    std::uint64_t bytes = 0;
    std::uint64_t steps = 0;
    const Manifest* last = nullptr;  // Null where the way begins.
  };
  std::map<std::uint64_t, Best> best;
  for (const std::uint64_t version : from) best.emplace(version, Best());
  std::vector<const Manifest*> steps = Steps();
  std::stable_sort(steps.begin(), steps.end(), [](const Manifest* a, const Manifest* b) {
    return a->identity.target_version < b->identity.target_version;
  });
  for (const Manifest* step : steps) {
    const auto base = best.find(step->identity.base_version);
    if (base == best.end() || step->payloads.empty()) continue;
    const Best way = {base->second.bytes + PayloadBytes(*step), base->second.steps + 1, step};
    if (way.steps > limits::kChainLengthMax) continue;
    const auto [known, added] = best.emplace(step->identity.target_version, way);
    const Best& other = known->second;
    if (!added && std::tie(way.bytes, way.steps) < std::tie(other.bytes, other.steps)) {
      known->second = way;
    }
  }
  if (!best.contains(to)) return std::nullopt;
  Way way{to, {}};
  for (const Manifest* last = best[to].last; last != nullptr; last = best[way.from].last) {
    way.manifests.push_back(*last);
    way.from = last->identity.base_version;
  }
  std::reverse(way.manifests.begin(), way.manifests.end());
  return way;
}

// Backwards from the target: the first version that is missing, or that passes `from` by.
Status Lineage::WhyNoWay(std::uint64_t from, std::uint64_t to) const {
  std::uint64_t version = to;
  for (std::uint64_t steps = 0; version != from; ++steps) {
    const auto found = manifests_.find(version);
    if (found == manifests_.end() || steps == limits::kChainLengthMax) break;
    const DeltaIdentity& identity = found->second.identity;
    if (identity.base_version < from) return NoWay(identity, from, to);
    version = identity.base_version;
  }
  return NotFound("version " + std::to_string(version) + " of lineage '" + record_.lineage +
                  "' is missing (pruned, or never published); it is needed to reach version " +
                  std::to_string(to) + " from " + std::to_string(from));
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
