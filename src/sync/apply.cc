// SPDX-License-Identifier: Apache-2.0
//
// Apply on checkpoint directories: docs/protocol.md, section 3.
#include "segue/apply.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "base/file.h"
#include "delta/applier.h"
#include "delta/encoder.h"
#include "store/signed_store.h"
#include "store/store.h"
#include "sync/build_output.h"
#include "sync/checkpoint_state.h"
#include "sync/fetch.h"
#include "sync/in_place.h"
#include "sync/lineage.h"
#include "sync/live_files.h"
#include "sync/resolve.h"
#include "sync/stopwatch.h"

namespace segue {
namespace {

class Application {
 public:
  explicit Application(const ApplyOptions& options) : options_(options) {}

  Result<ApplyReport> Run() {
    std::optional<CheckpointLock> lock;
    if (options_.output.empty()) {
      SEGUE_RETURN_IF_ERROR(CheckCheckpointDirectory(options_.checkpoint));
      SEGUE_ASSIGN_OR_RETURN(lock, CheckpointLock::Acquire(options_.checkpoint));
      SEGUE_ASSIGN_OR_RETURN(const ResolveReport resolved,
                             ResolveLocked(options_.checkpoint, options_.threads));
      report_.resolved_first = resolved.outcome != ResolveOutcome::kNothingToDo;
    }
    SEGUE_RETURN_IF_ERROR(OpenAll());
    SEGUE_RETURN_IF_ERROR(Locate());
    if (options_.output.empty()) {
      SEGUE_RETURN_IF_ERROR(ApplyInPlace());
    } else {
      SEGUE_RETURN_IF_ERROR(ApplyToOutput());
    }
    return report_;
  }

 private:
  void Tell(std::string_view stage) {
    if (options_.progress) options_.progress(stage, 0, 0);
  }

  Status OpenAll() {
    SEGUE_ASSIGN_OR_RETURN(base_, Checkpoint::Open(options_.checkpoint));
    report_.warnings = base_.warnings();
    SEGUE_ASSIGN_OR_RETURN(state_, ReadState(base_.directory()));
    SEGUE_ASSIGN_OR_RETURN(auto store, OpenStore(options_.store, /*create=*/false));
    SEGUE_ASSIGN_OR_RETURN(store_, WithKeys(std::move(store), options_.keys));
    const std::string name = ChooseLineage(options_.lineage, state_);
    SEGUE_ASSIGN_OR_RETURN(lineage_, Lineage::Open(*store_, name));
    SEGUE_ASSIGN_OR_RETURN(plan_, lineage_.ReadPlan(*store_));
    SEGUE_ASSIGN_OR_RETURN(const Plan found, Plan::FromCheckpoint(base_, plan_.chunk_size()));
    SEGUE_RETURN_IF_ERROR(ComparePlans(plan_, found, "lineage '" + name + "'",
                                       "checkpoint '" + options_.checkpoint + "'"));
    report_.lineage = name;
    report_.target_version = options_.to.value_or(lineage_.newest());
    SEGUE_ASSIGN_OR_RETURN(target_, lineage_.Require(report_.target_version));
    report_.target_digest = target_.digest.ToHex();
    return {};
  }

  // Which version the checkpoint is, and the way from there.
  Status Locate() {
    Stopwatch watch;
    Tell("locate");
    const bool trusted = options_.trust_state && options_.output.empty() && state_ &&
                         state_->lineage == report_.lineage && state_->plan == plan_.digest();
    base_digest_ = trusted ? state_->digest : DigestModel(plan_, ViewOf(base_), options_.threads);
    report_.full_scan = !trusted;
    report_.locate_s = watch.Lap();
    if (IsRecordedAfterTarget()) return IsAfterTarget(state_->version);
    if (!lineage_.FindVersion(base_digest_, report_.target_version)) return NoVersion();
    Result<Way> way = lineage_.FindWay(base_digest_, report_.target_version);
    if (!way.ok()) return way.status().WithContext("checkpoint '" + options_.checkpoint + "'");
    report_.base_version = IsRecorded() ? state_->version : way->from;
    chain_ = std::move(way->manifests);
    for (const Manifest& manifest : chain_) {
      report_.path.push_back(manifest.identity.target_version);
    }
    return {};
  }

  // The state file says which of the versions it is whose digest the files have.
  bool IsRecorded() const {
    if (!state_ || state_->lineage != report_.lineage || state_->digest != base_digest_) {
      return false;
    }
    const auto facts = lineage_.Version(state_->version);
    return facts && facts->digest == base_digest_;
  }
  // What is changed in place does not go back, also where an earlier version has the same bytes.
  bool IsRecordedAfterTarget() const {
    return options_.output.empty() && IsRecorded() && state_->version > report_.target_version;
  }

  Status IsAfterTarget(std::uint64_t version) const {
    const std::string target = std::to_string(report_.target_version);
    return VersionMismatch("checkpoint '" + options_.checkpoint + "' is at version " +
                           std::to_string(version) + " of lineage '" + report_.lineage +
                           "', after version " + target +
                           ": Segue only goes forward; rebuild from a full copy of version " +
                           target + " or of an earlier one (apply with --output)");
  }

  // Where one delta is all that there is, as in a file of `segue checkpoint`: what it goes on from.
  std::string OnlyBase() const {
    if (lineage_.manifests().size() != 1) return "";
    const DeltaIdentity& only = lineage_.manifests().begin()->second.identity;
    return "; what there is goes on from version " + std::to_string(only.base_version) +
           " alone, digest " + only.base_digest.ToHex();
  }

  // The checkpoint is none of the versions up to the target.
  Status NoVersion() const {
    const std::string target = std::to_string(report_.target_version);
    if (const auto later = lineage_.FindVersion(base_digest_, UINT64_MAX)) {
      return IsAfterTarget(*later);
    }
    return VersionMismatch("checkpoint '" + options_.checkpoint + "' has digest " +
                           base_digest_.ToHex() + ", which is no version up to " + target +
                           " of lineage '" + report_.lineage + "'" + Expectation());
  }

  std::string Expectation() const {
    if (!state_ || state_->lineage != report_.lineage) return OnlyBase();
    return "; its state file says version " + std::to_string(state_->version) + ", digest " +
           state_->digest.ToHex();
  }

  CheckpointState StateOf(std::uint64_t version, const Digest& digest) const {
    return {report_.lineage, version, digest, plan_.digest()};
  }

  CheckpointState TargetState() const { return StateOf(report_.target_version, target_.digest); }

  Status Fetch(const std::string& directory) {
    Tell("fetch");
    SEGUE_ASSIGN_OR_RETURN(fetched_, FetchChain(*store_, plan_, chain_, directory, options_.threads,
                                                options_.progress));
    report_.payload_bytes = fetched_.fetched_bytes;
    report_.fetch_s = fetched_.fetch_s;
    report_.stage_s = fetched_.stage_s;
    report_.staged_bytes = fetched_.staged.staged_bytes();
    report_.changed_chunks = fetched_.staged.rows().size();
    report_.changed_elements = fetched_.staged.changed_elements();
    if (fetched_.staged.difference() != target_.digest - base_digest_) {
      return Corruption("the deltas to version " + std::to_string(report_.target_version) +
                        " do not lead from the checkpoint's digest to the target's");
    }
    return {};
  }

  // The trainer's layout is the target's all the way from where the checkpoint stands.
  bool LayoutStays() const {
    if (!chain_.empty()) return target_.layout == chain_.front().identity.base_layout;
    const auto versions = lineage_.FindVersions(base_digest_, report_.target_version);
    return std::all_of(versions.begin(), versions.end(), [&](std::uint64_t version) {
      return lineage_.Version(version)->layout == target_.layout;
    });
  }

  // The files must be laid out as the target's, or the trainer's layout must not have changed.
  Status CheckLayout() {
    if (LayoutStays()) return {};
    if (target_.layout == Layout::FromCheckpoint(base_).digest()) return {};
    return InvalidArgument("version " + std::to_string(report_.target_version) +
                           " lays its files out differently (shards, header or index); "
                           "apply it to a new directory with --output");
  }

  Status ApplyInPlace() {
    SEGUE_RETURN_IF_ERROR(CheckLayout());
    if (chain_.empty()) return WriteState(options_.checkpoint, TargetState());
    InPlaceSteps steps;
    steps.tell = [this](std::string_view stage) { Tell(stage); };
    steps.make = [this](const std::string& folder) -> Result<InPlaceDelta> {
      SEGUE_RETURN_IF_ERROR(Fetch(folder));
      base_ = Checkpoint();
      return InPlaceDelta{std::move(fetched_.staged),
                          fetched_.path,
                          fetched_.size,
                          fetched_.sha256,
                          StateOf(report_.base_version, base_digest_),
                          TargetState()};
    };
    SEGUE_ASSIGN_OR_RETURN(
        const InPlaceReport report,
        segue::ApplyInPlace(options_.checkpoint, plan_, options_.threads, steps));
    report_.warnings.insert(report_.warnings.end(), report.warnings.begin(), report.warnings.end());
    report_.preflight_s = report.preflight_s;
    report_.journal_s = report.journal_s;
    report_.apply_s = report.apply_s;
    report_.sync_s = report.sync_s;
    return {};
  }

  Status Preflight() {
    Stopwatch watch;
    Tell("preflight");
    device_ = MakeHostDevice(options_.threads);
    applier_ = std::make_unique<Applier>(plan_, fetched_.staged, live_.view, *device_);
    Status status = applier_->Preflight();
    report_.preflight_s = watch.Lap();
    return status;
  }

  Status ApplyToOutput() {
    SEGUE_ASSIGN_OR_RETURN(const Layout layout, lineage_.ReadLayout(*store_, target_.layout));
    SEGUE_ASSIGN_OR_RETURN(OutputBuilder output, OutputBuilder::Start(options_.output));
    const std::string work_folder = JoinPath(StateDirectory(output.directory()), "apply");
    SEGUE_RETURN_IF_ERROR(MakeDirectories(work_folder));
    if (!chain_.empty()) SEGUE_RETURN_IF_ERROR(Fetch(work_folder));
    Tell("copy");
    // A file is the checkpoint by itself: what lies beside it may belong to others.
    const bool is_directory = options_.checkpoint == base_.directory();
    SEGUE_RETURN_IF_ERROR(output.CopyBase(base_, layout, plan_));
    if (is_directory) SEGUE_RETURN_IF_ERROR(output.CopyOtherFiles(base_, report_.warnings));
    SEGUE_ASSIGN_OR_RETURN(live_, output.Open());
    SEGUE_RETURN_IF_ERROR(Preflight());
    Stopwatch watch;
    Tell("apply");
    // The output is not anybody's weights yet: a fault discards it and taints nothing.
    const Status applied = applier_->Apply();
    if (!applied.ok()) return Corruption(applied.message());
    report_.apply_s = watch.Lap();
    SEGUE_RETURN_IF_ERROR(ProveOutput());
    SEGUE_RETURN_IF_ERROR(SyncLiveFiles(live_));
    SEGUE_RETURN_IF_ERROR(RemoveTree(work_folder));
    SEGUE_RETURN_IF_ERROR(WriteState(output.directory(), TargetState()));
    SEGUE_RETURN_IF_ERROR(output.Finish());
    report_.sync_s = watch.Lap();
    return {};
  }

  Status ProveOutput() {
    const Digest found = DigestModel(plan_, ReadOnly(live_.view), options_.threads);
    if (found == target_.digest) return {};
    return Corruption("output '" + options_.output + "' has digest " + found.ToHex() +
                      ", version " + std::to_string(report_.target_version) + " has " +
                      target_.digest.ToHex());
  }

  const ApplyOptions& options_;
  Checkpoint base_;
  std::optional<CheckpointState> state_;
  std::unique_ptr<Store> store_;
  Lineage lineage_;
  Plan plan_;
  Digest base_digest_;
  VersionFacts target_;
  std::vector<Manifest> chain_;
  FetchedDelta fetched_;
  LiveFiles live_;
  std::unique_ptr<Device> device_;
  std::unique_ptr<Applier> applier_;
  ApplyReport report_;
};

}  // namespace

Result<ApplyReport> Apply(const ApplyOptions& options) { return Application(options).Run(); }

}  // namespace segue
