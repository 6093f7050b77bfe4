// SPDX-License-Identifier: Apache-2.0
//
// The machine's environment: threads, its monotonic clock, the stores of store/.
#include "sync/environment.h"

#include <sys/random.h>
#include <sys/resource.h>
#include <unistd.h>

#include <thread>
#include <utility>

#include "base/check.h"

namespace segue {
namespace {

constexpr int kBackgroundNice = 10;

// The calling thread and those that it starts; what is lower already stays so.
void LowerPriority() {
  // On Linux this is a thread's own; refused where the system forbids it, which costs only manners.
  const auto thread = static_cast<id_t>(::gettid());
  if (::getpriority(PRIO_PROCESS, thread) >= kBackgroundNice) return;
  (void)::setpriority(PRIO_PROCESS, thread, kBackgroundNice);
}

class ThreadTask final : public BackgroundTask {
 public:
  ThreadTask(TaskPriority priority, Environment::Body body)
      : thread_([priority, body = std::move(body)](const std::stop_token& stop) {
          if (priority == TaskPriority::kLow) LowerPriority();
          body(stop);
        }) {}

  void RequestStop() override { thread_.request_stop(); }

 private:
  std::jthread thread_;
};

class Machine final : public Environment {
 public:
  Result<std::unique_ptr<Store>> OpenStore(const std::string& url, bool create) override {
    return segue::OpenStore(url, create);
  }
  Clock::time_point Now() override { return Clock::now(); }
  std::uint64_t RandomNumber() override {
    std::uint64_t number = 0;
    SEGUE_CHECK(::getrandom(&number, sizeof(number), 0) == ssize_t{sizeof(number)});
    return number;
  }
  void Sleep(Clock::duration time, const std::stop_token& stop) override {
    std::mutex mutex;
    std::condition_variable_any changed;
    std::unique_lock lock(mutex);
    changed.wait_for(lock, stop, time, [] { return false; });
  }
  void Await(std::unique_lock<std::mutex>& lock, std::condition_variable& changed,
             const std::function<bool()>& done) override {
    changed.wait(lock, done);
  }
  std::unique_ptr<BackgroundTask> Start(TaskPriority priority, Body body) override {
    return std::make_unique<ThreadTask>(priority, std::move(body));
  }
};

}  // namespace

Environment& SystemEnvironment() {
  static Machine machine;
  return machine;
}

}  // namespace segue
