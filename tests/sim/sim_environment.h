// SPDX-License-Identifier: Apache-2.0
//
// SimEnvironment: what the real publisher and receiver of one process get instead of the machine.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "live/live_environment.h"
#include "sim/sim_device.h"
#include "sim/sim_store.h"
#include "sim/sim_weights.h"
#include "sim/world.h"

namespace segue::sim {

// For processes whose puts are nobody's business.
inline StoreState::Observer NoObserver() {
  return [](const std::string&, ByteSpan) {};
}

class SimEnvironment final : public LiveEnvironment {
 public:
  // `observers`: who sees what this process puts into the store. `segment`: where it
  // writes.
  SimEnvironment(World& world, StoreState& store, SimMemory& memory,
                 StoreState::Observers observers, SegmentAt segment)
      : world_(world),
        store_(store),
        memory_(memory),
        observers_(std::move(observers)),
        segment_(std::move(segment)) {}

  Result<std::unique_ptr<Store>> OpenStore(const std::string& url, bool create) override;
  Clock::time_point Now() override { return world_.now(); }
  std::uint64_t RandomNumber() override { return world_.random().Next(); }
  void Sleep(Clock::duration time, const std::stop_token& stop) override;
  void Await(std::unique_lock<std::mutex>& lock, std::condition_variable& changed,
             const std::function<bool()>& done) override;
  std::unique_ptr<BackgroundTask> Start(TaskPriority priority, Body body) override;

  std::unique_ptr<Device> MakeDevice(unsigned threads) override;
  Result<std::unique_ptr<LiveWeights>> OpenWeights(const std::string& name) override;
  Result<std::unique_ptr<LiveWeights>> CreateWeights(const std::string& name, const Plan& plan,
                                                     const std::string& lineage) override;
  Status RemoveWeights(const std::string& name) override;

 private:
  World& world_;
  StoreState& store_;
  SimMemory& memory_;
  const StoreState::Observers observers_;
  const SegmentAt segment_;
};

}  // namespace segue::sim
