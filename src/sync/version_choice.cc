// SPDX-License-Identifier: Apache-2.0
//
// Version choice. A step that starts from the newest version is new whatever it leads to; any other
// is a retry if a version with its content exists, and a branch if none does.
#include "sync/version_choice.h"

#include "base/limits.h"

namespace segue {
namespace {

bool StartsFromNewest(const Lineage& lineage, const DeltaIdentity& identity) {
  const auto newest = lineage.Version(lineage.newest());
  return newest && newest->digest == identity.base_digest && newest->layout == identity.base_layout;
}

// The version that has this content already, or null.
const DeltaIdentity* FindPublished(const Lineage& lineage, const PublishOptions& options,
                                   const DeltaIdentity& identity) {
  const auto& manifests = lineage.manifests();
  if (options.version) {
    const auto found = manifests.find(*options.version);
    const bool same = found != manifests.end() && HasContentOf(found->second.identity, identity);
    return same ? &found->second.identity : nullptr;
  }
  if (StartsFromNewest(lineage, identity)) return nullptr;
  for (auto entry = manifests.rbegin(); entry != manifests.rend(); ++entry) {
    if (IsSameStep(entry->second.identity, identity)) return &entry->second.identity;
  }
  return nullptr;
}

// The trainer went back: those who follow are cut off, so it must be wanted.
Status ConsiderBranch(const Lineage& lineage, const PublishOptions& options,
                      VersionChoice& choice) {
  const std::string base = std::to_string(choice.base);
  const std::string newest = std::to_string(lineage.newest());
  if (!options.allow_branch) {
    return InvalidArgument(
        "base '" + options.base + "' is version " + base + " of lineage '" + options.lineage +
        "', the newest is " + newest + ": whoever holds a version after " + base +
        " could not follow and would have to be rebuilt; publish from version " + newest +
        ", or allow a branch if the trainer went back (--branch; in Python "
        "branch=True)");
  }
  choice.warning = "version " + std::to_string(choice.target) + " starts from version " + base +
                   ", not from the newest, " + newest + ": whoever holds a version after " + base +
                   " cannot follow and must be rebuilt";
  return {};
}

}  // namespace

bool IsSameStep(const DeltaIdentity& a, const DeltaIdentity& b) {
  return a.base_digest == b.base_digest && a.target_digest == b.target_digest &&
         a.target_layout == b.target_layout;
}

bool HasContentOf(const DeltaIdentity& found, const DeltaIdentity& step) {
  const bool is_nothing = step.base_digest == step.target_digest;
  return IsSameStep(found, step) || (is_nothing && found.target_digest == step.target_digest &&
                                     found.target_layout == step.target_layout);
}

Status VersionIsTaken(const DeltaIdentity& found, const DeltaIdentity& identity) {
  return InvalidArgument(
      "version " + std::to_string(found.target_version) + " of lineage '" + found.lineage +
      "' exists with other content (digest " + found.target_digest.ToHex() + ", this one has " +
      identity.target_digest.ToHex() +
      "): another step or another publisher has made it. Publish under a number of your own, from "
      "the newest version's weights");
}

Status CheckWantedVersion(const Lineage* lineage, const PublishOptions& options) {
  const std::uint64_t newest = lineage == nullptr ? 0 : lineage->newest();
  const std::uint64_t target = options.version.value_or(newest + 1);
  if (target > limits::kVersionMax) {
    return ResourceExhausted("lineage '" + options.lineage + "' has used up its version numbers");
  }
  if (target > newest) return {};
  if (lineage != nullptr && lineage->manifests().contains(target)) return {};
  return InvalidArgument("version " + std::to_string(target) + " of lineage '" + options.lineage +
                         "' would come before the newest, " + std::to_string(newest) +
                         "; version numbers only grow");
}

Result<VersionChoice> ChooseVersion(const Lineage* lineage, const PublishOptions& options,
                                    const DeltaIdentity& identity) {
  SEGUE_RETURN_IF_ERROR(CheckWantedVersion(lineage, options));
  VersionChoice choice;
  choice.target = options.version.value_or(1);
  if (lineage == nullptr) return choice;
  if (const DeltaIdentity* same = FindPublished(*lineage, options, identity)) {
    return VersionChoice{same->base_version, same->target_version, true, ""};
  }
  const std::uint64_t newest = lineage->newest();
  choice.target = options.version.value_or(newest + 1);
  const auto taken = lineage->manifests().find(choice.target);
  if (taken != lineage->manifests().end()) return VersionIsTaken(taken->second.identity, identity);
  const auto base = lineage->FindVersion(identity.base_digest, newest);
  if (!base) {
    return VersionMismatch("base '" + options.base + "' has digest " +
                           identity.base_digest.ToHex() + ", which is no version of lineage '" +
                           options.lineage + "'; its newest version " + std::to_string(newest) +
                           " has " + lineage->Version(newest)->digest.ToHex());
  }
  choice.base = *base;
  if (choice.base < newest) SEGUE_RETURN_IF_ERROR(ConsiderBranch(*lineage, options, choice));
  return choice;
}

}  // namespace segue
