// SPDX-License-Identifier: Apache-2.0
//
// The machine's environment: waits end when they should, tasks end with their object.
#include "sync/environment.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <atomic>
#include <thread>

namespace segue {
namespace {

using std::chrono::hours;
using std::chrono::milliseconds;

TEST(EnvironmentTest, SleepLastsAndAStopEndsIt) {
  Environment& machine = SystemEnvironment();
  const auto start = machine.Now();
  machine.Sleep(milliseconds(20), {});
  EXPECT_GE(machine.Now() - start, milliseconds(20));
  const auto task = machine.Start(TaskPriority::kNormal, [&](const std::stop_token& stop) {
    machine.Sleep(hours(1), stop);
    EXPECT_TRUE(stop.stop_requested());
  });
  task->RequestStop();
}

TEST(EnvironmentTest, ATaskEndsWithItsObject) {
  std::atomic<bool> ended{false};
  {
    const auto task =
        SystemEnvironment().Start(TaskPriority::kLow, [&](const std::stop_token& stop) {
          SystemEnvironment().Sleep(hours(1), stop);
          ended = true;
        });
  }
  EXPECT_TRUE(ended);
}

TEST(EnvironmentTest, AwaitSeesWhatAnotherThreadDoes) {
  std::mutex mutex;
  std::condition_variable changed;
  bool done = false;
  const auto task = SystemEnvironment().Start(TaskPriority::kNormal, [&](const std::stop_token&) {
    const std::lock_guard lock(mutex);
    done = true;
    changed.notify_all();
  });
  std::unique_lock lock(mutex);
  SystemEnvironment().Await(lock, changed, [&] { return done; });
  EXPECT_TRUE(done && lock.owns_lock());
}

TEST(EnvironmentTest, LowPriorityIsTheTasksAlone) {
  const auto nice = [] { return ::getpriority(PRIO_PROCESS, static_cast<id_t>(::gettid())); };
  const int own = nice();
  std::atomic<int> low{own};
  {
    const auto task =
        SystemEnvironment().Start(TaskPriority::kLow, [&](const auto&) { low = nice(); });
  }
  EXPECT_GE(low, own);
  EXPECT_EQ(nice(), own);
}

// Nor is it raised, for a process that was started with less than it.
TEST(EnvironmentTest, WhatIsLowerStaysSo) {
  const auto nice = [] { return ::getpriority(PRIO_PROCESS, static_cast<id_t>(::gettid())); };
  constexpr int kLowest = 19;
  std::atomic<int> low{0};
  std::jthread([&] {
    ASSERT_EQ(::setpriority(PRIO_PROCESS, static_cast<id_t>(::gettid()), kLowest), 0);
    const auto task =
        SystemEnvironment().Start(TaskPriority::kLow, [&](const auto&) { low = nice(); });
  }).join();
  EXPECT_EQ(low, kLowest);
}

}  // namespace
}  // namespace segue
