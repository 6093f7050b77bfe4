// SPDX-License-Identifier: Apache-2.0
//
// Version commit. Until PutManifest() nothing is visible, and a failure leaves no version.
#include "sync/version_commit.h"

#include <algorithm>
#include <chrono>
#include <iterator>
#include <tuple>
#include <utility>

#include "base/limits.h"
#include "delta/profile.h"
#include "sync/anchors.h"
#include "sync/owners.h"
#include "sync/prune.h"
#include "sync/stopwatch.h"
#include "sync/version_choice.h"

namespace segue {
namespace {

// Temporaries of this age were left by a publisher that died: none waits so long between two
// writes.
constexpr std::chrono::hours kStaleAge{24};

Status CheckOwners(const PublishOptions& options) {
  if (options.owner_count == 0 || options.owner_count > limits::kOwnerCountMax ||
      options.owner >= options.owner_count) {
    return InvalidArgument("owner " + std::to_string(options.owner) + " of " +
                           std::to_string(options.owner_count) +
                           " does not exist: they are numbered from 0, and --owners (in Python "
                           "owners) says how many there are");
  }
  if (options.owner_count == 1) return {};
  if (!options.version) {
    return InvalidArgument(
        "several owners need to agree on the version: name it (--version; in Python step)");
  }
  if (options.session.empty()) {
    return InvalidArgument(
        "several owners need a session: a name that they share, new for each attempt "
        "(--session; in Python session)");
  }
  const Status session = CheckLineageName(options.session);
  return session.ok() ? session : session.WithContext("the session of several owners (--session)");
}

}  // namespace

Status CheckPublishOptions(const PublishOptions& options) {
  SEGUE_RETURN_IF_ERROR(CheckLineageName(options.lineage));
  if (!ProfileFromName(options.profile)) {
    return InvalidArgument("profile '" + options.profile +
                           "' is not known; known are sparse-zstd, snappy-zstd, lz4-zstd, zstd");
  }
  if (options.version && *options.version > limits::kVersionMax) {
    return InvalidArgument("version " + std::to_string(*options.version) +
                           " is over the limit of " + std::to_string(limits::kVersionMax));
  }
  return CheckOwners(options);
}

void PendingVersion::SetPayload(std::uint32_t owner, const PayloadSummary& summary,
                                Digest base_digest, Digest target_digest) {
  payload.owner = owner;
  payload.size = summary.size;
  payload.sha256 = summary.sha256;
  payload.rows = summary.row_count;
  identity.base_digest = base_digest;
  identity.target_digest = target_digest;
  identity.changed_chunks = summary.row_count;
  identity.changed_elements = summary.changed_elements;
}

// The numbers are what the owners' records need; the true ones follow from the digests.
Status VersionCommit::ChooseNumbers(DeltaIdentity& identity) const {
  SEGUE_RETURN_IF_ERROR(CheckWantedVersion(lineage_, options_));
  const std::uint64_t newest = lineage_ != nullptr ? lineage_->newest() : 0;
  identity.lineage = options_.lineage;
  identity.target_version = options_.version.value_or(newest + 1);
  identity.base_version = std::min(newest, identity.target_version - 1);
  identity.plan = plan_.digest();
  identity.profile = options_.profile;
  if (options_.owner != 0) return {};
  return CheckAnchorWishes(lineage_, options_.anchors, identity.target_version);
}

Result<bool> VersionCommit::IsThereAlready(const PendingVersion& pending) {
  DeltaIdentity identity = pending.identity;
  std::tie(identity.base_digest, identity.target_digest) = *pending.whole;
  SEGUE_ASSIGN_OR_RETURN(const VersionChoice choice, ChooseVersion(lineage_, options_, identity));
  if (choice.already_published) FillReportOf(lineage_->manifests().at(choice.target));
  return choice.already_published;
}

void VersionCommit::FillReportOf(const Manifest& manifest) {
  std::uint64_t payload_bytes = 0;
  for (const PayloadEntry& entry : manifest.payloads) payload_bytes += entry.size;
  FillReport(manifest.identity, payload_bytes);
  report_.already_published = true;
  report_.committed = true;
}

bool VersionCommit::WasThere() const {
  return lineage_ != nullptr && options_.version &&
         lineage_->manifests().contains(*options_.version);
}

Status VersionCommit::Run(PendingVersion& pending) {
  return options_.owner == 0 ? MakeVisible(pending) : HandIn(pending);
}

Status VersionCommit::HandIn(PendingVersion& pending) {
  SEGUE_RETURN_IF_ERROR(CommitPayload(pending));
  OwnerExchange owners(store_, options_, environment_);
  if (pending.tensors != nullptr) owners.SetCoverage(plan_, *pending.tensors);
  if (pending.whole) owners.SetWhole(*pending.whole);
  SEGUE_RETURN_IF_ERROR(owners.HandInUntilVisible(pending.identity, pending.payload, WasThere()));
  report_.committed = true;
  if (pending.whole) {
    std::tie(pending.identity.base_digest, pending.identity.target_digest) = *pending.whole;
  }
  FillReport(pending.identity, pending.payload.size);
  return {};
}

Status VersionCommit::MakeVisible(PendingVersion& pending) {
  DeltaIdentity& identity = pending.identity;
  Manifest manifest;
  manifest.model_bytes = plan_.model_size();
  manifest.payloads.push_back(pending.payload);
  OwnerExchange owners(store_, options_, environment_);
  if (pending.tensors != nullptr) owners.SetCoverage(plan_, *pending.tensors);
  if (options_.owner_count > 1) SEGUE_RETURN_IF_ERROR(owners.OpenRound());
  SEGUE_RETURN_IF_ERROR(owners.Collect(identity, manifest.payloads));
  if (pending.whole && *pending.whole != std::pair(identity.base_digest, identity.target_digest)) {
    return InvalidArgument("the owners handed in other digests than they have settled on");
  }
  SEGUE_ASSIGN_OR_RETURN(VersionChoice choice, ChooseVersion(lineage_, options_, identity));
  identity.base_version = choice.base;
  identity.target_version = choice.target;
  // A layout that was taken from the lineage is that of the version it turned out to be.
  if (lineage_ != nullptr && pending.base_layout == nullptr) {
    if (const auto facts = lineage_->Version(choice.base)) identity.base_layout = facts->layout;
  }
  if (!choice.warning.empty()) report_.warnings.push_back(std::move(choice.warning));
  if (choice.already_published) {
    pending.writer.reset();
    FillReportOf(lineage_->manifests().at(choice.target));
    owners.RemoveRecords(report_.warnings);
    return {};
  }
  SEGUE_RETURN_IF_ERROR(CommitPayload(pending));
  manifest.payloads.front() = pending.payload;
  SEGUE_RETURN_IF_ERROR(PutPlanAndLayouts(pending));
  SEGUE_RETURN_IF_ERROR(PutLineage(identity));
  manifest.identity = identity;
  SEGUE_RETURN_IF_ERROR(PutManifest(manifest));
  std::uint64_t payload_bytes = 0;
  for (const PayloadEntry& entry : manifest.payloads) payload_bytes += entry.size;
  FillReport(identity, payload_bytes);
  report_.committed = true;
  owners.RemoveRecords(report_.warnings);
  return {};
}

// Gives the payload its name.
Status VersionCommit::CommitPayload(PendingVersion& pending) {
  if (pending.writer == nullptr) return {};  // Done before.
  PayloadEntry& payload = pending.payload;
  payload.object = object_name::Payload(options_.lineage, pending.identity.target_version,
                                        options_.owner, options_.owner_count, payload.sha256);
  // A leftover of the same name has the same content: the name carries its hash.
  SEGUE_ASSIGN_OR_RETURN(const PutOutcome outcome, pending.writer->Commit(payload.object));
  pending.writer.reset();
  if (outcome == PutOutcome::kCreated) report_.published_bytes += payload.size;
  return {};
}

Status VersionCommit::PutObject(const std::string& name, ByteSpan bytes) {
  SEGUE_ASSIGN_OR_RETURN(const PutOutcome outcome, store_.PutIfAbsent(name, bytes));
  if (outcome == PutOutcome::kCreated) report_.published_bytes += bytes.size();
  return {};
}

Status VersionCommit::PutPlanAndLayouts(const PendingVersion& pending) {
  SEGUE_RETURN_IF_ERROR(
      PutObject(object_name::Plan(options_.lineage, plan_.digest()), plan_.object()));
  SEGUE_RETURN_IF_ERROR(PutLayout(pending.base_layout));
  if (pending.identity.target_layout == pending.identity.base_layout) return {};
  return PutLayout(pending.target_layout);
}

Status VersionCommit::PutLayout(const Layout* layout) {
  if (layout == nullptr) return {};
  SEGUE_ASSIGN_OR_RETURN(const ByteVector object, layout->MakeObject());
  return PutObject(object_name::Layout(options_.lineage, layout->digest()), object);
}

LineageRecord VersionCommit::RecordFor(const DeltaIdentity& identity) const {
  if (lineage_ != nullptr) return lineage_->record();
  LineageRecord record;
  record.lineage = options_.lineage;
  record.origin_version = identity.base_version;
  record.origin_digest = identity.base_digest;
  record.plan = identity.plan;
  record.layout = identity.base_layout;
  return record;
}

Status VersionCommit::PutLineage(const DeltaIdentity& identity) {
  if (lineage_ != nullptr) return {};
  const LineageRecord record = RecordFor(identity);
  const std::string name = object_name::Lineage(options_.lineage);
  SEGUE_ASSIGN_OR_RETURN(const PutOutcome outcome,
                         store_.PutIfAbsent(name, AsBytes(record.ToJson())));
  if (outcome == PutOutcome::kCreated) return {};
  SEGUE_ASSIGN_OR_RETURN(const ByteVector json, store_.Get(name, limits::kManifestSizeMax));
  SEGUE_ASSIGN_OR_RETURN(const LineageRecord found, LineageRecord::Parse(json, name));
  if (found == record) return {};
  return InvalidArgument("lineage '" + options_.lineage +
                         "' was created by another publisher meanwhile, from another base");
}

Status VersionCommit::PutManifest(const Manifest& manifest) {
  const DeltaIdentity& identity = manifest.identity;
  const std::string json = manifest.ToJson();
  const std::string name = object_name::Version(options_.lineage, identity.target_version);
  SEGUE_ASSIGN_OR_RETURN(const PutOutcome outcome, store_.PutIfAbsent(name, AsBytes(json)));
  if (outcome == PutOutcome::kCreated) {
    report_.published_bytes += json.size();
    return CheckNotGone(identity);
  }
  SEGUE_ASSIGN_OR_RETURN(const Manifest found,
                         ReadManifest(store_, RecordFor(identity), identity.target_version));
  if (!IsSameStep(found.identity, identity)) return VersionIsTaken(found.identity, identity);
  report_.already_published = true;
  return CheckNotGone(identity);
}

// The number was free when this publish began. If it has been used and pruned since, the manifest
// is there and is no version.
Status VersionCommit::CheckNotGone(const DeltaIdentity& identity) {
  SEGUE_ASSIGN_OR_RETURN(const UsedNumbers numbers, ListNumbers(store_, options_.lineage));
  const auto& gone = numbers.gone;
  if (!std::binary_search(gone.begin(), gone.end(), identity.target_version)) return {};
  return InvalidArgument(
      "version " + std::to_string(identity.target_version) + " of lineage '" + options_.lineage +
      "' was published by somebody else and pruned meanwhile: publish from the newest "
      "version's weights");
}

void VersionCommit::FillReport(const DeltaIdentity& identity, std::uint64_t payload_bytes) {
  report_.lineage = identity.lineage;
  report_.base_version = identity.base_version;
  report_.target_version = identity.target_version;
  report_.base_digest = identity.base_digest.ToHex();
  report_.target_digest = identity.target_digest.ToHex();
  report_.model_bytes = plan_.model_size();
  report_.payload_bytes = payload_bytes;
  report_.changed_chunks = identity.changed_chunks;
  report_.changed_elements = identity.changed_elements;
}

void VersionCommit::RenewAnchors() {
  const bool has_anchors = lineage_ != nullptr && !lineage_->anchors().empty();
  if (!has_anchors && options_.anchors.empty()) return;
  Stopwatch watch;
  const Result<Lineage> now = Lineage::Open(store_, options_.lineage);
  if (now.ok()) {
    report_.anchors = AnchorKeeper(store_, now.value(), options_.threads)
                          .RenewAll(options_.anchors, report_.warnings);
  } else {
    report_.warnings.push_back("anchors were not renewed: " + now.status().message());
  }
  report_.anchor_s = watch.Lap();
}

// Anchors come before the pruning of what their ways still go through.
void VersionCommit::CleanUp(const PendingVersion& pending) {
  std::vector<std::string>& warnings = report_.warnings;
  RenewAnchors();
  if (options_.retain != 0) {
    PruneReport pruned = PruneVersions(store_, RecordFor(pending.identity), options_.retain);
    report_.pruned = std::move(pruned.pruned);
    std::move(pruned.warnings.begin(), pruned.warnings.end(), std::back_inserter(warnings));
  }
  const Status status = store_.RemoveStaleTemporaries(kStaleAge);
  if (!status.ok()) warnings.push_back("old temporaries stay: " + status.message());
}

}  // namespace segue
