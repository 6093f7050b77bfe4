// SPDX-License-Identifier: Apache-2.0
//
// Owners. Owner 0 looks for names rather than waiting on a lock: a store has no other way.
#include "sync/owners.h"

#include <algorithm>
#include <chrono>

#include "base/limits.h"
#include "sync/lineage.h"

namespace segue {
namespace {

// How often owner 0 looks for the others' records.
constexpr auto kOwnerPollInterval = std::chrono::milliseconds(50);

}  // namespace

bool HoldsPayload(const Manifest& manifest, const PayloadEntry& payload,
                  const std::optional<std::pair<Digest, Digest>>& whole) {
  const DeltaIdentity& identity = manifest.identity;
  if (whole && *whole != std::pair(identity.base_digest, identity.target_digest)) return false;
  if (payload.owner >= manifest.payloads.size()) return false;
  const PayloadEntry& found = manifest.payloads[payload.owner];
  return found.size == payload.size && found.sha256 == payload.sha256;
}

void OwnerExchange::SetCoverage(const Plan& plan, const TensorSet& tensors) {
  plan_ = &plan;
  tensors_ = &tensors;
}

std::string OwnerExchange::Folder() const {
  return object_name::OwnerFolder(options_.lineage, *options_.version, options_.session);
}

std::string OwnerExchange::RecordName(std::uint32_t owner) const {
  return object_name::Owner(options_.lineage, *options_.version, options_.session, owner,
                            options_.owner_count, round_);
}

Status OwnerExchange::OpenRound() {
  round_ = object_name::RoundName(environment_.RandomNumber());
  const std::string mark =
      object_name::Round(options_.lineage, *options_.version, options_.session, round_);
  SEGUE_ASSIGN_OR_RETURN(const PutOutcome outcome, store_.PutIfAbsent(mark, {}));
  if (outcome == PutOutcome::kCreated) return {};
  return Internal("round '" + mark + "' was there: a number drawn at random came twice");
}

Status OwnerExchange::HandIn(const DeltaIdentity& identity, const PayloadEntry& payload) {
  OwnerRecord record;
  record.identity = identity;
  record.owner_count = options_.owner_count;
  record.payload = payload;
  if (tensors_ != nullptr) record.tensors = tensors_->ToHex();
  record.round = round_;
  const std::string name = RecordName(options_.owner);
  SEGUE_ASSIGN_OR_RETURN(const PutOutcome outcome,
                         store_.PutIfAbsent(name, AsBytes(record.ToJson())));
  if (outcome == PutOutcome::kCreated) return {};
  SEGUE_ASSIGN_OR_RETURN(const ByteVector json, store_.Get(name, limits::kManifestSizeMax));
  SEGUE_ASSIGN_OR_RETURN(const OwnerRecord found, OwnerRecord::Parse(json, name));
  if (found == record) return {};
  return InvalidArgument(
      "owner record '" + name +
      "' exists with other content; use a new name of the session (--session; in "
      "Python session)");
}

Status OwnerExchange::WaitFor(std::uint32_t owner, Deadline deadline) {
  const std::string file = RecordName(owner).substr(Folder().size() + 1);
  for (;;) {
    SEGUE_ASSIGN_OR_RETURN(const auto names, store_.List(Folder()));
    if (std::find(names.begin(), names.end(), file) != names.end()) return {};
    if (environment_.Now() >= deadline) break;
    environment_.Sleep(kOwnerPollInterval, {});
  }
  return Unavailable("owner " + std::to_string(owner) + " of " +
                     std::to_string(options_.owner_count) + " has not handed in version " +
                     std::to_string(*options_.version) + " within " +
                     std::to_string(static_cast<long>(options_.owner_timeout_seconds)) +
                     " s; no version was published");
}

Status OwnerExchange::Collect(DeltaIdentity& identity, std::vector<PayloadEntry>& payloads) {
  Status collected = CollectAll(identity, payloads);
  if (round_.empty()) return collected;
  // A mark that stays costs each owner a record the next time, and misleads nobody.
  (void)store_.Delete(
      object_name::Round(options_.lineage, *options_.version, options_.session, round_));
  return collected;
}

Status OwnerExchange::CollectAll(DeltaIdentity& identity, std::vector<PayloadEntry>& payloads) {
  // One for all of them together.
  const Deadline deadline = DeadlineIn(options_.owner_timeout_seconds);
  if (tensors_ != nullptr) covered_ = *tensors_;
  for (std::uint32_t owner = 1; owner < options_.owner_count; ++owner) {
    SEGUE_RETURN_IF_ERROR(WaitFor(owner, deadline));
    const std::string name = RecordName(owner);
    SEGUE_ASSIGN_OR_RETURN(const ByteVector json, store_.Get(name, limits::kManifestSizeMax));
    SEGUE_ASSIGN_OR_RETURN(const OwnerRecord record, OwnerRecord::Parse(json, name));
    SEGUE_RETURN_IF_ERROR(Add(record, owner, identity, payloads));
    SEGUE_RETURN_IF_ERROR(AddCoverage(record));
  }
  if (plan_ == nullptr) return {};
  const auto missing = covered_.FirstMissing(*plan_);
  if (!missing) return {};
  return InvalidArgument("tensor '" + plan_->tensors()[*missing].spec.name +
                         "' belongs to none of the " + std::to_string(options_.owner_count) +
                         " owners; no version was published");
}

// The record's tensors beside those of the owners before it.
Status OwnerExchange::AddCoverage(const OwnerRecord& record) {
  const std::string who = "owner " + std::to_string(record.payload.owner);
  if (record.tensors.empty() != (plan_ == nullptr)) {
    return InvalidArgument(who + (plan_ == nullptr ? " names the tensors that it covers, owner 0 "
                                                     "covers its share of the chunks"
                                                   : " does not name the tensors that it covers"));
  }
  if (plan_ == nullptr) return {};
  const auto tensors = TensorSet::FromHex(record.tensors, plan_->tensors().size());
  if (!tensors) {
    return Corruption("owner record '" + RecordName(record.payload.owner) +
                      "': key 'tensors' is no set of the plan's " +
                      std::to_string(plan_->tensors().size()) + " tensors");
  }
  const auto twice = covered_.Merge(*tensors);
  if (!twice) return {};
  return InvalidArgument("tensor '" + plan_->tensors()[*twice].spec.name + "' belongs to " + who +
                         " and to one before it; no version was published");
}

OwnerExchange::Deadline OwnerExchange::DeadlineIn(double seconds) const {
  return environment_.Now() +
         std::chrono::duration_cast<Deadline::duration>(std::chrono::duration<double>(seconds));
}

Status OwnerExchange::HandInUntilVisible(const DeltaIdentity& identity, const PayloadEntry& payload,
                                         bool was_there) {
  // Owner 0 may begin to wait for the slowest one only after this owner does.
  const Deadline deadline = DeadlineIn(2 * options_.owner_timeout_seconds);
  std::set<std::string> answered;
  for (;;) {
    // Only a version to which something was handed in is ours; looked for first, since the round is
    // closed by then.
    if (!answered.empty()) {
      SEGUE_ASSIGN_OR_RETURN(const bool visible,
                             was_there ? IsTakenAway() : IsVisible(identity, payload));
      if (visible) return {};
    }
    SEGUE_RETURN_IF_ERROR(HandInToRounds(identity, payload, answered));
    if (environment_.Now() >= deadline) break;
    environment_.Sleep(kOwnerPollInterval, {});
  }
  return Unavailable("owner 0 of " + std::to_string(options_.owner_count) +
                     " has not made version " + std::to_string(*options_.version) + " visible: " +
                     (answered.empty() ? "it has not asked for what the owners have"
                                       : "an owner is missing, or owner 0 has failed"));
}

// Each round once. One that is over costs a record that nobody reads.
Status OwnerExchange::HandInToRounds(const DeltaIdentity& identity, const PayloadEntry& payload,
                                     std::set<std::string>& answered) {
  SEGUE_ASSIGN_OR_RETURN(const auto names, store_.List(Folder()));
  for (const std::string& name : names) {
    const auto round = object_name::ParseRound(name);
    if (!round || answered.contains(*round)) continue;
    round_ = *round;
    SEGUE_RETURN_IF_ERROR(HandIn(identity, payload));
    answered.insert(*round);
  }
  return {};
}

// Owner 0 removes records where a publish has succeeded, and leaves them where it has failed.
Result<bool> OwnerExchange::IsTakenAway() {
  SEGUE_ASSIGN_OR_RETURN(const auto names, store_.List(Folder()));
  const std::string file = RecordName(options_.owner).substr(Folder().size() + 1);
  return std::find(names.begin(), names.end(), file) == names.end();
}

Result<bool> OwnerExchange::IsVisible(const DeltaIdentity& identity, const PayloadEntry& payload) {
  LineageRecord lineage;  // Enough of it to read a manifest by.
  lineage.lineage = identity.lineage;
  lineage.plan = identity.plan;
  const std::uint64_t version = *options_.version;
  SEGUE_ASSIGN_OR_RETURN(const auto versions, Lineage::ListVersions(store_, lineage.lineage));
  if (!std::binary_search(versions.begin(), versions.end(), version)) return false;
  SEGUE_ASSIGN_OR_RETURN(const Manifest manifest, ReadManifest(store_, lineage, version));
  if (HoldsPayload(manifest, payload, whole_)) return true;
  return InvalidArgument("version " + std::to_string(version) + " of lineage '" + lineage.lineage +
                         "' was published by somebody else, without what this owner has");
}

Status OwnerExchange::Add(const OwnerRecord& record, std::uint32_t owner, DeltaIdentity& identity,
                          std::vector<PayloadEntry>& payloads) const {
  const DeltaIdentity& other = record.identity;
  if (record.round != round_ || other.lineage != identity.lineage ||
      other.base_version != identity.base_version ||
      other.target_version != identity.target_version || other.plan != identity.plan ||
      other.base_layout != identity.base_layout || other.target_layout != identity.target_layout ||
      record.owner_count != options_.owner_count || record.payload.owner != owner) {
    return InvalidArgument("owner record '" + RecordName(owner) +
                           "' is of another base, target, plan or number of owners");
  }
  identity.base_digest += other.base_digest;
  identity.target_digest += other.target_digest;
  identity.changed_chunks += other.changed_chunks;
  identity.changed_elements += other.changed_elements;
  payloads.push_back(record.payload);
  return {};
}

void OwnerExchange::RemoveRecords(std::vector<std::string>& warnings) {
  if (options_.owner_count == 1) return;
  const auto names = store_.List(Folder());
  if (!names.ok()) warnings.push_back("owner records stay: " + names.status().message());
  if (!names.ok()) return;
  // Those of rounds that came to nothing too: the session is this job's alone.
  for (const std::string& name : names.value()) {
    const Status status = store_.Delete(Folder() + "/" + name);
    if (!status.ok()) warnings.push_back("owner record stays: " + status.message());
  }
}

}  // namespace segue
