// SPDX-License-Identifier: Apache-2.0
//
// Fibers and the world's processes: turns, waiting, and death by unwinding.
#include "sim/fiber.h"

#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "sim/world.h"

namespace segue::sim {
namespace {

using std::chrono::milliseconds;

TEST(FiberTest, RunsInTurns) {
  std::vector<int> order;
  Fiber fiber([&] {
    order.push_back(1);
    Fiber::Suspend();
    order.push_back(3);
  });
  fiber.Resume();
  order.push_back(2);
  EXPECT_FALSE(fiber.finished());
  fiber.Resume();
  EXPECT_TRUE(fiber.finished());
  EXPECT_EQ(order, (std::vector<int>{1, 2, 3}));
}

TEST(FiberTest, ExceptionsStayInTheirFiber) {
  bool caught = false;
  Fiber fiber([&] {
    try {
      Fiber::Suspend();
      throw Crash();
    } catch (const Crash&) {
      caught = true;
    }
    Fiber::Suspend();
  });
  fiber.Resume();
  fiber.Resume();
  EXPECT_TRUE(caught);
  fiber.Resume();
  EXPECT_TRUE(fiber.finished());
}

TEST(WorldTest, TheClockJumpsToWhatComesNext) {
  World world(1, {}, Sabotage::kNone, false);
  Process& process = world.NewProcess("p", false);
  const Time start = world.now();
  bool effect = false;
  world.At(start + milliseconds(500), [&] { effect = true; });
  world.Start(process, "sleeper", [&] {
    world.Sleep(milliseconds(1000));
    EXPECT_TRUE(effect);
    EXPECT_FALSE(world.Await([] { return false; }, world.now() + milliseconds(5)));
  });
  while (world.Step()) {
  }
  EXPECT_TRUE(process.over());
  EXPECT_GE(world.now() - start, milliseconds(1005));
  EXPECT_LT(world.now() - start, milliseconds(1010));
}

// All fibers of a process unwind, the youngest first; what they own is destroyed, others live on.
TEST(WorldTest, AProcessDiesAsOne) {
  FaultRates always;
  always.crash = 1;
  World world(1, always, Sabotage::kNone, false);
  Process& mortal = world.NewProcess("mortal", true);
  Process& other = world.NewProcess("other", false);
  std::vector<std::string> ended;
  struct Owned {
    std::vector<std::string>& list;
    std::string name;
    ~Owned() { list.push_back(name); }
  };
  world.Start(mortal, "old", [&] {
    const Owned owned{ended, "old"};
    (void)world.Await([] { return false; });
    ended.push_back("old lived on");
  });
  world.Start(mortal, "young", [&] {
    const Owned owned{ended, "young"};
    for (;;) world.Point("somewhere");
  });
  bool alive = false;
  world.Start(other, "witness", [&] {
    (void)world.Await([&] { return mortal.over(); });
    alive = true;
  });
  while (world.Step()) {
  }
  EXPECT_TRUE(alive);
  EXPECT_TRUE(mortal.dead());
  ASSERT_EQ(ended.size(), 2u);
  EXPECT_EQ(ended.back(), "old");
}

}  // namespace
}  // namespace segue::sim
