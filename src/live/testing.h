// SPDX-License-Identifier: Apache-2.0
//
// What the tests of src/live share: names of segments that go away, a small plan, and child
// processes that cannot outlive the test.
#pragma once

#include <gtest/gtest.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "checkpoint/plan.h"
#include "live/shared_memory.h"

namespace segue::test {

// A segment name of this test process, removed at both ends.
class SegmentName {
 public:
  explicit SegmentName(const std::string& label = "a")
      : name_("test-" + std::to_string(::getpid()) + "-" + label) {
    Remove();
  }
  ~SegmentName() { Remove(); }
  SegmentName(const SegmentName&) = delete;
  SegmentName& operator=(const SegmentName&) = delete;

  operator const std::string&() const { return name_; }

 private:
  void Remove() { SEGUE_CHECK(SharedMemory::Remove(name_).ok()); }
  const std::string name_;
};

// Sizes that are no multiple of anything, and one of 0.
inline Plan SmallPlan() {
  return Plan::Make({{"a.weight", Dtype::kBF16, {3, 5}},
                     {"b.empty", Dtype::kF32, {0, 7}},
                     {"c.weight", Dtype::kF32, {1000}},
                     {"d.bias", Dtype::kU8, {1}}})
      .value();
}

// Runs `work` in a copy of this process; its result is the exit status.
class Child {
 public:
  explicit Child(const std::function<int()>& work) {
    const pid_t parent = ::getpid();
    process_ = ::fork();
    SEGUE_CHECK(process_ >= 0);
    if (process_ != 0) return;
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::getppid() != parent) ::_exit(1);
    ::_exit(work());
  }
  ~Child() {
    if (process_ > 0) Kill();
  }
  Child(Child&& other) noexcept : process_(std::exchange(other.process_, -1)) {}
  Child& operator=(Child&&) = delete;

  void Kill() {
    ::kill(process_, SIGKILL);
    Join();
  }
  // The exit status, or minus the signal that ended the child.
  int Join() {
    int status = 0;
    EXPECT_EQ(::waitpid(process_, &status, 0), process_);
    process_ = -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  }

 private:
  pid_t process_ = -1;
};

// One-way signals between processes; readable once for every byte written.
class Pipe {
 public:
  Pipe() { SEGUE_CHECK(::pipe(ends_) == 0); }
  ~Pipe() {
    ::close(ends_[0]);
    ::close(ends_[1]);
  }
  Pipe(const Pipe&) = delete;
  Pipe& operator=(const Pipe&) = delete;

  void Signal() {
    const char byte = 0;
    SEGUE_CHECK(::write(ends_[1], &byte, 1) == 1);
  }
  void Await() {
    char byte = 0;
    SEGUE_CHECK(::read(ends_[0], &byte, 1) == 1);
  }

 private:
  int ends_[2] = {-1, -1};
};

}  // namespace segue::test
