// SPDX-License-Identifier: Apache-2.0
//
// What the tests of src/live share: names of segments that go away, a small plan, a trainer whose
// weights are bound in buffers here, waits for other threads, and child processes that cannot
// outlive the test.
#pragma once

#include <gtest/gtest.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <functional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/check.h"
#include "checkpoint/plan.h"
#include "live/shared_memory.h"
#include "segue/receiver.h"
#include "sync/testing.h"

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

// A trainer with a store, one version published, and buffers of version 0 to bind.
class BoundFixture : public ::testing::Test {
 protected:
  BoundFixture() {
    const Checkpoint base = Checkpoint::Open(trainer_.Directory(0)).value();
    buffers_.reserve(base.tensors().size());
    for (std::size_t i = 0; i < base.tensors().size(); ++i) {
      const CheckpointTensor& tensor = base.tensors()[i];
      const ByteSpan bytes = base.TensorBytes(i);
      ByteVector& buffer = buffers_.emplace_back(bytes.begin(), bytes.end());
      model_.tensors.push_back({tensor.spec.name, std::string(DtypeName(tensor.spec.dtype)),
                                tensor.spec.shape, buffer.data(), buffer.size()});
    }
    options_.store = store_;
    options_.checkpoint = trainer_.Directory(0);
    options_.staging = directory_.File("staging");
    options_.threads = options_.background_threads = 1;
    Advance(1);
  }

  void Advance(std::uint64_t seed) {
    trainer_.Step(seed);
    SEGUE_CHECK(Publish(PublishOf(store_, trainer_.Directory(trainer_.version() - 1),
                                  trainer_.Directory(trainer_.version())))
                    .ok());
  }

  bool Holds(std::uint64_t version) const {
    const Checkpoint expected = Checkpoint::Open(trainer_.Directory(version)).value();
    for (std::size_t i = 0; i < buffers_.size(); ++i) {
      if (!std::ranges::equal(buffers_[i], expected.TensorBytes(i))) return false;
    }
    return true;
  }

  TemporaryDirectory directory_;
  MiniTrainer trainer_{directory_.path()};
  std::string store_ = directory_.File("store");
  std::vector<ByteVector> buffers_;
  BoundModel model_;  // Without a gate.
  ReceiverOptions options_;
};

// Looks until `done` holds; false after more time than the slowest machine takes.
template <typename Done>
bool Eventually(const Done& done) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(120);
  while (!done()) {
    if (std::chrono::steady_clock::now() > deadline) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  return true;
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
