// SPDX-License-Identifier: Apache-2.0
//
// Live weights in a segment.
#include "live/live_weights.h"

#include <utility>

#include "base/out_of_memory.h"

namespace segue {
namespace {

class SegmentWeights final : public LiveWeights {
 public:
  SegmentWeights(std::unique_ptr<Segment> segment, std::string remove_as)
      : segment_(std::move(segment)),
        remove_as_(std::move(remove_as)),
        plan_(segment_->plan()),
        map_(LiveMap::Whole(segment_->plan(), segment_->view())) {}

  // Nobody else's receiver has the segment yet, so what is removed is this one.
  ~SegmentWeights() override {
    // Nobody is left to be told.
    if (!remove_as_.empty()) (void)CatchOutOfMemory([this] { return Segment::Remove(remove_as_); });
  }
  SegmentWeights(const SegmentWeights&) = delete;
  SegmentWeights& operator=(const SegmentWeights&) = delete;

  const Plan& plan() const override { return plan_.get(); }
  void AdoptPlan(Plan plan) override { plan_.Adopt(std::move(plan)); }
  const LiveMap& map() const override { return map_; }
  Gate& gate() override { return segment_->gate(); }
  Phase phase() const override { return segment_->phase(); }
  LiveVersion version() const override { return segment_->version(); }
  void Announce(std::uint64_t target_version, const std::vector<std::string>& mates) override {
    segment_->Announce(target_version, mates);
  }
  std::vector<std::string> mates() const override { return segment_->mates(); }
  void BeginApply(std::uint64_t target_version) override { segment_->BeginApply(target_version); }
  void Commit(std::uint64_t version, const Digest& digest) override {
    segment_->CommitVersion(version, digest);
    remove_as_.clear();
  }
  void SetPhase(Phase phase) override { segment_->SetPhase(phase); }
  Status CheckCurrent() const override { return segment_->CheckThere(); }
  unsigned engine_count() const override { return segment_->engine_count(); }

 private:
  std::unique_ptr<Segment> segment_;
  std::string remove_as_;
  PlanSlot plan_;
  const LiveMap map_;
};

}  // namespace

std::unique_ptr<LiveWeights> MakeSegmentWeights(std::unique_ptr<Segment> segment,
                                                std::string remove_as) {
  return std::make_unique<SegmentWeights>(std::move(segment), std::move(remove_as));
}

}  // namespace segue
