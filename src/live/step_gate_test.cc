// SPDX-License-Identifier: Apache-2.0
//
// StepGate: who is inside keeps it from closing, who comes later waits, deadlines end both; and no
// thread is ever inside while it is closed.
#include "segue/step_gate.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

#include "segue/enter_all.h"

namespace segue {
namespace {

using namespace std::chrono_literals;

TEST(StepGate, ClosesOnceNobodyIsInside) {
  StepGate gate;
  ASSERT_TRUE(gate.Enter(0ms).ok());
  std::jthread leaver([&] {
    std::this_thread::sleep_for(20ms);
    gate.Leave();
  });
  EXPECT_TRUE(gate.Close(60s).ok());
  EXPECT_EQ(gate.inside(), 0u);
  EXPECT_FALSE(gate.TryEnter());
  EXPECT_EQ(gate.inside(), 0u);
  gate.Open();
  EXPECT_TRUE(gate.TryEnter());
  gate.Leave();
}

TEST(StepGate, DeadlinesEndBothWaits) {
  StepGate gate;
  ASSERT_TRUE(gate.Enter(0ms).ok());
  const Status closed = gate.Close(5ms);
  EXPECT_EQ(closed.code(), StatusCode::kUnavailable);
  EXPECT_NE(closed.message().find("1 step was still inside"), std::string::npos);
  EXPECT_TRUE(gate.TryEnter());  // As it was: open.
  gate.Leave();
  gate.Leave();
  ASSERT_TRUE(gate.Close(0ms).ok());
  EXPECT_EQ(gate.Enter(5ms).code(), StatusCode::kUnavailable);
  EXPECT_EQ(gate.inside(), 0u);
  EXPECT_TRUE(gate.Close(0ms).ok());  // A closed gate may be closed again,
  EXPECT_FALSE(gate.TryEnter());      // and stays it.
}

TEST(StepGate, AWaitEndsOnceItsStopSaysSo) {
  StepGate gate;
  StepGate open;
  EXPECT_TRUE(gate.EnterUnless([] { return true; }, 0ms).ok());  // Nobody waits at an open one.
  gate.Leave();
  ASSERT_TRUE(gate.Close(0ms).ok());
  int looks = 0;
  const auto stop = [&] { return ++looks == 2; };
  EXPECT_EQ(gate.EnterUnless(stop, 60s).code(), StatusCode::kUnavailable);
  EXPECT_EQ(looks, 2);
  looks = 0;
  StepGate* const all[] = {&open, &gate};
  EXPECT_EQ(EnterAllUnless<StepGate>(stop, all, 60s).code(), StatusCode::kUnavailable);
  EXPECT_EQ(looks, 2);
  EXPECT_EQ(open.inside(), 0u);
  const auto never = [] { return false; };
  const Status late = gate.EnterUnless(never, 250ms);
  EXPECT_NE(late.message().find("after 250 ms"), std::string::npos) << late.message();
}

TEST(StepGate, GuardsAModel) {
  StepGate gate;
  BoundModel model;
  gate.Guard(model);
  ASSERT_TRUE(model.close_gate(0ms).ok());
  EXPECT_FALSE(gate.TryEnter());
  ASSERT_TRUE(model.open_gate().ok());
  EXPECT_TRUE(gate.TryEnter());
}

// A receiver that ends, or a user who has had enough, does not wait for the deadline.
TEST(StepGate, AWaitEndsWhenItIsTold) {
  StepGate gate;
  BoundModel model;
  std::atomic<int> asked{0};
  gate.Guard(model, [&] { return ++asked < 2 ? Status() : Unavailable("enough"); });
  ASSERT_TRUE(model.close_gate(60s).ok());
  ASSERT_TRUE(model.open_gate().ok());
  EXPECT_EQ(asked, 0) << "nothing to wait for";
  ASSERT_TRUE(gate.TryEnter());
  EXPECT_EQ(model.close_gate(60s).message(), "enough");
  EXPECT_EQ(asked, 2);
  EXPECT_TRUE(gate.TryEnter()) << "open, as it was";
  gate.Leave();
  gate.Leave();
}

// Receivers that know nothing of one another: what one opens, another may be writing behind.
TEST(StepGate, IsOpenWhenNoneOfItsModelsHoldsIt) {
  StepGate gate;
  BoundModel policy;
  BoundModel draft;
  gate.Guard(policy);
  gate.Guard(draft);
  ASSERT_TRUE(policy.close_gate(0ms).ok());
  ASSERT_TRUE(draft.close_gate(0ms).ok());
  ASSERT_TRUE(draft.close_gate(0ms).ok());  // Again counts once.
  ASSERT_TRUE(policy.open_gate().ok());
  ASSERT_TRUE(policy.open_gate().ok());
  EXPECT_FALSE(gate.TryEnter());
  gate.Open();  // Of one that has not closed it.
  EXPECT_FALSE(gate.TryEnter());
  ASSERT_TRUE(draft.open_gate().ok());
  ASSERT_TRUE(gate.TryEnter());
  // One that cannot close it leaves it as the others have it.
  ASSERT_EQ(policy.close_gate(2ms).code(), StatusCode::kUnavailable);
  gate.Leave();
  EXPECT_TRUE(gate.TryEnter());
}

TEST(EnterAll, EntersAllOrNone) {
  StepGate first;
  StepGate second;
  StepGate* const gates[] = {&first, &second};
  ASSERT_TRUE(EnterAll<StepGate>(gates, 0ms).ok());
  EXPECT_EQ(first.inside() + second.inside(), 2u);
  LeaveAll<StepGate>(gates);
  EXPECT_EQ(first.inside() + second.inside(), 0u);
  ASSERT_TRUE(second.Close(0ms).ok());
  EXPECT_EQ(EnterAll<StepGate>(gates, 5ms).code(), StatusCode::kUnavailable);
  EXPECT_EQ(first.inside() + second.inside(), 0u);
}

// While it waits for the second gate the first can be closed, in any order of closing.
TEST(EnterAll, WaitsOutsideOfAll) {
  StepGate first;
  StepGate second;
  ASSERT_TRUE(second.Close(0ms).ok());
  StepGate* const gates[] = {&first, &second};
  std::atomic<bool> inside{false};
  std::jthread engine([&] {
    if (EnterAll<StepGate>(gates, 60s).ok()) inside = true;
  });
  std::this_thread::sleep_for(20ms);
  ASSERT_TRUE(first.Close(10s).ok());
  second.Open();
  std::this_thread::sleep_for(20ms);
  EXPECT_FALSE(inside);
  EXPECT_EQ(second.inside(), 0u);
  first.Open();
  engine.join();
  EXPECT_TRUE(inside);
}

TEST(StepGate, NobodyIsInsideWhileItIsClosed) {
  StepGate gate;
  std::atomic<bool> changing{false};
  std::atomic<bool> stop{false};
  std::atomic<std::uint64_t> steps{0};
  std::atomic<std::uint64_t> seen{0};
  {
    std::vector<std::jthread> threads;
    threads.reserve(3);
    for (int i = 0; i < 3; ++i) {
      threads.emplace_back([&] {
        while (!stop.load()) {
          if (!gate.Enter(60s).ok()) continue;
          if (changing.load()) ++seen;
          ++steps;
          gate.Leave();
        }
      });
    }
    for (int i = 0; i < 300 || steps.load() < 1000; ++i) {
      if (!gate.Close(60s).ok()) {
        ADD_FAILURE() << "the gate did not close";
        break;
      }
      changing = true;
      std::this_thread::yield();
      changing = false;
      gate.Open();
    }
    stop = true;
  }
  EXPECT_EQ(seen.load(), 0u);
  EXPECT_EQ(gate.inside(), 0u);
}

}  // namespace
}  // namespace segue
