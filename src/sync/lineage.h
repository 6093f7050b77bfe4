// SPDX-License-Identifier: Apache-2.0
//
// Lineage: the versions of one lineage as a store shows them, and the way from one to another.
// Reads only; every manifest is checked against the lineage it claims (cases D3, D5, E9).
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/layout.h"
#include "checkpoint/plan.h"
#include "delta/manifest.h"
#include "segue/status.h"
#include "store/store.h"

namespace segue {

// One version's weights and how the trainer laid out their files.
struct VersionFacts {
  Digest digest;
  Sha256 layout;
};

// Manifests of versions and anchors that lead from one version to another, in order; none when they
// are the same.
struct Way {
  std::uint64_t from = 0;
  std::vector<Manifest> manifests;
};

// The numbers that a lineage has used, as one listing shows them; ascending.
struct UsedNumbers {
  std::vector<std::uint64_t> versions;  // With a manifest, and not gone.
  std::vector<std::uint64_t> gone;      // Pruned.
  // Gone, with a manifest: of a pruner that was killed, or brought back by a put that was under way
  // for long. No versions.
  std::vector<std::uint64_t> ghosts;
};
Result<UsedNumbers> ListNumbers(Store& store, const std::string& lineage);

// Names of the lineages in a folder that is a dir store's.
std::vector<std::string> FindLineages(const std::string& folder);

class Lineage {
 public:
  // NotFound where the store has no such lineage. Reads every manifest that is listed; one that
  // vanishes meanwhile (pruned) is left out (case G2).
  static Result<Lineage> Open(Store& store, const std::string& name);
  // Nothing where the store has no such lineage yet.
  static Result<std::optional<Lineage>> OpenIfThere(Store& store, const std::string& name);

  // Names of the lineages that the store has, sorted.
  static Result<std::vector<std::string>> ListLineages(Store& store);
  // NotFound where the store has no such lineage.
  static Result<LineageRecord> ReadRecord(Store& store, const std::string& name);

  // The versions that the store lists, ascending, without reading any; none where there is no such
  // lineage.
  static Result<std::vector<std::uint64_t>> ListVersions(Store& store, const std::string& name);

  const LineageRecord& record() const { return record_; }
  const std::map<std::uint64_t, Manifest>& manifests() const { return manifests_; }
  // Every record, by name, then base, then target.
  const std::vector<AnchorRecord>& anchors() const { return anchors_; }
  // The record of each anchor that counts (docs/format.md, section 8), by name.
  std::map<std::string, AnchorRecord> CurrentAnchors() const;
  // Newest version that is visible; the origin where none is.
  std::uint64_t newest() const;
  // What a version is, as its own manifest, a later one's base or the origin says.
  std::optional<VersionFacts> Version(std::uint64_t version) const;
  // The same; NotFound, naming the newest, where nothing says it.
  Result<VersionFacts> Require(std::uint64_t version) const;
  // Every version up to `version_max` whose digest this is, newest first: a trainer that went back,
  // or a step that changed nothing, gives the same weights several numbers.
  std::vector<std::uint64_t> FindVersions(const Digest& digest, std::uint64_t version_max) const;
  // The newest of them.
  std::optional<std::uint64_t> FindVersion(const Digest& digest, std::uint64_t version_max) const;

  // The cheapest way from one version to another: fewest payload bytes, then fewest steps; empty
  // when they are the same. NotFound naming the version that is missing; VersionMismatch where `to`
  // does not come from `from`.
  Result<std::vector<Manifest>> Path(std::uint64_t from, std::uint64_t to) const;
  // The cheapest way to `to` from weights of this digest: from whichever version has it and leads
  // there (case D5). VersionMismatch where none does, or none up to `to` has the digest.
  Result<Way> FindWay(const Digest& digest, std::uint64_t to) const;

  Result<Plan> ReadPlan(Store& store) const;
  // InvalidArgument that names the differences where `plan` is not the lineage's; `name`: whose it
  // is, for the message.
  Status CheckPlan(Store& store, const Plan& plan, const std::string& name) const;
  Result<Layout> ReadLayout(Store& store, const Sha256& digest) const;

 private:
  Status DropGone(Store& store);
  Status ReadManifests(Store& store);
  Status ReadAnchors(Store& store);
  Status CheckAgreement() const;
  std::vector<const Manifest*> Steps() const;
  std::optional<Way> FindCheapest(const std::vector<std::uint64_t>& from, std::uint64_t to) const;
  Status WhyNoWay(std::uint64_t from, std::uint64_t to) const;

  LineageRecord record_;
  std::map<std::uint64_t, Manifest> manifests_;
  std::vector<AnchorRecord> anchors_;
};

// Payload bytes of a version or an anchor.
std::uint64_t PayloadBytes(const Manifest& manifest);

// Reads one manifest and checks that it is the one of `version` in `lineage`.
Result<Manifest> ReadManifest(Store& store, const LineageRecord& lineage, std::uint64_t version);

}  // namespace segue
