// SPDX-License-Identifier: Apache-2.0
//
// Watch: docs/protocol.md, section 2, "Watching a directory".
#include "segue/watch.h"

#include <algorithm>
#include <iterator>
#include <set>
#include <utility>

#include "base/limits.h"
#include "checkpoint/checkpoint.h"
#include "delta/encoder.h"
#include "store/signed_store.h"
#include "sync/environment.h"
#include "sync/lineage.h"
#include "sync/version_commit.h"
#include "sync/watch_directory.h"

namespace segue {

class CheckpointWatcher::Impl {
 public:
  Impl(WatchOptions options, Environment& environment)
      : options_(std::move(options)),
        environment_(environment),
        directory_(options_.directory, options_.settle, environment) {}

  Status Check() {
    SEGUE_RETURN_IF_ERROR(CheckPublishOptions(options_.publish));
    return directory_.Look().status();
  }

  Result<WatchLook> Look() {
    WatchLook look;
    SEGUE_ASSIGN_OR_RETURN(const std::vector<Candidate> candidates, directory_.Look());
    if (!last_) {
      SEGUE_RETURN_IF_ERROR(FindLast(candidates, look));
      return look;
    }
    SEGUE_ASSIGN_OR_RETURN(const Candidate* next, ChooseNext(candidates, look));
    if (next == nullptr) return look;
    PublishOptions publish = options_.publish;
    publish.base = last_->path;
    publish.target = next->path;
    publish.confirm = [next] { return CheckUnchanged(*next); };
    publish.anchors = DueAnchors();
    SEGUE_ASSIGN_OR_RETURN(look.published, PublishIn(environment_, publish));
    next_version_ = look.published->target_version + 1;
    DropSetAnchors(*look.published);
    look.checkpoint = next->name;
    before_.insert(last_->name);
    last_ = *next;
    return look;
  }

 private:
  using Incomplete = std::vector<std::pair<const Candidate*, Status>>;

  // An anchor at a version to come waits for it.
  std::vector<AnchorWish> DueAnchors() const {
    std::vector<AnchorWish> due;
    std::copy_if(anchors_.begin(), anchors_.end(), std::back_inserter(due),
                 [this](const AnchorWish& wish) { return wish.version <= next_version_; });
    return due;
  }

  // What is set stays with the lineage, and may be moved by others.
  void DropSetAnchors(const PublishReport& report) {
    std::erase_if(anchors_, [&report](const AnchorWish& wish) {
      return std::any_of(report.anchors.begin(), report.anchors.end(), [&](const auto& anchor) {
        return anchor.name == wish.name && wish.version.value_or(anchor.version) == anchor.version;
      });
    });
  }

  static Status CheckUnchanged(const Candidate& candidate) {
    SEGUE_ASSIGN_OR_RETURN(const auto files, ReadFileFacts(candidate.path));
    if (files == candidate.files) return {};
    return Unavailable("checkpoint '" + candidate.path +
                       "' changed while it was read; it was not published");
  }

  // Why the checkpoint is not complete, or OK.
  Status CheckComplete(const Candidate& candidate) const {
    if (!candidate.settled) return Unavailable("it changed not long ago");
    if (!options_.done_file.empty() && !candidate.HasFile(options_.done_file)) {
      return NotFound("it has no file '" + options_.done_file + "'");
    }
    return Checkpoint::Open(candidate.path).status();
  }

  // What nobody completes is told of once: it may wait for a writer that is gone.
  void TellOfWaits(const Incomplete& incomplete, WatchLook& look) {
    for (const auto& [candidate, status] : incomplete) {
      if (!candidate->quiet || !told_.insert(candidate->name).second) continue;
      look.warnings.push_back("'" + candidate->name +
                              "' is waited for, and nothing in it changes: " + status.message());
    }
  }

  // The first complete one after the last; null while there is nothing to do but wait.
  Result<const Candidate*> ChooseNext(const std::vector<Candidate>& candidates, WatchLook& look) {
    Incomplete incomplete;
    const Candidate* next = nullptr;
    for (const Candidate& candidate : candidates) {
      if (candidate.name == last_->name || passed_.contains(candidate.name)) continue;
      if (!candidate.IsAfter(*last_)) {
        if (!before_.insert(candidate.name).second || !looked_) continue;
        look.warnings.push_back("'" + candidate.name + "' appeared with a step before '" +
                                last_->name + "', which is published: it is left alone");
        continue;
      }
      const Status status = CheckComplete(candidate);
      if (status.ok()) {
        next = &candidate;
        break;
      }
      incomplete.emplace_back(&candidate, status);
    }
    looked_ = true;
    if (!incomplete.empty()) look.checkpoint = incomplete.front().first->name;
    if (next == nullptr) {
      TellOfWaits(incomplete, look);
      return next;
    }
    for (const auto& [candidate, status] : incomplete) {
      if (!candidate->settled) return static_cast<const Candidate*>(nullptr);  // Being written.
      passed_.insert(candidate->name);
      look.warnings.push_back("'" + candidate->name + "' is passed over: " + status.message());
    }
    return next;
  }

  // Where to go on from: the base of the next version.
  Status FindLast(const std::vector<Candidate>& candidates, WatchLook& look) {
    std::vector<const Candidate*> complete;
    Incomplete incomplete;
    bool all_settled = true;
    for (const Candidate& candidate : candidates) {
      all_settled = all_settled && candidate.settled;
      const Status status = CheckComplete(candidate);
      if (status.ok()) complete.push_back(&candidate);
      if (!status.ok()) incomplete.emplace_back(&candidate, status);
    }
    if (complete.empty()) TellOfWaits(incomplete, look);
    if (!all_settled) {
      look.checkpoint = candidates.front().name;
      return {};
    }
    SEGUE_ASSIGN_OR_RETURN(auto opened,
                           environment_.OpenStore(options_.publish.store, /*create=*/true));
    SEGUE_ASSIGN_OR_RETURN(const auto store,
                           WithWriterKeys(std::move(opened), options_.publish.keys));
    SEGUE_ASSIGN_OR_RETURN(const auto lineage,
                           Lineage::OpenIfThere(*store, options_.publish.lineage));
    if (!lineage) {
      if (!complete.empty()) Settle(*complete.front(), look);
      return {};
    }
    next_version_ = lineage->newest() + 1;
    SEGUE_ASSIGN_OR_RETURN(const Plan plan, lineage->ReadPlan(*store));
    SEGUE_ASSIGN_OR_RETURN(const auto matches, FindNewest(*lineage, plan, complete));
    if (matches.empty()) {
      return VersionMismatch("no checkpoint in '" + options_.directory + "' has the weights of " +
                             "version " + std::to_string(lineage->newest()) +
                             ", the newest of lineage '" + options_.publish.lineage + "'");
    }
    const std::size_t published = std::min(matches.size(), CountOfSame(*lineage));
    Settle(*matches[published - 1], look);
    return {};
  }

  void Settle(const Candidate& candidate, WatchLook& look) {
    last_ = candidate;
    look.checkpoint = candidate.name;
    look.began = true;
  }

  // The last run of candidates whose bytes are the newest version's, in order.
  Result<std::vector<const Candidate*>> FindNewest(
      const Lineage& lineage, const Plan& plan,
      const std::vector<const Candidate*>& complete) const {
    const Digest wanted = lineage.Version(lineage.newest())->digest;
    std::vector<const Candidate*> run;
    for (auto candidate = complete.rbegin(); candidate != complete.rend(); ++candidate) {
      SEGUE_ASSIGN_OR_RETURN(const Checkpoint checkpoint, Checkpoint::Open((*candidate)->path));
      SEGUE_ASSIGN_OR_RETURN(const Plan found, Plan::FromCheckpoint(checkpoint, plan.chunk_size()));
      const bool same = found.digest() == plan.digest() &&
                        DigestModel(plan, ViewOf(checkpoint), options_.publish.threads) == wanted;
      if (same) run.push_back(*candidate);
      if (!same && !run.empty()) break;
    }
    std::reverse(run.begin(), run.end());
    return run;
  }

  // How many versions at the lineage's end have the newest one's bytes.
  static std::size_t CountOfSame(const Lineage& lineage) {
    std::size_t count = 1;
    std::uint64_t version = lineage.newest();
    const Digest digest = lineage.Version(version)->digest;
    for (;; ++count) {
      const auto found = lineage.manifests().find(version);
      if (found == lineage.manifests().end()) return count;
      if (found->second.identity.base_digest != digest) return count;
      version = found->second.identity.base_version;
    }
  }

  const WatchOptions options_;
  Environment& environment_;
  WatchedDirectory directory_;
  std::optional<Candidate> last_;  // Published, or the base of the first version.
  bool looked_ = false;            // Since there is a last one.
  std::uint64_t next_version_ = 1;
  std::vector<AnchorWish> anchors_ = options_.publish.anchors;  // Not set yet.
  std::set<std::string> passed_;                                // Never became complete.
  std::set<std::string> told_;                                  // To be waited for.
  std::set<std::string> before_;  // Have a step before the last one's.
};

CheckpointWatcher::CheckpointWatcher(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
CheckpointWatcher::~CheckpointWatcher() = default;

Result<std::unique_ptr<CheckpointWatcher>> CheckpointWatcher::Open(const WatchOptions& options) {
  auto impl = std::make_unique<Impl>(options, SystemEnvironment());
  SEGUE_RETURN_IF_ERROR(impl->Check());
  return std::unique_ptr<CheckpointWatcher>(new CheckpointWatcher(std::move(impl)));
}

Result<WatchLook> CheckpointWatcher::Look() { return impl_->Look(); }

}  // namespace segue
