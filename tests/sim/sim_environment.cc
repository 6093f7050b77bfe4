// SPDX-License-Identifier: Apache-2.0
//
// SimEnvironment: fibers for threads, the world's clock for the machine's.
#include "sim/sim_environment.h"

#include <utility>

namespace segue::sim {
namespace {

class FiberTask final : public BackgroundTask {
 public:
  FiberTask(World& world, TaskPriority priority, Environment::Body body)
      : world_(world),
        fiber_(world.Start(world.process(), priority == TaskPriority::kLow ? "low" : "task",
                           [stop = stop_.get_token(), body = std::move(body)] { body(stop); })) {}
  ~FiberTask() override {
    stop_.request_stop();
    world_.Join(fiber_);
  }
  void RequestStop() override { stop_.request_stop(); }

 private:
  World& world_;
  std::stop_source stop_;
  const std::uint64_t fiber_;
};

}  // namespace

Result<std::unique_ptr<Store>> SimEnvironment::OpenStore(const std::string& url, bool) {
  return std::unique_ptr<Store>(std::make_unique<SimStore>(world_, store_, url, observers_));
}

void SimEnvironment::Sleep(Clock::duration time, const std::stop_token& stop) {
  world_.Sleep(time, stop);
}

void SimEnvironment::Await(std::unique_lock<std::mutex>& lock, std::condition_variable&,
                           const std::function<bool()>& done) {
  // One thread runs all fibers: nobody else can be inside while `done` is asked.
  lock.unlock();
  (void)world_.Await(done);
  lock.lock();
}

std::unique_ptr<BackgroundTask> SimEnvironment::Start(TaskPriority priority, Body body) {
  return std::make_unique<FiberTask>(world_, priority, std::move(body));
}

std::unique_ptr<Device> SimEnvironment::MakeDevice(unsigned) {
  return std::make_unique<SimDevice>(world_, segment_);
}

Result<std::unique_ptr<LiveWeights>> SimEnvironment::OpenWeights(const std::string& name) {
  return memory_.Open(name);
}

Result<std::unique_ptr<LiveWeights>> SimEnvironment::CreateWeights(const std::string& name,
                                                                   const Plan& plan,
                                                                   const std::string& lineage) {
  return memory_.Create(name, plan, lineage);
}

Status SimEnvironment::RemoveWeights(const std::string& name) { return memory_.Remove(name); }

}  // namespace segue::sim
