// SPDX-License-Identifier: Apache-2.0
//
// Owners: how several owners (trainer ranks) of one version hand in what each of them has, and how
// owner 0 gathers it (case G7; docs/format.md, section 8).
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "checkpoint/plan.h"
#include "delta/manifest.h"
#include "delta/tensor_set.h"
#include "segue/publish.h"
#include "segue/status.h"
#include "store/store.h"
#include "sync/environment.h"

namespace segue {

// Whether the manifest names this very payload, and is of the digests that all owners have settled
// on, where they have: the version has become visible with it.
bool HoldsPayload(const Manifest& manifest, const PayloadEntry& payload,
                  const std::optional<std::pair<Digest, Digest>>& whole);

// Without several owners there is nobody to wait for: every call succeeds at once.
class OwnerExchange {
 public:
  // All outlive it. Several owners have a version and a session in `options`.
  OwnerExchange(Store& store, const PublishOptions& options,
                Environment& environment = SystemEnvironment())
      : store_(store), options_(options), environment_(environment) {}

  // From here on owners say themselves which tensors of `plan` they cover; this one covers
  // `tensors`. Both outlive it.
  void SetCoverage(const Plan& plan, const TensorSet& tensors);
  // What all owners have settled on: the digests of the whole version's base and target. Another
  // version of that number is not this one, whatever it has of this owner.
  void SetWhole(const std::pair<Digest, Digest>& whole) { whole_ = whole; }
  // Owner 0: opens a round. From here on only what is handed in to it counts.
  Status OpenRound();

  // Owner 0: waits for the others; adds their digests and counts to `identity`, and their payloads.
  // InvalidArgument naming the tensor that two owners cover, or none. Closes the round.
  Status Collect(DeltaIdentity& identity, std::vector<PayloadEntry>& payloads);
  // Owners other than 0: hands in to each that is open until the version that has
  // `payload` is visible. Unavailable when it is not in twice the time that owner 0 waits.
  // `was_there`: a version of that number was visible before, so that being visible says nothing:
  // it is this one once owner 0 has found so, and removed what was handed in.
  Status HandInUntilVisible(const DeltaIdentity& identity, const PayloadEntry& payload,
                            bool was_there = false);
  // Owner 0, at the end. What stays becomes a warning.
  void RemoveRecords(std::vector<std::string>& warnings);

 private:
  using Deadline = Environment::Clock::time_point;
  // Leaves a record in the round for owner 0.
  Status HandIn(const DeltaIdentity& identity, const PayloadEntry& payload);
  std::string Folder() const;
  std::string RecordName(std::uint32_t owner) const;
  Status CollectAll(DeltaIdentity& identity, std::vector<PayloadEntry>& payloads);
  Status HandInToRounds(const DeltaIdentity& identity, const PayloadEntry& payload,
                        std::set<std::string>& answered);
  Result<bool> IsVisible(const DeltaIdentity& identity, const PayloadEntry& payload);
  Result<bool> IsTakenAway();
  Status WaitFor(std::uint32_t owner, Deadline deadline);
  Status Add(const OwnerRecord& record, std::uint32_t owner, DeltaIdentity& identity,
             std::vector<PayloadEntry>& payloads) const;
  Status AddCoverage(const OwnerRecord& record);
  Deadline DeadlineIn(double seconds) const;

  Store& store_;
  const PublishOptions& options_;
  Environment& environment_;
  const Plan* plan_ = nullptr;          // Null: every owner covers its share of the chunks.
  const TensorSet* tensors_ = nullptr;  // What this owner covers.
  std::optional<std::pair<Digest, Digest>> whole_;
  TensorSet covered_;  // Owner 0: by all owners so far.
  std::string round_;  // Owner 0's own, or that which is handed in to.
};

}  // namespace segue
