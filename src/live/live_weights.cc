// SPDX-License-Identifier: Apache-2.0
//
// The two kinds of live weights.
#include "live/live_weights.h"

#include <mutex>
#include <utility>

namespace segue {
namespace {

class SegmentWeights final : public LiveWeights {
 public:
  explicit SegmentWeights(std::unique_ptr<Segment> segment)
      : segment_(std::move(segment)), plan_(segment_->plan()) {}

  const Plan& plan() const override { return plan_.get(); }
  void AdoptPlan(Plan plan) override { plan_.Adopt(std::move(plan)); }
  MutableModelView view() override { return segment_->view(); }
  Gate& gate() override { return segment_->gate(); }
  Phase phase() const override { return segment_->phase(); }
  LiveVersion version() const override { return segment_->version(); }
  void BeginApply(std::uint64_t target_version) override { segment_->BeginApply(target_version); }
  void Commit(std::uint64_t version, const Digest& digest) override {
    segment_->CommitVersion(version, digest);
  }
  void SetPhase(Phase phase) override { segment_->SetPhase(phase); }
  unsigned engine_count() const override { return segment_->engine_count(); }

 private:
  std::unique_ptr<Segment> segment_;
  PlanSlot plan_;
};

class BoundWeights final : public LiveWeights {
 public:
  BoundWeights(Plan plan, MutableModelView view, const std::string& lineage, Gate& gate)
      : first_plan_(std::move(plan)), view_(std::move(view)), gate_(gate) {
    version_.lineage = lineage;
  }

  const Plan& plan() const override { return plan_.get(); }
  void AdoptPlan(Plan plan) override { plan_.Adopt(std::move(plan)); }
  MutableModelView view() override { return view_; }
  Gate& gate() override { return gate_; }
  Phase phase() const override {
    const std::lock_guard lock(mutex_);
    return phase_;
  }
  LiveVersion version() const override {
    const std::lock_guard lock(mutex_);
    return version_;
  }
  void BeginApply(std::uint64_t target_version) override {
    const std::lock_guard lock(mutex_);
    version_.target_version = target_version;
    phase_ = Phase::kApplying;
  }
  void Commit(std::uint64_t version, const Digest& digest) override {
    const std::lock_guard lock(mutex_);
    if (phase_ == Phase::kApplying) ++version_.applied_count;
    version_.version = version_.target_version = version;
    version_.digest = digest;
    phase_ = Phase::kServing;
  }
  void SetPhase(Phase phase) override {
    const std::lock_guard lock(mutex_);
    phase_ = phase;
  }
  unsigned engine_count() const override { return 1; }

 private:
  const Plan first_plan_;
  PlanSlot plan_{first_plan_};
  const MutableModelView view_;
  Gate& gate_;
  mutable std::mutex mutex_;
  Phase phase_ = Phase::kLoading;
  LiveVersion version_;
};

}  // namespace

std::unique_ptr<LiveWeights> MakeSegmentWeights(std::unique_ptr<Segment> segment) {
  return std::make_unique<SegmentWeights>(std::move(segment));
}

std::unique_ptr<LiveWeights> MakeBoundWeights(Plan plan, MutableModelView view,
                                              const std::string& lineage, Gate& gate) {
  return std::make_unique<BoundWeights>(std::move(plan), std::move(view), lineage, gate);
}

}  // namespace segue
