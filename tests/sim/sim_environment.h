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

class SimEnvironment final : public LiveEnvironment {
 public:
  // `observer`: sees what this process puts into the store. `segment`: the one that it writes to.
  SimEnvironment(World& world, StoreState& store, SimMemory& memory, StoreState::Observer observer,
                 std::function<SimSegment*()> segment)
      : world_(world),
        store_(store),
        memory_(memory),
        observer_(std::move(observer)),
        segment_(std::move(segment)) {}

  Result<std::unique_ptr<Store>> OpenStore(const std::string& url, bool create) override;
  Clock::time_point Now() override { return world_.now(); }
  void Sleep(Clock::duration time, const std::stop_token& stop) override;
  void Await(std::unique_lock<std::mutex>& lock, std::condition_variable& changed,
             const std::function<bool()>& done) override;
  std::unique_ptr<BackgroundTask> Start(TaskPriority priority, Body body) override;

  std::unique_ptr<Device> MakeDevice(unsigned threads) override;
  Result<std::unique_ptr<LiveWeights>> OpenWeights(const std::string& name) override;
  Result<std::unique_ptr<LiveWeights>> CreateWeights(const std::string& name, const Plan& plan,
                                                     const std::string& lineage) override;

 private:
  World& world_;
  StoreState& store_;
  SimMemory& memory_;
  const StoreState::Observer observer_;
  const std::function<SimSegment*()> segment_;
};

}  // namespace segue::sim
