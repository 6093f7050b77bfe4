// SPDX-License-Identifier: Apache-2.0
//
// Threads: run an indexed job on several threads, and the same with results taken in order. The
// work is cut by index, so what comes out does not depend on how many threads ran it. Where the
// system gives fewer threads than were asked for, fewer do the work; memory that runs out in one of
// them is a status like any other.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <mutex>
#include <new>
#include <optional>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/limits.h"
#include "base/out_of_memory.h"
#include "segue/status.h"

namespace segue {

// The number of threads to use: `requested`, or every core when it is 0.
inline unsigned ThreadCount(unsigned requested) {
  const unsigned count = requested != 0 ? requested : std::thread::hardware_concurrency();
  return count == 0 ? 1 : (count > limits::kThreadCountMax ? limits::kThreadCountMax : count);
}

// Threads that run body(1), body(2), ... up to body(count): fewer where the system has no more of
// them, or no memory for them.
template <typename Body>
std::vector<std::jthread> MakeThreads(unsigned count, const Body& body) {
  std::vector<std::jthread> threads;
  try {
    threads.reserve(count);
    for (unsigned thread = 1; thread <= count; ++thread) threads.emplace_back(body, thread);
  } catch (const std::system_error&) {  // Whoever asked goes on with those that there are.
  } catch (const std::bad_alloc&) {
  }
  return threads;
}

// One run of job(index, thread) -> Status over every index below `count`, shared by the threads
// that take part. The first failure stops the taking of new indexes.
template <typename Job>
class IndexedJob {
 public:
  IndexedJob(std::size_t count, Job& job) : count_(count), job_(job) { (void)OutOfMemory(); }

  // On each thread: takes indexes until none is left.
  void Run(unsigned thread) {
    for (;;) {
      const std::size_t index = next_.fetch_add(1, std::memory_order_relaxed);
      if (index >= count_ || failed_.load(std::memory_order_relaxed)) return;
      Status status = CatchOutOfMemory([&]() -> Status { return job_(index, thread); });
      if (status.ok()) continue;
      const std::lock_guard lock(mutex_);
      if (!failed_.exchange(true)) failure_ = std::move(status);
    }
  }

  // Once all have returned.
  Status Failure() const { return failure_; }

 private:
  const std::size_t count_;
  Job& job_;
  std::atomic<std::size_t> next_{0};
  std::atomic<bool> failed_{false};
  std::mutex mutex_;
  Status failure_;
};

// Calls job(index, thread) for every index below `count`; job returns Status. The first failure
// stops the taking of new indexes and is returned.
template <typename Job>
Status ParallelFor(std::size_t count, unsigned thread_count, Job&& job) {
  IndexedJob work(count, job);
  const std::size_t wanted = ThreadCount(thread_count);
  const auto extra =
      static_cast<unsigned>(count < wanted ? (count == 0 ? 0 : count - 1) : wanted - 1);
  {
    const auto threads = MakeThreads(extra, [&work](unsigned thread) { work.Run(thread); });
    work.Run(0);
  }
  return work.Failure();
}

// produce(index, thread) -> Result<T> runs on several threads; consume(index, T&&) -> Status is
// called with every result in the order of the indexes, one at a time. At most 2 results a thread
// are held, so memory stays bounded however slow the consumer is.
template <typename T, typename Produce, typename Consume>
Status ParallelOrdered(std::size_t count, unsigned thread_count, Produce&& produce,
                       Consume&& consume) {
  const std::size_t threads = ThreadCount(thread_count);
  const std::size_t window = 2 * threads;
  std::vector<std::optional<T>> slots(window);
  std::mutex mutex;
  std::condition_variable changed;
  std::size_t consumed = 0;
  bool consuming = false;
  bool failed = false;
  Status failure;
  const auto fail = [&](Status status) {
    if (!std::exchange(failed, true)) failure = std::move(status);
    changed.notify_all();
  };
  // Called with the lock held: takes finished results in order, one thread at a time.
  const auto drain = [&](std::unique_lock<std::mutex>& lock) {
    if (consuming) return;
    consuming = true;
    while (!failed && consumed < count && slots[consumed % window].has_value()) {
      T value = std::move(*slots[consumed % window]);
      slots[consumed % window].reset();
      lock.unlock();
      Status status =
          CatchOutOfMemory([&]() -> Status { return consume(consumed, std::move(value)); });
      lock.lock();
      if (!status.ok()) fail(std::move(status));
      ++consumed;
      changed.notify_all();
    }
    consuming = false;
  };
  const auto job = [&](std::size_t index, unsigned thread) -> Status {
    {
      std::unique_lock lock(mutex);
      changed.wait(lock, [&] { return failed || index < consumed + window; });
      if (failed) return failure;
    }
    Result<T> result = CatchOutOfMemory([&]() -> Result<T> { return produce(index, thread); });
    std::unique_lock lock(mutex);
    if (!result.ok()) {
      fail(result.status());
      return result.status();
    }
    slots[index % window] = std::move(result).value();
    drain(lock);
    return failed ? failure : Status();
  };
  SEGUE_RETURN_IF_ERROR(ParallelFor(count, thread_count, job));
  SEGUE_CHECK(consumed == count);
  return {};
}

}  // namespace segue
