// SPDX-License-Identifier: Apache-2.0
//
// Anchor keeper. The order is that of a version: payload, record, and only then the removal of what
// was there before, so that an anchor's way is open at every moment.
#include "sync/anchors.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "base/file.h"
#include "base/limits.h"
#include "base/scratch_directory.h"
#include "segue/anchors.h"
#include "store/signed_store.h"
#include "sync/fetch.h"

namespace segue {
namespace {

constexpr char kBaseName[] = "base";
constexpr std::uint64_t kUploadPieceSize = 8ull << 20;

Status CheckAnchorName(const std::string& name) {
  const Status status = CheckLineageName(name);
  return status.ok() ? status : status.WithContext("the name of an anchor");
}

}  // namespace

AnchorReport ReportOf(const AnchorRecord& record) {
  const DeltaIdentity& identity = record.manifest.identity;
  AnchorReport report;
  report.name = record.anchor;
  report.version = identity.base_version;
  report.target_version = identity.target_version;
  report.digest = identity.base_digest.ToHex();
  report.payload_bytes = PayloadBytes(record.manifest);
  report.changed_chunks = identity.changed_chunks;
  report.changed_elements = identity.changed_elements;
  return report;
}

Status CheckAnchorWishes(const Lineage* lineage, const std::vector<AnchorWish>& wishes,
                         std::optional<std::uint64_t> target) {
  const auto current =
      lineage != nullptr ? lineage->CurrentAnchors() : std::map<std::string, AnchorRecord>();
  std::size_t count = current.size();
  for (const AnchorWish& wish : wishes) {
    SEGUE_RETURN_IF_ERROR(CheckAnchorName(wish.name));
    const bool is_new = !current.contains(wish.name);
    count += is_new ? 1 : 0;
    if (!wish.version) {
      if (!is_new || wish.name == kBaseName) continue;
      return InvalidArgument("anchor '" + wish.name + "' is new: say at which version it is (" +
                             wish.name + "=VERSION)");
    }
    if (target && *wish.version == *target) continue;
    if (lineage == nullptr) {
      // A lineage to come begins with the version before its first.
      if (*wish.version == 0) continue;
      return NotFound("anchor '" + wish.name + "': there is no version " +
                      std::to_string(*wish.version) + " yet");
    }
    Status way = lineage->Require(*wish.version).status();
    if (way.ok()) way = lineage->Path(*wish.version, lineage->newest()).status();
    if (!way.ok()) return way.WithContext("anchor '" + wish.name + "'");
  }
  if (count <= limits::kAnchorCountMax) return {};
  return ResourceExhausted("lineage would have " + std::to_string(count) +
                           " anchors, the limit is " + std::to_string(limits::kAnchorCountMax));
}

std::vector<AnchorReport> AnchorKeeper::RenewAll(const std::vector<AnchorWish>& wishes,
                                                 std::vector<std::string>& warnings) {
  std::map<std::string, AnchorWish> all;
  const auto current = lineage_.CurrentAnchors();
  for (const auto& [name, record] : current) all.emplace(name, AnchorWish{name, std::nullopt});
  for (const AnchorWish& wish : wishes) all.insert_or_assign(wish.name, wish);
  std::vector<AnchorRecord> renewed;
  std::vector<AnchorReport> reports;
  for (const auto& [name, wish] : all) {
    Result<AnchorRecord> record = Renew(wish);
    if (record.ok()) {
      reports.push_back(ReportOf(record.value()));
      renewed.push_back(std::move(record).value());
      continue;
    }
    warnings.push_back("anchor '" + name + "' could not be brought to version " +
                       std::to_string(lineage_.newest()) + ": " + record.status().message());
    if (const auto known = current.find(name); known != current.end()) {
      reports.push_back(ReportOf(known->second));
    }
  }
  for (const AnchorRecord& record : renewed) {
    const Status status = RemoveOthers(record);
    if (!status.ok()) {
      warnings.push_back("what anchor '" + record.anchor +
                         "' had before stays: " + status.message());
    }
  }
  return reports;
}

Result<std::uint64_t> AnchorKeeper::BaseOf(const AnchorWish& wish) const {
  if (wish.version) return *wish.version;
  const auto current = lineage_.CurrentAnchors();
  const auto known = current.find(wish.name);
  if (known != current.end()) return known->second.manifest.identity.base_version;
  if (wish.name == kBaseName) return lineage_.record().origin_version;
  return InvalidArgument("anchor '" + wish.name + "' is new and has no version");
}

Result<AnchorRecord> AnchorKeeper::Renew(const AnchorWish& wish) {
  SEGUE_RETURN_IF_ERROR(CheckAnchorName(wish.name));
  SEGUE_ASSIGN_OR_RETURN(const std::uint64_t base, BaseOf(wish));
  for (const AnchorRecord& known : lineage_.anchors()) {
    const DeltaIdentity& identity = known.manifest.identity;
    const bool is_it = known.anchor == wish.name && identity.base_version == base &&
                       identity.target_version == lineage_.newest();
    if (is_it) return known;
  }
  return Make(wish.name, base);
}

Status AnchorKeeper::RemoveOthers(const AnchorRecord& kept) {
  return RemoveAllBut(kept.anchor, &kept);
}

// Payload and record of an anchor from `base` to the newest version, durable in the store.
Result<AnchorRecord> AnchorKeeper::Make(const std::string& name, std::uint64_t base) {
  const std::uint64_t target = lineage_.newest();
  SEGUE_ASSIGN_OR_RETURN(const std::vector<Manifest> way, lineage_.Path(base, target));
  SEGUE_ASSIGN_OR_RETURN(const VersionFacts from, lineage_.Require(base));
  SEGUE_ASSIGN_OR_RETURN(const VersionFacts to, lineage_.Require(target));
  AnchorRecord record;
  record.anchor = name;
  DeltaIdentity& identity = record.manifest.identity;
  identity.lineage = lineage_.record().lineage;
  identity.base_version = base;
  identity.target_version = target;
  identity.plan = lineage_.record().plan;
  identity.base_layout = from.layout;
  identity.target_layout = to.layout;
  identity.base_digest = from.digest;
  identity.target_digest = to.digest;
  identity.profile = way.empty() ? "" : way.back().identity.profile;
  SEGUE_ASSIGN_OR_RETURN(const Plan plan, lineage_.ReadPlan(store_));
  record.manifest.model_bytes = plan.model_size();
  if (!way.empty()) SEGUE_RETURN_IF_ERROR(Join(plan, way, record));
  const std::string object = object_name::Anchor(identity.lineage, name, base, target);
  SEGUE_ASSIGN_OR_RETURN(const PutOutcome put,
                         store_.PutIfAbsent(object, AsBytes(record.ToJson())));
  if (put == PutOutcome::kCreated) return record;
  // Another publisher has made it at the same time; the content may be encoded otherwise.
  SEGUE_ASSIGN_OR_RETURN(const ByteVector json, store_.Get(object, limits::kManifestSizeMax));
  return AnchorRecord::Parse(json, object);
}

// The way's deltas as one, uploaded.
Status AnchorKeeper::Join(const Plan& plan, const std::vector<Manifest>& way,
                          AnchorRecord& record) {
  SEGUE_ASSIGN_OR_RETURN(const ScratchDirectory scratch, ScratchDirectory::Make("", "segue"));
  SEGUE_ASSIGN_OR_RETURN(const FetchedDelta joined,
                         FetchChain(store_, plan, way, scratch.path(), threads_, {}));
  DeltaIdentity& identity = record.manifest.identity;
  if (joined.staged.difference() != identity.target_digest - identity.base_digest) {
    return Corruption("the deltas do not lead from version " +
                      std::to_string(identity.base_version) + " to version " +
                      std::to_string(identity.target_version));
  }
  identity.changed_chunks = joined.staged.rows().size();
  identity.changed_elements = joined.staged.changed_elements();
  PayloadEntry payload;
  payload.size = joined.size;
  payload.sha256 = joined.sha256;
  payload.rows = joined.staged.rows().size();
  payload.object =
      object_name::AnchorPayload(identity.lineage, record.anchor, identity.base_version,
                                 identity.target_version, joined.sha256);
  SEGUE_RETURN_IF_ERROR(Upload(joined.path, payload));
  record.manifest.payloads.push_back(std::move(payload));
  return {};
}

Status AnchorKeeper::Upload(const std::string& path, PayloadEntry& payload) {
  SEGUE_ASSIGN_OR_RETURN(const MappedFile file, MappedFile::Open(path));
  SEGUE_ASSIGN_OR_RETURN(const auto writer, store_.StartWrite());
  const ByteSpan bytes = file.bytes();
  for (std::uint64_t offset = 0; offset < bytes.size(); offset += kUploadPieceSize) {
    const std::uint64_t size = std::min<std::uint64_t>(kUploadPieceSize, bytes.size() - offset);
    SEGUE_RETURN_IF_ERROR(writer->Append(bytes.subspan(offset, size)));
  }
  return writer->Commit(payload.object).status();
}

// What stays beside the anchor's record: the one before it. Somebody may be fetching that.
std::optional<std::uint64_t> AnchorKeeper::TargetBefore(const AnchorRecord& kept) const {
  std::optional<std::uint64_t> before;
  for (const AnchorRecord& known : lineage_.anchors()) {
    const DeltaIdentity& identity = known.manifest.identity;
    const bool is_before = known.anchor == kept.anchor &&
                           identity.base_version == kept.manifest.identity.base_version &&
                           identity.target_version < kept.manifest.identity.target_version;
    if (is_before && identity.target_version >= before.value_or(0))
      before = identity.target_version;
  }
  return before;
}

// Records first: nobody starts on an anchor whose payloads are about to go.
Status AnchorKeeper::RemoveAllBut(const std::string& name, const AnchorRecord* kept) {
  const std::string& lineage = lineage_.record().lineage;
  const std::string folder = object_name::AnchorFolder(lineage, name);
  std::set<std::string> stays;  // Records, and their payloads' folders.
  if (kept != nullptr) {
    const std::uint64_t base = kept->manifest.identity.base_version;
    for (const auto target :
         {std::optional(kept->manifest.identity.target_version), TargetBefore(*kept)}) {
      if (!target) continue;
      stays.insert(object_name::Anchor(lineage, name, base, *target));
      stays.insert(object_name::AnchorPayloadFolder(lineage, name, base, *target));
    }
  }
  SEGUE_ASSIGN_OR_RETURN(const auto records, store_.List(folder));
  for (const std::string& record : records) {
    const std::string object = JoinPath(folder, record);
    if (!stays.contains(object)) SEGUE_RETURN_IF_ERROR(store_.Delete(object));
  }
  SEGUE_ASSIGN_OR_RETURN(const auto folders, store_.ListFolders(folder));
  for (const std::string& payloads : folders) {
    const std::string below = JoinPath(folder, payloads);
    if (stays.contains(below)) continue;
    SEGUE_ASSIGN_OR_RETURN(const auto objects, store_.List(below));
    for (const std::string& object : objects) {
      SEGUE_RETURN_IF_ERROR(store_.Delete(JoinPath(below, object)));
    }
  }
  return {};
}

Status AnchorKeeper::Remove(const std::string& name) {
  SEGUE_RETURN_IF_ERROR(CheckAnchorName(name));
  if (!lineage_.CurrentAnchors().contains(name)) {
    return NotFound("lineage '" + lineage_.record().lineage + "' has no anchor '" + name + "'");
  }
  return RemoveAllBut(name, nullptr);
}

Result<std::vector<AnchorReport>> UpdateAnchors(const AnchorOptions& options) {
  SEGUE_ASSIGN_OR_RETURN(auto opened, OpenStore(options.store, /*create=*/false));
  const bool only_reads = options.set.empty() && options.remove.empty();
  SEGUE_ASSIGN_OR_RETURN(const auto store, only_reads
                                               ? WithKeys(std::move(opened), options.keys)
                                               : WithWriterKeys(std::move(opened), options.keys));
  SEGUE_ASSIGN_OR_RETURN(Lineage lineage, Lineage::Open(*store, options.lineage));
  SEGUE_RETURN_IF_ERROR(CheckAnchorWishes(&lineage, options.set, std::nullopt));
  AnchorKeeper keeper(*store, lineage, options.threads);
  std::vector<AnchorRecord> renewed;
  for (const AnchorWish& wish : options.set) {
    SEGUE_ASSIGN_OR_RETURN(AnchorRecord record, keeper.Renew(wish));
    renewed.push_back(std::move(record));
  }
  for (const AnchorRecord& record : renewed) SEGUE_RETURN_IF_ERROR(keeper.RemoveOthers(record));
  for (const std::string& name : options.remove) SEGUE_RETURN_IF_ERROR(keeper.Remove(name));
  SEGUE_ASSIGN_OR_RETURN(lineage, Lineage::Open(*store, options.lineage));
  std::vector<AnchorReport> reports;
  for (const auto& [name, record] : lineage.CurrentAnchors()) reports.push_back(ReportOf(record));
  return reports;
}

}  // namespace segue
