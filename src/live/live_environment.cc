// SPDX-License-Identifier: Apache-2.0
//
// The machine's live environment: SystemEnvironment() with host devices and segments.
#include "live/live_environment.h"

#include <utility>

#include "live/forwarding_environment.h"
#include "live/segment.h"

namespace segue {
namespace {

class LiveMachine final : public ForwardingEnvironment {
 public:
  LiveMachine() : ForwardingEnvironment(SystemEnvironment()) {}

  std::unique_ptr<Device> MakeDevice(unsigned threads) override { return MakeHostDevice(threads); }
  Result<std::unique_ptr<LiveWeights>> OpenWeights(const std::string& name) override {
    SEGUE_ASSIGN_OR_RETURN(auto segment, Segment::Open(name));
    return MakeSegmentWeights(std::move(segment));
  }
  bool IsPoisoned(const std::string& name) override {
    const auto look = [&name]() -> Result<bool> {
      SEGUE_ASSIGN_OR_RETURN(const SharedMemory object, SharedMemory::Open(name));
      SEGUE_ASSIGN_OR_RETURN(const bool whole, IsSegmentWhole(object));
      if (!whole) return false;
      SEGUE_ASSIGN_OR_RETURN(const bool removed, IsSegmentRemoved(object));
      return removed ? Result<bool>(false) : IsSegmentPoisoned(object);
    };
    const Result<bool> poisoned = look();
    return poisoned.ok() && poisoned.value();
  }
  Result<std::unique_ptr<LiveWeights>> CreateWeights(const std::string& name, const Plan& plan,
                                                     const std::string& lineage) override {
    SEGUE_ASSIGN_OR_RETURN(auto segment, Segment::Create(name, plan, lineage));
    // Once, before anybody waits: every later pause is shorter for it.
    segment->CollapseToHugePages();
    return MakeSegmentWeights(std::move(segment), /*remove_as=*/name);
  }
  Status RemoveWeights(const std::string& name) override { return Segment::Remove(name); }
};

}  // namespace

LiveEnvironment& SystemLiveEnvironment() {
  static LiveMachine machine;
  return machine;
}

}  // namespace segue
