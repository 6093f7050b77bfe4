// SPDX-License-Identifier: Apache-2.0
//
// ForwardingEnvironment: stands before another environment. What is new in `Environment` is passed
// on here, once, for all that wrap one; devices and weights are for each to say, unless they are
// those of the other one, too (ForwardingLiveEnvironment).
#pragma once

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "live/live_environment.h"

namespace segue {

class ForwardingEnvironment : public LiveEnvironment {
 public:
  // It must outlive this one.
  explicit ForwardingEnvironment(Environment& inner) : inner_(inner) {}

  Result<std::unique_ptr<Store>> OpenStore(const std::string& url, bool create) override {
    return inner_.OpenStore(url, create);
  }
  Clock::time_point Now() override { return inner_.Now(); }
  std::uint64_t RandomNumber() override { return inner_.RandomNumber(); }
  void Sleep(Clock::duration time, const std::stop_token& stop) override {
    inner_.Sleep(time, stop);
  }
  void Await(std::unique_lock<std::mutex>& lock, std::condition_variable& changed,
             const std::function<bool()>& done) override {
    inner_.Await(lock, changed, done);
  }
  std::unique_ptr<BackgroundTask> Start(TaskPriority priority, Body body) override {
    return inner_.Start(priority, std::move(body));
  }

 private:
  Environment& inner_;
};

class ForwardingLiveEnvironment : public ForwardingEnvironment {
 public:
  // It must outlive this one.
  explicit ForwardingLiveEnvironment(LiveEnvironment& inner)
      : ForwardingEnvironment(inner), inner_(inner) {}

  std::unique_ptr<Device> MakeDevice(unsigned threads) override {
    return inner_.MakeDevice(threads);
  }
  Result<std::shared_ptr<Accelerator>> OpenAccelerator(
      const std::string& name, unsigned threads, const AcceleratorOptions& options) override {
    return inner_.OpenAccelerator(name, threads, options);
  }
  Result<std::unique_ptr<LiveWeights>> OpenWeights(const std::string& name) override {
    return inner_.OpenWeights(name);
  }
  bool IsPoisoned(const std::string& name) override { return inner_.IsPoisoned(name); }
  Result<std::unique_ptr<LiveWeights>> CreateWeights(const std::string& name, const Plan& plan,
                                                     const std::string& lineage) override {
    return inner_.CreateWeights(name, plan, lineage);
  }
  Status RemoveWeights(const std::string& name) override { return inner_.RemoveWeights(name); }

 private:
  LiveEnvironment& inner_;
};

}  // namespace segue
