// SPDX-License-Identifier: Apache-2.0
//
// Fiber, on ucontext. Stacks are kept for the next fiber: a run makes thousands of them.
#include "sim/fiber.h"

#include <sys/mman.h>

#include <exception>
#include <utility>
#include <vector>

#include "base/check.h"

#if defined(__SANITIZE_ADDRESS__)
#define SEGUE_SIM_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define SEGUE_SIM_ASAN 1
#endif
#endif
#ifdef SEGUE_SIM_ASAN
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

namespace segue::sim {
namespace {

constexpr std::size_t kStackSize = 1u << 20;
constexpr std::size_t kGuardSize = 1u << 16;

Fiber* running = nullptr;

// Stacks below a page that nobody may touch.
class Stacks {
 public:
  ~Stacks() {
    for (std::byte* stack : free_) ::munmap(stack - kGuardSize, kGuardSize + kStackSize);
  }
  std::byte* Take() {
    if (!free_.empty()) {
      std::byte* const stack = free_.back();
      free_.pop_back();
      return stack;
    }
    void* const space = ::mmap(nullptr, kGuardSize + kStackSize, PROT_READ | PROT_WRITE,
                               MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    SEGUE_CHECK(space != MAP_FAILED);
    SEGUE_CHECK(::mprotect(space, kGuardSize, PROT_NONE) == 0);
    return static_cast<std::byte*>(space) + kGuardSize;
  }
  void Give(std::byte* stack) {
#ifdef SEGUE_SIM_ASAN
    __asan_unpoison_memory_region(stack, kStackSize);
#endif
    free_.push_back(stack);
  }

 private:
  std::vector<std::byte*> free_;
};

Stacks& AllStacks() {
  static Stacks stacks;
  return stacks;
}

}  // namespace

Fiber::Fiber(std::function<void()> body) : body_(std::move(body)) {}

Fiber::~Fiber() {
  SEGUE_CHECK(finished_ || !started_);
  if (stack_ != nullptr) AllStacks().Give(stack_);
}

void Fiber::Resume() {
  SEGUE_CHECK(running == nullptr && !finished_);
  if (!started_) {
    started_ = true;
    stack_ = AllStacks().Take();
    SEGUE_CHECK(::getcontext(&context_) == 0);
    context_.uc_stack.ss_sp = stack_;
    context_.uc_stack.ss_size = kStackSize;
    context_.uc_link = nullptr;
    ::makecontext(&context_, &Fiber::Enter, 0);
  }
  running = this;
#ifdef SEGUE_SIM_ASAN
  void* fake_stack = nullptr;
  __sanitizer_start_switch_fiber(&fake_stack, stack_, kStackSize);
#endif
  SEGUE_CHECK(::swapcontext(&scheduler_, &context_) == 0);
#ifdef SEGUE_SIM_ASAN
  __sanitizer_finish_switch_fiber(fake_stack, nullptr, nullptr);
#endif
  running = nullptr;
}

void Fiber::Enter() {
  Fiber* const fiber = running;
#ifdef SEGUE_SIM_ASAN
  __sanitizer_finish_switch_fiber(nullptr, &fiber->scheduler_stack_, &fiber->scheduler_stack_size_);
#endif
  fiber->body_();
  fiber->body_ = nullptr;
  fiber->finished_ = true;
  fiber->SwitchBack(/*for_good=*/true);
}

void Fiber::Suspend() {
  SEGUE_CHECK(running != nullptr && std::uncaught_exceptions() == 0);
  running->SwitchBack(/*for_good=*/false);
}

void Fiber::SwitchBack([[maybe_unused]] bool for_good) {
#ifdef SEGUE_SIM_ASAN
  __sanitizer_start_switch_fiber(for_good ? nullptr : &fake_stack_, scheduler_stack_,
                                 scheduler_stack_size_);
#endif
  SEGUE_CHECK(::swapcontext(&context_, &scheduler_) == 0);
#ifdef SEGUE_SIM_ASAN
  __sanitizer_finish_switch_fiber(fake_stack_, &scheduler_stack_, &scheduler_stack_size_);
#endif
}

}  // namespace segue::sim
