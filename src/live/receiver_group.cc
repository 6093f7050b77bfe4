// SPDX-License-Identifier: Apache-2.0
//
// Receiver group: the states (live/receiver_core.h) over several lineages, which requests name.
#include "segue/receiver_group.h"

#include <algorithm>
#include <set>
#include <utility>

#include "live/live_environment.h"
#include "live/receiver_core.h"
#include "live/segment_header.h"

namespace segue {
namespace {

constexpr int kSnapshotTriesMax = 64;

Status CheckOptions(const GroupOptions& options) {
  const std::size_t count = options.lineages.size();
  if (count == 0 || count > kGroupSizeMax) {
    return InvalidArgument("a group has 1 to " + std::to_string(kGroupSizeMax) + " lineages, not " +
                           std::to_string(count));
  }
  std::set<std::string> names;
  for (const ReceiverOptions& lineage : options.lineages) {
    if (!names.insert(lineage.lineage).second) {
      return InvalidArgument("lineage '" + lineage.lineage + "' is in the group twice");
    }
    if (!lineage.hooks.present()) continue;
    return InvalidArgument("lineage '" + lineage.lineage +
                           "' has hooks of its own: the engine's control belongs to the group");
  }
  return {};
}

}  // namespace

class ReceiverGroup::Impl : public ReceiverCore {
 public:
  Impl(const GroupOptions& options, LiveEnvironment& environment)
      : ReceiverCore(options.lineages, options.hooks, options.same_version, environment) {
    for (const ReceiverOptions& lineage : options.lineages) names_.push_back(lineage.lineage);
  }
  ~Impl() override { EndTasks(); }

  Result<std::size_t> Find(const std::string& name) const {
    std::string known;
    for (std::size_t i = 0; i < names_.size(); ++i) {
      if (names_[i] == name) return i;
      known += (known.empty() ? "'" : ", '") + names_[i] + "'";
    }
    return InvalidArgument("there is no lineage '" + name + "' here, only " + known);
  }

  Result<EngineRequest> Translate(const GroupRequest& request) const {
    if (request.lineages.empty()) {
      PrepareRequest part;
      part.session = request.session;
      part.target_version = request.target_version;
      return RequestOfAll(part);
    }
    if (request.target_version) {
      return InvalidArgument(
          "a version for all lineages and versions for some of them are asked "
          "for at once");
    }
    EngineRequest translated;
    translated.session = request.session;
    translated.lineages.resize(size());
    for (const auto& [name, part] : request.lineages) {
      SEGUE_ASSIGN_OR_RETURN(const std::size_t i, Find(name));
      translated.lineages[i] = part;
    }
    return translated;
  }

  Status RebuildTo(const std::map<std::string, std::uint64_t>& targets) {
    GroupRequest request;
    for (const auto& [name, version] : targets) request.lineages[name].target_version = version;
    SEGUE_ASSIGN_OR_RETURN(const EngineRequest translated, Translate(request));
    for (std::size_t i = 0; i < size(); ++i) {
      if (translated.lineages[i]) continue;
      return InvalidArgument("a rebuild is of all lineages: there is no version for '" + names_[i] +
                             "'");
    }
    return Rebuild(translated);
  }

 private:
  std::vector<std::string> names_;
};

Result<std::unique_ptr<ReceiverGroup>> ReceiverGroup::Open(const GroupOptions& options) {
  return ReceiverInternals::Open(options, SystemLiveEnvironment());
}

Result<std::unique_ptr<ReceiverGroup>> ReceiverGroup::Open(const GroupOptions& options,
                                                           std::vector<BoundModel> models) {
  SEGUE_RETURN_IF_ERROR(CheckOptions(options));
  if (models.size() != options.lineages.size()) {
    return InvalidArgument(std::to_string(models.size()) + " models for " +
                           std::to_string(options.lineages.size()) + " lineages");
  }
  auto impl = std::make_unique<Impl>(options, SystemLiveEnvironment());
  SEGUE_RETURN_IF_ERROR(impl->StartBound(std::move(models)));
  return std::unique_ptr<ReceiverGroup>(new ReceiverGroup(std::move(impl)));
}

Result<std::unique_ptr<ReceiverGroup>> ReceiverInternals::Open(const GroupOptions& options,
                                                               LiveEnvironment& environment) {
  SEGUE_RETURN_IF_ERROR(CheckOptions(options));
  auto impl = std::make_unique<ReceiverGroup::Impl>(options, environment);
  SEGUE_RETURN_IF_ERROR(impl->Start());
  return std::unique_ptr<ReceiverGroup>(new ReceiverGroup(std::move(impl)));
}

ReceiverGroup::ReceiverGroup(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
ReceiverGroup::~ReceiverGroup() = default;

Status ReceiverGroup::Prepare(const GroupRequest& request) {
  SEGUE_ASSIGN_OR_RETURN(const EngineRequest translated, impl_->Translate(request));
  return impl_->Prepare(translated);
}
Status ReceiverGroup::WaitPrepared() { return impl_->WaitPrepared(); }
Status ReceiverGroup::Apply(const std::string& session, const ApplyChoices& choices) {
  return impl_->Apply(session, choices);
}
Status ReceiverGroup::Resume(const std::string& session, bool keep_pause) {
  return impl_->Resume(session, keep_pause);
}
Status ReceiverGroup::Abort(const std::string& session) { return impl_->Abort(session); }
Status ReceiverGroup::Clear() { return impl_->Clear(); }
Status ReceiverGroup::CheckWeights() const { return impl_->CheckWeights(); }
Status ReceiverGroup::Update(const GroupRequest& request, const ApplyChoices& choices) {
  SEGUE_ASSIGN_OR_RETURN(const EngineRequest translated, impl_->Translate(request));
  return impl_->Update(translated, choices);
}
Status ReceiverGroup::Rebuild(const std::map<std::string, std::uint64_t>& targets) {
  return impl_->RebuildTo(targets);
}
Status ReceiverGroup::Rebuild(std::uint64_t target_version) {
  PrepareRequest part;
  part.target_version = target_version;
  return impl_->Rebuild(impl_->RequestOfAll(part));
}
Status ReceiverGroup::Release() { return impl_->Release(); }
void ReceiverGroup::GiveUpStore() { impl_->GiveUpStore(); }
Status ReceiverGroup::Follow(std::chrono::milliseconds interval) { return impl_->Follow(interval); }

// Of one moment: once more where an update has moved a lineage in between.
std::vector<ReceiverStatus> ReceiverGroup::status() const {
  std::vector<ReceiverStatus> all;
  for (int tries = 0; tries < kSnapshotTriesMax; ++tries) {
    all.clear();
    for (std::size_t i = 0; i < impl_->size(); ++i) all.push_back(impl_->GetStatus(i));
    if (std::ranges::equal(all, impl_->held_versions(), {}, &ReceiverStatus::version)) break;
  }
  return all;
}

std::vector<ReceiverCounts> ReceiverGroup::counts() const {
  std::vector<ReceiverCounts> all;
  for (std::size_t i = 0; i < impl_->size(); ++i) all.push_back(impl_->GetCounts(i));
  return all;
}

Result<std::vector<std::uint64_t>> ReceiverGroup::Versions(const std::string& lineage) const {
  SEGUE_ASSIGN_OR_RETURN(const std::size_t i, impl_->Find(lineage));
  return impl_->Versions(i);
}

}  // namespace segue
