// SPDX-License-Identifier: Apache-2.0
//
// Receiver: the states (live/receiver_core.h) over one lineage.
#include "segue/receiver.h"

#include <utility>

#include "live/live_environment.h"
#include "live/receiver_core.h"
#include "live/segment.h"

namespace segue {

class Receiver::Impl : public ReceiverCore {
 public:
  Impl(const ReceiverOptions& options, LiveEnvironment& environment)
      : ReceiverCore({options}, options.hooks, /*same_version=*/false, environment) {}
  Impl(const ReceiverOptions& options, const ReceiverOptions& further, LiveEnvironment& environment)
      : ReceiverCore({options, further}, options.hooks, /*same_version=*/true, environment) {}
  ~Impl() override { EndTasks(); }
};

Status RemoveSegment(const std::string& name) { return Segment::Remove(name); }

Result<std::unique_ptr<Receiver>> Receiver::Open(const ReceiverOptions& options) {
  return ReceiverInternals::Open(options, SystemLiveEnvironment());
}

Result<std::unique_ptr<Receiver>> Receiver::Open(const ReceiverOptions& options, BoundModel model) {
  return ReceiverInternals::Open(options, std::move(model), SystemLiveEnvironment());
}

Result<std::unique_ptr<Receiver>> ReceiverInternals::Open(const ReceiverOptions& options,
                                                          LiveEnvironment& environment) {
  auto impl = std::make_unique<Receiver::Impl>(options, environment);
  SEGUE_RETURN_IF_ERROR(impl->Start());
  return std::unique_ptr<Receiver>(new Receiver(std::move(impl)));
}

Result<std::unique_ptr<Receiver>> ReceiverInternals::Open(const ReceiverOptions& options,
                                                          BoundModel model,
                                                          LiveEnvironment& environment) {
  auto impl = std::make_unique<Receiver::Impl>(options, environment);
  std::vector<BoundModel> models;
  models.push_back(std::move(model));
  SEGUE_RETURN_IF_ERROR(impl->StartBound(std::move(models)));
  return std::unique_ptr<Receiver>(new Receiver(std::move(impl)));
}

Result<std::unique_ptr<Receiver>> ReceiverInternals::OpenPair(const ReceiverOptions& options,
                                                              const std::string& further,
                                                              LiveEnvironment& environment) {
  ReceiverOptions second = options;
  second.name = further;
  auto impl = std::make_unique<Receiver::Impl>(options, second, environment);
  SEGUE_RETURN_IF_ERROR(impl->Start());
  return std::unique_ptr<Receiver>(new Receiver(std::move(impl)));
}

Receiver::Receiver(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Receiver::~Receiver() = default;

Status Receiver::Prepare(const PrepareRequest& request) {
  return impl_->Prepare(impl_->RequestOfAll(request));
}
Status Receiver::WaitPrepared() { return impl_->WaitPrepared(); }
Status Receiver::Apply(const std::string& session, const ApplyChoices& choices) {
  return impl_->Apply(session, choices);
}
Status Receiver::Resume(const std::string& session, bool keep_pause) {
  return impl_->Resume(session, keep_pause);
}
Status Receiver::Abort(const std::string& session) { return impl_->Abort(session); }
Status Receiver::Clear() { return impl_->Clear(); }
Result<UpdateReport> Receiver::Update(const PrepareRequest& request, const ApplyChoices& choices) {
  SEGUE_RETURN_IF_ERROR(impl_->Update(impl_->RequestOfAll(request), choices));
  return status().last;
}
Status Receiver::Rebuild(std::optional<std::uint64_t> target_version) {
  PrepareRequest request;
  request.target_version = target_version;
  return impl_->Rebuild(impl_->RequestOfAll(request));
}
Status Receiver::Release() { return impl_->Release(); }
Status Receiver::Follow(std::chrono::milliseconds interval) { return impl_->Follow(interval); }
void Receiver::GiveUpStore() { impl_->GiveUpStore(); }
Result<std::vector<std::uint64_t>> Receiver::Versions() const { return impl_->Versions(0); }
Status Receiver::CheckWeights() const { return impl_->CheckWeights(); }
ReceiverCounts Receiver::counts() const { return impl_->GetCounts(0); }
ReceiverStatus Receiver::status() const { return impl_->GetStatus(0); }

}  // namespace segue
