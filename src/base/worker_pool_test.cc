// SPDX-License-Identifier: Apache-2.0
//
// Goal: every round runs every index once on no more threads than the pool has, and a failure in
// one round leaves the pool fit for the next.
#include "base/worker_pool.h"

#include <gtest/gtest.h>

#include <atomic>
#include <numeric>

namespace segue {
namespace {

TEST(WorkerPoolTest, EveryIndexOnceInEveryRound) {
  for (const unsigned threads : {1u, 2u, 5u}) {
    WorkerPool pool(threads);
    EXPECT_EQ(pool.size(), threads);
    for (std::size_t count : {0u, 1u, 2u, 3u, 100u}) {
      for (int round = 0; round < 50; ++round) {
        std::vector<std::atomic<int>> seen(count);
        const Status status = ParallelFor(count, pool, [&](std::size_t index, unsigned thread) {
          EXPECT_LT(thread, threads);
          ++seen[index];
          return Status();
        });
        ASSERT_TRUE(status.ok());
        for (const auto& times : seen) ASSERT_EQ(times, 1);
      }
    }
  }
}

TEST(WorkerPoolTest, FailureIsReturnedAndThePoolGoesOn) {
  WorkerPool pool(3);
  const auto run = [&](bool fail) {
    return ParallelFor(20, pool, [&](std::size_t index, unsigned) {
      return fail && index == 7 ? Corruption("index 7") : Status();
    });
  };
  EXPECT_EQ(run(true).ToString(), "corruption: index 7");
  EXPECT_TRUE(run(false).ok());
}

}  // namespace
}  // namespace segue
