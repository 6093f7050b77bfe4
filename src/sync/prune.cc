// SPDX-License-Identifier: Apache-2.0
//
// Prune. The number is marked and the manifest goes first: from then on no reader starts on the
// version, and one that has begun is told that it is gone (case G2). The mark stays, so that a put
// that has been under way since before cannot give the number another content. Other pruners may do
// the same at the same time.
#include "sync/prune.h"

#include <algorithm>
#include <set>
#include <span>

#include "base/file.h"
#include "base/limits.h"
#include "sync/lineage.h"

namespace segue {
namespace {

class Pruner {
 public:
  Pruner(Store& store, const LineageRecord& lineage)
      : store_(store), lineage_(lineage), name_(lineage.lineage) {}

  PruneReport Run(std::uint64_t retain) {
    if (retain == 0) return {};
    const Status status = Prune(retain);
    if (!status.ok()) report_.warnings.push_back("nothing was pruned: " + status.message());
    return std::move(report_);
  }

 private:
  Status Prune(std::uint64_t retain) {
    SEGUE_ASSIGN_OR_RETURN(const UsedNumbers numbers, ListNumbers(store_, name_));
    const std::vector<std::uint64_t>& versions = numbers.versions;
    if (versions.empty()) return {};
    SEGUE_ASSIGN_OR_RETURN(const std::uint64_t held_after, FirstAnchorEnd());
    const auto held = std::upper_bound(versions.begin(), versions.end(), held_after);
    const std::size_t count = std::min(versions.size() <= retain ? 0 : versions.size() - retain,
                                       static_cast<std::size_t>(held - versions.begin()));
    const auto kept = std::span(versions).subspan(count);
    SEGUE_RETURN_IF_ERROR(ReadKept(kept));
    for (const std::uint64_t version : std::span(versions).first(count)) {
      const Status status = PruneVersion(version);
      if (status.ok()) report_.pruned.push_back(version);
      Note("version " + std::to_string(version), status);
    }
    for (const std::uint64_t version : numbers.ghosts) {
      Note("what came back as version " + std::to_string(version),
           store_.Delete(object_name::Version(name_, version)));
    }
    RemoveOrphans(versions);
    RemoveOldMarks(numbers.gone);
    return {};
  }

  void RemoveOldMarks(const std::vector<std::uint64_t>& gone) {
    if (gone.size() <= limits::kGoneMarksMax) return;
    for (const std::uint64_t version : std::span(gone).first(gone.size() - limits::kGoneMarksMax)) {
      Note("mark of version " + std::to_string(version),
           store_.Delete(object_name::Gone(name_, version)));
    }
  }

  // Where the delta of the anchor that is furthest behind ends: the versions after it are its way
  // to the newest. Names tell; no record is read.
  Result<std::uint64_t> FirstAnchorEnd() {
    std::uint64_t first = UINT64_MAX;
    SEGUE_ASSIGN_OR_RETURN(const auto anchors,
                           store_.ListFolders(object_name::AnchorFolders(name_)));
    for (const std::string& anchor : anchors) {
      SEGUE_ASSIGN_OR_RETURN(const auto records,
                             store_.List(object_name::AnchorFolder(name_, anchor)));
      std::uint64_t end = 0;
      for (const std::string& record : records) {
        const auto range = object_name::ParseAnchor(record);
        if (range) end = std::max(end, range->second + 1);
      }
      if (end != 0) first = std::min(first, end - 1);  // An empty folder is no anchor.
    }
    return first;
  }

  // Objects that the kept versions name (one of them may lie in an older version's folder), and
  // what the oldest starts from.
  Status ReadKept(std::span<const std::uint64_t> kept) {
    for (const std::uint64_t version : kept) {
      Result<Manifest> manifest = ReadManifest(store_, lineage_, version);
      if (!manifest.ok()) return manifest.status();
      for (const PayloadEntry& payload : manifest->payloads) needed_.insert(payload.object);
      if (version == kept.front()) gone_max_ = manifest->identity.base_version;
    }
    return {};
  }

  Status PruneVersion(std::uint64_t version) {
    SEGUE_RETURN_IF_ERROR(store_.PutIfAbsent(object_name::Gone(name_, version), {}).status());
    SEGUE_RETURN_IF_ERROR(store_.Delete(object_name::Version(name_, version)));
    return EmptyFolder(object_name::PayloadFolder(name_, version));
  }

  // Versions without a manifest up to the base of the oldest kept one: a pruner or a publisher was
  // killed there. One that is being published now is newer than what its base was.
  void RemoveOrphans(const std::vector<std::uint64_t>& versions) {
    for (const std::uint64_t version : FoldersUpToBase(object_name::PayloadFolders(name_))) {
      if (std::binary_search(versions.begin(), versions.end(), version)) continue;
      Note("what version " + std::to_string(version) + " has left",
           EmptyFolder(object_name::PayloadFolder(name_, version)));
    }
    for (const std::uint64_t version : FoldersUpToBase(object_name::OwnerFolders(name_))) {
      Note("owner records of version " + std::to_string(version), RemoveSessions(version));
    }
  }

  std::vector<std::uint64_t> FoldersUpToBase(const std::string& folder) {
    std::vector<std::uint64_t> versions;
    const auto names = store_.ListFolders(folder);
    if (!names.ok()) Note("'" + folder + "'", names.status());
    if (!names.ok()) return versions;
    for (const std::string& name : names.value()) {
      const auto version = object_name::ParseVersionFolder(name);
      if (version && *version <= gone_max_) versions.push_back(*version);
    }
    return versions;
  }

  Status RemoveSessions(std::uint64_t version) {
    const std::string folder = DirectoryOf(object_name::OwnerFolder(name_, version, "session"));
    SEGUE_ASSIGN_OR_RETURN(const auto sessions, store_.ListFolders(folder));
    for (const std::string& session : sessions) {
      SEGUE_RETURN_IF_ERROR(EmptyFolder(object_name::OwnerFolder(name_, version, session)));
    }
    return {};
  }

  Status EmptyFolder(const std::string& folder) {
    SEGUE_ASSIGN_OR_RETURN(const auto objects, store_.List(folder));
    for (const std::string& object : objects) {
      const std::string name = JoinPath(folder, object);
      if (!needed_.contains(name)) SEGUE_RETURN_IF_ERROR(store_.Delete(name));
    }
    return {};
  }

  void Note(const std::string& what, const Status& status) {
    if (status.ok()) return;
    report_.warnings.push_back(what + " could not be pruned: " + status.message());
  }

  Store& store_;
  const LineageRecord& lineage_;
  const std::string& name_;
  std::set<std::string> needed_;
  std::uint64_t gone_max_ = 0;
  PruneReport report_;
};

}  // namespace

PruneReport PruneVersions(Store& store, const LineageRecord& lineage, std::uint64_t retain) {
  return Pruner(store, lineage).Run(retain);
}

}  // namespace segue
