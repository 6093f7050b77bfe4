// SPDX-License-Identifier: Apache-2.0
//
// ForwardingEnvironment: stands before another environment. What is new in `Environment` is passed
// on here, once, for all that wrap one; devices and weights are for each to say.
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

}  // namespace segue
