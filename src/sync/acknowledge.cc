// SPDX-License-Identifier: Apache-2.0
//
// Acknowledgement: engines that have answered once as they should are not asked again.
#include "sync/acknowledge.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <utility>

#include "sync/lineage.h"

namespace segue {
namespace {

std::string Named(const std::string& digest) { return digest.empty() ? "no digest" : digest; }

// Holds what engines answer against one version of one lineage.
class Judge {
 public:
  Judge(const std::string& lineage, std::uint64_t version, const DigestOfVersion& digest_of)
      : lineage_(lineage), version_(version), digest_of_(digest_of) {}

  // What keeps the engine from counting; empty where it has the version.
  std::string WhyNot(const Result<EngineHolds>& answer) {
    if (!answer.ok()) return answer.status().message();
    const auto held = answer->lineages.find(lineage_);
    if (held == answer->lineages.end()) return "serves " + Names(answer.value());
    const auto& [version, digest] = held->second;
    if (version < version_) return "serves version " + std::to_string(version);
    const auto ours = Ours(version);
    const std::string what =
        "serves a version " + std::to_string(version) + " with digest " + Named(digest) + ", ";
    if (!ours.ok()) return what + "which cannot be judged: " + ours.status().message();
    if (!ours.value()) return what + "which this lineage of the store is not known to have";
    if (*ours.value() != digest) {
      return what + "and version " + std::to_string(version) + " of this lineage has " +
             *ours.value() + ": another run's, under the same name";
    }
    return answer->ready ? "" : "is not ready";
  }

  // What was not known may be by the next look.
  void ForgetUnknown() {
    std::erase_if(digests_, [](const auto& known) { return !known.second; });
  }

 private:
  static std::string Names(const EngineHolds& holds) {
    std::string names;
    for (const auto& [lineage, held] : holds.lineages) {
      names += (names.empty() ? "lineage '" : ", '") + lineage + "'";
    }
    return names.empty() ? "no lineage" : names;
  }

  // At most one reading of a version for all engines of a look.
  Result<std::optional<std::string>> Ours(std::uint64_t version) {
    const auto known = digests_.find(version);
    if (known != digests_.end()) return known->second;
    SEGUE_ASSIGN_OR_RETURN(auto digest, digest_of_(version));
    digests_[version] = digest;
    return digest;
  }

  const std::string& lineage_;
  const std::uint64_t version_;
  const DigestOfVersion& digest_of_;
  std::map<std::uint64_t, std::optional<std::string>> digests_;
};

}  // namespace

Result<std::optional<std::string>> FindDigest(Store& store, const std::string& lineage,
                                              std::uint64_t version) {
  using Found = std::optional<std::string>;
  const Result<LineageRecord> record = Lineage::ReadRecord(store, lineage);
  if (record.status().code() == StatusCode::kNotFound) return Found();
  if (!record.ok()) return record.status();
  if (record->origin_version == version) return Found(record->origin_digest.ToHex());
  SEGUE_ASSIGN_OR_RETURN(const auto versions, Lineage::ListVersions(store, lineage));
  if (versions.empty() || versions.back() < version) return Found();
  if (std::ranges::binary_search(versions, version)) {
    SEGUE_ASSIGN_OR_RETURN(const Manifest manifest, ReadManifest(store, record.value(), version));
    return Found(manifest.identity.target_digest.ToHex());
  }
  SEGUE_ASSIGN_OR_RETURN(const auto whole, Lineage::OpenIfThere(store, lineage));
  const auto facts = whole ? whole->Version(version) : std::nullopt;
  return facts ? Found(facts->digest.ToHex()) : Found();
}

Status WaitForCohort(const Cohort& cohort, const std::string& lineage, std::uint64_t version,
                     const DigestOfVersion& digest_of, Environment& environment) {
  if (!cohort.probe) return InvalidArgument("a cohort needs a way to ask its engines");
  std::map<std::string, std::string> behind;
  for (const std::string& engine : cohort.engines) behind.emplace(engine, "");
  Judge judge(lineage, version, digest_of);
  const auto deadline = environment.Now() + cohort.timeout;
  for (;;) {
    judge.ForgetUnknown();
    for (auto engine = behind.begin(); engine != behind.end();) {
      engine->second = judge.WhyNot(cohort.probe(engine->first));
      engine = engine->second.empty() ? behind.erase(engine) : std::next(engine);
    }
    if (behind.empty()) return {};
    if (environment.Now() + cohort.interval > deadline) break;
    environment.Sleep(cohort.interval, {});
  }
  std::string text;
  for (const auto& [engine, why] : behind) {
    text += (text.empty() ? "" : "; ") + ("engine '" + engine + "': " + why);
  }
  return Unavailable("version " + std::to_string(version) + " of lineage '" + lineage +
                     "' is not acknowledged by " + std::to_string(behind.size()) + " of " +
                     std::to_string(cohort.engines.size()) + " engines: " + text);
}

}  // namespace segue
