// SPDX-License-Identifier: Apache-2.0
//
// Goal: every index runs once, results come in order whatever the timing, the first failure ends
// the run and is returned, and ParallelOrdered holds no more results than it promises.
#include "base/threads.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <exception>
#include <fstream>
#include <new>
#include <numeric>
#include <string>

#include "base/worker_pool.h"

namespace segue {
namespace {

constexpr std::size_t kCounts[] = {0, 1, 2, 3, 100};
constexpr unsigned kThreads[] = {1, 2, 7};

// Uneven work, so that threads overtake one another.
void Dawdle(std::size_t index) {
  if (index % 5 == 0) std::this_thread::sleep_for(std::chrono::microseconds(300));
}

TEST(ThreadsTest, ThreadCountIsNeverZeroAndBounded) {
  EXPECT_GE(ThreadCount(0), 1u);
  EXPECT_EQ(ThreadCount(3), 3u);
  EXPECT_EQ(ThreadCount(1u << 30), limits::kThreadCountMax);
}

TEST(ParallelForTest, RunsEveryIndexOnce) {
  for (const std::size_t count : kCounts) {
    for (const unsigned threads : kThreads) {
      std::vector<std::atomic<int>> runs(count);
      const Status status = ParallelFor(count, threads, [&](std::size_t index, unsigned thread) {
        EXPECT_LT(thread, threads);
        ++runs[index];
        return Status();
      });
      EXPECT_TRUE(status.ok());
      for (const auto& run : runs) EXPECT_EQ(run, 1);
    }
  }
}

TEST(ParallelForTest, FirstFailureStopsTheRest) {
  // Each index takes a while, so that the failing thread need not be quick to be seen.
  std::atomic<std::size_t> runs{0};
  const Status status = ParallelFor(100'000, 4, [&](std::size_t index, unsigned) {
    ++runs;
    std::this_thread::sleep_for(std::chrono::microseconds(index > 10 ? 200 : 0));
    return index == 10 ? Corruption("index 10") : Status();
  });
  EXPECT_EQ(status.ToString(), "corruption: index 10");
  EXPECT_LT(runs, 100'000u);
}

TEST(ParallelOrderedTest, ConsumesInOrderOneAtATime) {
  for (const std::size_t count : kCounts) {
    for (const unsigned threads : kThreads) {
      std::vector<std::size_t> seen;
      std::atomic<int> inside{0};
      const Status status = ParallelOrdered<std::string>(
          count, threads,
          [&](std::size_t index, unsigned) -> Result<std::string> {
            Dawdle(index);
            return std::to_string(index);
          },
          [&](std::size_t index, std::string&& value) {
            EXPECT_EQ(++inside, 1);
            EXPECT_EQ(value, std::to_string(index));
            seen.push_back(index);
            --inside;
            return Status();
          });
      EXPECT_TRUE(status.ok());
      std::vector<std::size_t> expected(count);
      std::iota(expected.begin(), expected.end(), std::size_t{0});
      EXPECT_EQ(seen, expected);
    }
  }
}

TEST(ParallelOrderedTest, HoldsABoundedNumberOfResults) {
  constexpr unsigned kThreadCount = 4;
  std::atomic<std::size_t> started{0};
  std::size_t ahead_max = 0;
  const Status status = ParallelOrdered<int>(
      200, kThreadCount,
      [&](std::size_t, unsigned) -> Result<int> {
        ++started;
        return 0;
      },
      [&](std::size_t index, int&&) {
        std::this_thread::sleep_for(std::chrono::microseconds(100));
        ahead_max = std::max(ahead_max, started - index);
        return Status();
      });
  EXPECT_TRUE(status.ok());
  EXPECT_LE(ahead_max, 2 * kThreadCount);
  EXPECT_GT(ahead_max, 1u);
}

TEST(ParallelOrderedTest, ProducersFailureIsReturned) {
  for (const unsigned threads : kThreads) {
    std::size_t consumed = 0;
    const Status status = ParallelOrdered<int>(
        1000, threads,
        [&](std::size_t index, unsigned) -> Result<int> {
          Dawdle(index);
          if (index == 20) return NotFound("chunk 20");
          return 1;
        },
        [&](std::size_t index, int&&) {
          EXPECT_LT(index, 20u);
          consumed += 1;
          return Status();
        });
    EXPECT_EQ(status.ToString(), "not_found: chunk 20");
    EXPECT_LE(consumed, 20u);
  }
}

TEST(ParallelOrderedTest, ConsumersFailureIsReturnedAndNothingFollows) {
  for (const unsigned threads : kThreads) {
    std::size_t last = 0;
    const Status status = ParallelOrdered<int>(
        1000, threads, [](std::size_t, unsigned) -> Result<int> { return 1; },
        [&](std::size_t index, int&&) {
          last = index;
          return index == 5 ? ResourceExhausted("disk full") : Status();
        });
    EXPECT_EQ(status.ToString(), "resource_exhausted: disk full");
    EXPECT_EQ(last, 5u);
  }
}

TEST(ParallelOrderedTest, FailureWakesThreadsThatWaitForRoom) {
  // The consumer fails on the first result, after the others have filled the window.
  const Status status = ParallelOrdered<int>(
      1000, 8, [](std::size_t, unsigned) -> Result<int> { return 1; },
      [](std::size_t, int&&) {
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
        return Unavailable("gone");
      });
  EXPECT_EQ(status.code(), StatusCode::kUnavailable);
}

// A limit on processes (RLIMIT_NPROC, a container's) or on memory gives fewer threads, not an end.
TEST(ThreadsDeathTest, FewerThreadsDoTheWorkWhereTheSystemHasNoMore) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "sanitizers need more memory than the limit that this sets";
#endif
  const auto run = [](rlim_t memory) {
    const rlimit limit = {memory, memory};
    SEGUE_CHECK(::setrlimit(RLIMIT_AS, &limit) == 0);
    std::atomic<int> runs{0};
    const auto job = [&](std::size_t, unsigned) {
      ++runs;
      return Status();
    };
    WorkerPool pool(64);
    const bool ok = ParallelFor(100, 64, job).ok() && ParallelFor(100, pool, job).ok();
    std::fprintf(stderr, "%d runs, %u in the pool\n", runs.load(), pool.size());
    ::_exit(ok && runs == 200 && pool.size() < 64 ? 0 : 1);
  };
  // What is mapped already and less than the stacks of 64 threads.
  std::ifstream statm("/proc/self/statm");
  rlim_t pages = 0;
  statm >> pages;
  const rlim_t used = pages * static_cast<rlim_t>(::sysconf(_SC_PAGESIZE));
  EXPECT_EXIT(run(used + (rlim_t{64} << 20)), testing::ExitedWithCode(0), "200 runs");
}

TEST(ParallelForTest, MemoryThatRunsOutInAThreadIsAStatus) {
  for (const unsigned threads : kThreads) {
    const auto throws = [](std::size_t index) -> Status {
      if (index == 20) std::rethrow_exception(std::make_exception_ptr(std::bad_alloc()));
      return {};
    };
    const Status status =
        ParallelFor(100, threads, [&](std::size_t index, unsigned) { return throws(index); });
    EXPECT_EQ(status.code(), StatusCode::kResourceExhausted);
    const auto make = [&](std::size_t index, unsigned) -> Result<int> {
      const Status made = throws(index);
      return made.ok() ? Result<int>(1) : made;
    };
    const auto take = [&](std::size_t index, int&&) { return throws(index + 10); };
    for (const bool in_producer : {true, false}) {
      const Status ordered =
          in_producer
              ? ParallelOrdered<int>(100, threads, make,
                                     [](std::size_t, int&&) { return Status(); })
              : ParallelOrdered<int>(
                    100, threads, [](std::size_t, unsigned) -> Result<int> { return 1; }, take);
      EXPECT_EQ(ordered.code(), StatusCode::kResourceExhausted);
    }
  }
}

}  // namespace
}  // namespace segue
