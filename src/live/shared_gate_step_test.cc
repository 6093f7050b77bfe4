// SPDX-License-Identifier: Apache-2.0
//
// The gate closed between any two instructions of an engine: a debugger steps an engine process k
// instructions into a step, for every k, and the gate is closed right there. Whatever the races of
// other tests do not hit, such as an engine that looks at the gate before it counts itself in, is
// found here, without chance.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <csignal>

#include "live/segment.h"
#include "live/testing.h"
#include "segue/engine.h"

namespace segue {
namespace {

using test::SegmentName;
using test::SmallPlan;
using namespace std::chrono_literals;

// What the engine is doing, in memory that it shares with the test.
enum State : int { kBefore, kInside, kLeaving, kRefused };

// Far more than a step takes, even with sanitizers.
constexpr int kInstructionCountMax = 20'000;

// Stops before each step that it makes.
[[noreturn]] void RunEngine(const std::string& name, std::atomic<int>& state) {
  EngineWeights engine = EngineWeights::Attach(name, 0ms).value();
  if (::ptrace(PTRACE_TRACEME, 0, nullptr, nullptr) != 0) ::_exit(1);
  for (;;) {
    ::raise(SIGSTOP);
    if (engine.Enter(0ms).ok()) {
      state.store(kInside);
      state.store(kLeaving);
      engine.Leave();
    } else {
      state.store(kRefused);
    }
  }
}

class Stepper {
 public:
  explicit Stepper(pid_t engine) : engine_(engine) {}
  ~Stepper() {
    ::kill(engine_, SIGKILL);
    ::waitpid(engine_, nullptr, 0);
  }
  // False when the engine is gone.
  bool AwaitStop() {
    int status = 0;
    if (::waitpid(engine_, &status, 0) != engine_ || !WIFSTOPPED(status)) return false;
    signal_ = WSTOPSIG(status);
    return true;
  }
  bool AtStart() const { return signal_ == SIGSTOP; }
  bool Step() { return Resume(PTRACE_SINGLESTEP); }
  bool RunToStart() {
    do {
      if (!Resume(PTRACE_CONT)) return false;
    } while (!AtStart());
    return true;
  }

 private:
  template <typename Request>
  bool Resume(Request request) {
    return ::ptrace(request, engine_, nullptr, nullptr) == 0 && AwaitStop();
  }

  pid_t engine_;
  int signal_ = 0;
};

// Closes the gate `instruction_count` instructions behind the start of a step, and judges. False
// when the step ended before.
bool CloseAfter(int instruction_count, Segment& segment, Stepper& stepper,
                std::atomic<int>& state) {
  state.store(kBefore);
  for (int i = 0; i < instruction_count; ++i) {
    SEGUE_CHECK(stepper.Step());
    if (stepper.AtStart()) return false;
  }
  const bool closed = segment.gate().Close(0ms).ok();
  const int then = state.load();
  SEGUE_CHECK(stepper.RunToStart());
  const int later = state.load();
  if (closed) {
    EXPECT_NE(then, kInside) << "closed with an engine inside";
    EXPECT_EQ(later, then == kBefore ? kRefused : then) << "entered a closed gate";
  } else {
    EXPECT_EQ(later, kLeaving) << "refused though the gate was open again";
  }
  EXPECT_TRUE(segment.gate().Close(0ms).ok()) << "the count of those inside is off";
  EXPECT_TRUE(segment.gate().Open().ok());
  return !::testing::Test::HasFailure();
}

TEST(SharedGateStep, ClosesBetweenAnyTwoInstructions) {
#ifndef __x86_64__
  GTEST_SKIP() << "atomics made of several instructions cannot be stepped through";
#endif
#if defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "ThreadSanitizer makes one instruction thousands, each of which is a step";
#endif
  const SegmentName name;
  const auto segment = Segment::Create(name, SmallPlan(), "main").value();
  ASSERT_TRUE(segment->gate().Open().ok());
  void* const page =
      ::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(page, MAP_FAILED);
  auto* const state = new (page) std::atomic<int>(kBefore);
  const pid_t engine = ::fork();
  if (engine == 0) RunEngine(name, *state);
  {
    Stepper stepper(engine);
    if (!stepper.AwaitStop()) GTEST_SKIP() << "no tracing here";
    ASSERT_TRUE(stepper.RunToStart()) << "a first step, so that all is linked";
    int count = 0;
    while (count < kInstructionCountMax && CloseAfter(count, *segment, stepper, *state)) ++count;
    EXPECT_GT(count, 10);
    EXPECT_LT(count, kInstructionCountMax);
  }
  ::munmap(page, 4096);
}

}  // namespace
}  // namespace segue
