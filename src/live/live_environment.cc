// SPDX-License-Identifier: Apache-2.0
//
// The machine's live environment: SystemEnvironment() with host devices and segments.
#include "live/live_environment.h"

#include <utility>

#include "live/segment.h"

namespace segue {
namespace {

class LiveMachine final : public LiveEnvironment {
 public:
  Result<std::unique_ptr<Store>> OpenStore(const std::string& url, bool create) override {
    return SystemEnvironment().OpenStore(url, create);
  }
  Clock::time_point Now() override { return SystemEnvironment().Now(); }
  std::uint64_t RandomNumber() override { return SystemEnvironment().RandomNumber(); }
  void Sleep(Clock::duration time, const std::stop_token& stop) override {
    SystemEnvironment().Sleep(time, stop);
  }
  void Await(std::unique_lock<std::mutex>& lock, std::condition_variable& changed,
             const std::function<bool()>& done) override {
    SystemEnvironment().Await(lock, changed, done);
  }
  std::unique_ptr<BackgroundTask> Start(TaskPriority priority, Body body) override {
    return SystemEnvironment().Start(priority, std::move(body));
  }

  std::unique_ptr<Device> MakeDevice(unsigned threads) override { return MakeHostDevice(threads); }
  Result<std::unique_ptr<LiveWeights>> OpenWeights(const std::string& name) override {
    SEGUE_ASSIGN_OR_RETURN(auto segment, Segment::Open(name));
    return MakeSegmentWeights(std::move(segment));
  }
  Result<std::unique_ptr<LiveWeights>> CreateWeights(const std::string& name, const Plan& plan,
                                                     const std::string& lineage) override {
    SEGUE_ASSIGN_OR_RETURN(auto segment, Segment::Create(name, plan, lineage));
    // Once, before anybody waits: every later pause is shorter for it.
    segment->CollapseToHugePages();
    return MakeSegmentWeights(std::move(segment), /*remove_as=*/name);
  }
};

}  // namespace

LiveEnvironment& SystemLiveEnvironment() {
  static LiveMachine machine;
  return machine;
}

}  // namespace segue
