// SPDX-License-Identifier: Apache-2.0
//
// Environment: what publishers and receivers need of the world and do not decide themselves: how a
// store is opened, what time it is, waiting, and work in the background. There are two: the machine
// (here) and the simulator's (tests/sim), under which the same code runs from a seed.
//
// What src/sync and src/live do with time and threads goes through here, figures for reports and
// the threads inside one computation aside (docs/design.md, decision 13).
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <stop_token>
#include <string>

#include "segue/publish.h"
#include "segue/status.h"
#include "store/store.h"

namespace segue {

// Work in the background. The destructor asks it to stop and waits for its end.
class BackgroundTask {
 public:
  virtual ~BackgroundTask() = default;
  virtual void RequestStop() = 0;
};

// Low: gives way to whatever else the machine does.
enum class TaskPriority { kNormal, kLow };

class Environment {
 public:
  using Clock = std::chrono::steady_clock;
  using Body = std::function<void(const std::stop_token& stop)>;

  virtual ~Environment() = default;

  virtual Result<std::unique_ptr<Store>> OpenStore(const std::string& url, bool create) = 0;
  virtual Clock::time_point Now() = 0;
  // That nobody else draws: for names.
  virtual std::uint64_t RandomNumber() = 0;
  // Returns when `time` has passed, or before that when a stop is requested.
  virtual void Sleep(Clock::duration time, const std::stop_token& stop) = 0;
  // Gives `lock` up until `done()` is true, which is asked with the lock held. Whoever makes it
  // true notifies `changed`.
  virtual void Await(std::unique_lock<std::mutex>& lock, std::condition_variable& changed,
                     const std::function<bool()>& done) = 0;
  virtual std::unique_ptr<BackgroundTask> Start(TaskPriority priority, Body body) = 0;
};

// The machine as it is. Lives as long as the program.
Environment& SystemEnvironment();

// Publish() in another world than this machine.
Result<PublishReport> PublishIn(Environment& environment, const PublishOptions& options);

}  // namespace segue
