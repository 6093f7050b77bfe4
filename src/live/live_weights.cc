// SPDX-License-Identifier: Apache-2.0
//
// Live weights in a segment.
#include "live/live_weights.h"

#include <utility>

namespace segue {
namespace {

class SegmentWeights final : public LiveWeights {
 public:
  explicit SegmentWeights(std::unique_ptr<Segment> segment)
      : segment_(std::move(segment)),
        plan_(segment_->plan()),
        map_(LiveMap::Whole(segment_->plan(), segment_->view())) {}

  const Plan& plan() const override { return plan_.get(); }
  void AdoptPlan(Plan plan) override { plan_.Adopt(std::move(plan)); }
  const LiveMap& map() const override { return map_; }
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
  const LiveMap map_;
};

}  // namespace

std::unique_ptr<LiveWeights> MakeSegmentWeights(std::unique_ptr<Segment> segment) {
  return std::make_unique<SegmentWeights>(std::move(segment));
}

}  // namespace segue
