// SPDX-License-Identifier: Apache-2.0
//
// WorkerPool: threads that are made once and wait. What runs inside a pause must create nothing, a
// thread included; ParallelFor over a pool only wakes them.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <thread>
#include <type_traits>
#include <vector>

#include "base/threads.h"

namespace segue {

class WorkerPool {
 public:
  // `threads`: 0 for every core. The caller of Run is one of them; fewer where the system has no
  // more.
  explicit WorkerPool(unsigned threads);
  ~WorkerPool();
  WorkerPool(const WorkerPool&) = delete;
  WorkerPool& operator=(const WorkerPool&) = delete;

  unsigned size() const { return static_cast<unsigned>(threads_.size()) + 1; }

  // Calls job(context, thread) once for every thread below `count` (at most size()), 0 on the
  // caller, and returns when all are done. One caller at a time.
  using Job = void (*)(void* context, unsigned thread);
  void Run(unsigned count, Job job, void* context);

 private:
  void Work(unsigned thread);

  std::mutex mutex_;
  std::condition_variable start_;
  std::condition_variable done_;
  std::uint64_t round_ = 0;
  unsigned count_ = 0;
  unsigned busy_ = 0;
  bool stopping_ = false;
  Job job_ = nullptr;
  void* context_ = nullptr;
  std::vector<std::jthread> threads_;
};

// As ParallelFor, on the threads of a pool.
template <typename Job>
Status ParallelFor(std::size_t count, WorkerPool& pool, Job&& job) {
  using Work = IndexedJob<std::remove_reference_t<Job>>;
  Work work(count, job);
  const auto threads = static_cast<unsigned>(count < pool.size() ? count : pool.size());
  pool.Run(
      threads, [](void* context, unsigned thread) { static_cast<Work*>(context)->Run(thread); },
      &work);
  return work.Failure();
}

}  // namespace segue
