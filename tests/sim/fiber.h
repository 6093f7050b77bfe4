// SPDX-License-Identifier: Apache-2.0
//
// Fiber: a function with a stack of its own that runs until it suspends itself. All fibers of a
// simulation share one thread, so exactly one of them runs at a time and the scheduler alone says
// which: that is what makes a run a function of its seed.
//
// A fiber must not suspend while an exception is under way (unwinding or inside a handler): what
// the C++ library knows of exceptions belongs to the thread, not to the fiber.
#pragma once

#include <ucontext.h>

#include <cstddef>
#include <functional>

namespace segue::sim {

class Fiber {
 public:
  explicit Fiber(std::function<void()> body);
  // It has finished, or never ran.
  ~Fiber();
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  // From the scheduler: runs it until it suspends or ends.
  void Resume();
  // From inside: back to the scheduler.
  static void Suspend();

  bool started() const { return started_; }
  bool finished() const { return finished_; }

 private:
  static void Enter();
  void SwitchBack(bool for_good);

  std::function<void()> body_;
  std::byte* stack_ = nullptr;
  ucontext_t context_{};
  ucontext_t scheduler_{};
  bool started_ = false;
  bool finished_ = false;
  // What AddressSanitizer wants to know at a switch.
  void* fake_stack_ = nullptr;
  const void* scheduler_stack_ = nullptr;
  std::size_t scheduler_stack_size_ = 0;
};

}  // namespace segue::sim
