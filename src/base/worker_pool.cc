// SPDX-License-Identifier: Apache-2.0
//
// WorkerPool: a round begins when its number changes; the last worker to finish wakes the caller.
#include "base/worker_pool.h"

namespace segue {

WorkerPool::WorkerPool(unsigned threads) {
  threads_ = MakeThreads(ThreadCount(threads) - 1, [this](unsigned thread) { Work(thread); });
}

WorkerPool::~WorkerPool() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  start_.notify_all();
}

void WorkerPool::Run(unsigned count, Job job, void* context) {
  SEGUE_CHECK(count <= size());
  if (count == 0) return;
  if (count > 1) {
    {
      const std::lock_guard lock(mutex_);
      SEGUE_CHECK(busy_ == 0);
      job_ = job;
      context_ = context;
      count_ = count;
      busy_ = count - 1;
      ++round_;
    }
    start_.notify_all();
  }
  job(context, 0);
  if (count == 1) return;
  std::unique_lock lock(mutex_);
  done_.wait(lock, [this] { return busy_ == 0; });
}

void WorkerPool::Work(unsigned thread) {
  std::uint64_t seen = 0;
  std::unique_lock lock(mutex_);
  for (;;) {
    start_.wait(lock,
                [&] { return stopping_ || (round_ != seen && thread < count_ && busy_ != 0); });
    if (stopping_) return;
    seen = round_;
    const Job job = job_;
    void* const context = context_;
    lock.unlock();
    job(context, thread);
    lock.lock();
    if (--busy_ == 0) done_.notify_all();
  }
}

}  // namespace segue
