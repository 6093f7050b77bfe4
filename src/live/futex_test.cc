// SPDX-License-Identifier: Apache-2.0
//
// Futex: waits end by value, by time, and by a wake from another process.
#include "live/futex.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <atomic>

#include "live/testing.h"

namespace segue {
namespace {

using namespace std::chrono_literals;
using std::chrono::milliseconds;
using std::chrono::steady_clock;

TEST(Futex, DeadlinesDoNotWrap) {
  for (const milliseconds past : {milliseconds::min(), milliseconds(-1), 0ms}) {
    const SteadyTime deadline = DeadlineAfter(past);
    EXPECT_LE(deadline, steady_clock::now());
  }
  EXPECT_GT(DeadlineAfter(milliseconds::max()), steady_clock::now() + 24h);
}

TEST(Futex, EndsByValueAndByTime) {
  std::uint32_t word = 1;
  FutexWait(&word, 0, DeadlineAfter(milliseconds::max()));
  const SteadyTime deadline = DeadlineAfter(3ms);
  while (steady_clock::now() < deadline) FutexWait(&word, 1, deadline);
  FutexWait(&word, 1, deadline);
}

TEST(Futex, WakesAnotherProcess) {
  void* const page =
      ::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(page, MAP_FAILED);
  auto* const words = static_cast<std::uint32_t*>(page);
  const std::atomic_ref<std::uint32_t> word(words[0]);
  test::Child child([&] {
    while (word.load() == 0) FutexWait(words, 0, DeadlineAfter(120s));
    return 0;
  });
  word.store(1);
  FutexWakeAll(words);
  EXPECT_EQ(child.Join(), 0);
  ::munmap(page, 4096);
}

}  // namespace
}  // namespace segue
