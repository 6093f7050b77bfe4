// SPDX-License-Identifier: Apache-2.0
//
// Steps from names, and since when a checkpoint has been as it is.
#include "sync/watch_directory.h"

#include <gtest/gtest.h>

#include "checkpoint/testing.h"

namespace segue {
namespace {

TEST(StepOfNameTest, LastRunOfDigits) {
  EXPECT_EQ(StepOfName("step-000010"), 10u);
  EXPECT_EQ(StepOfName("checkpoint-1000"), 1000u);
  EXPECT_EQ(StepOfName("iter_0000020_hf"), 20u);
  EXPECT_EQ(StepOfName("7"), 7u);
  EXPECT_EQ(StepOfName("run2-step-5"), 5u);
  EXPECT_EQ(StepOfName("latest"), std::nullopt);
  EXPECT_EQ(StepOfName(".step-10"), std::nullopt);
  EXPECT_EQ(StepOfName("step-99999999999999999999999"), std::nullopt);
}

// A clock that stands until it is moved.
class StoppedClock final : public Environment {
 public:
  Result<std::unique_ptr<Store>> OpenStore(const std::string& url, bool create) override {
    return segue::OpenStore(url, create);
  }
  Clock::time_point Now() override { return now; }
  std::uint64_t RandomNumber() override { return 0; }
  void Sleep(Clock::duration, const std::stop_token&) override {}
  void Await(std::unique_lock<std::mutex>&, std::condition_variable&,
             const std::function<bool()>&) override {}
  std::unique_ptr<BackgroundTask> Start(TaskPriority, Body) override { return nullptr; }

  Clock::time_point now;
};

TEST(WatchedDirectoryTest, OrderAndSettling) {
  const test::TemporaryDirectory directory;
  for (const char* name : {"s-1000", "s-500", "s-2000", ".s-3", "notes"}) {
    ASSERT_TRUE(MakeDirectories(directory.File(name)).ok());
    test::WriteFile(JoinPath(directory.File(name), "f"), "abc");
  }
  test::WriteFile(directory.File("file-7"), "no directory");
  StoppedClock clock;
  WatchedDirectory watched(directory.path(), std::chrono::seconds(5), clock);
  auto found = watched.Look().value();
  ASSERT_EQ(found.size(), 3u);
  EXPECT_EQ(found[0].name, "s-500");
  EXPECT_EQ(found[2].name, "s-2000");
  EXPECT_FALSE(found[0].settled);
  EXPECT_TRUE(found[0].HasFile("f"));
  EXPECT_FALSE(found[0].HasFile("g"));
  clock.now += std::chrono::seconds(3);
  test::WriteFile(JoinPath(directory.File("s-1000"), "f"), "abcd");
  EXPECT_FALSE(watched.Look().value()[0].settled);
  clock.now += std::chrono::seconds(2);
  found = watched.Look().value();
  EXPECT_TRUE(found[0].settled);
  EXPECT_FALSE(found[1].settled);  // It grew two seconds ago.
  EXPECT_TRUE(found[2].settled);
  clock.now += std::chrono::seconds(3);
  EXPECT_TRUE(watched.Look().value()[1].settled);
  test::WriteFile(JoinPath(directory.File("s-1000"), "new"), "");
  EXPECT_FALSE(watched.Look().value()[1].settled);
  clock.now += std::chrono::seconds(51);
  EXPECT_FALSE(watched.Look().value()[0].quiet);
  clock.now += std::chrono::seconds(1);
  found = watched.Look().value();
  EXPECT_TRUE(found[0].quiet);  // As it was for twelve times as long.
  EXPECT_FALSE(found[1].quiet);
}

TEST(WatchedDirectoryTest, NoSuchDirectory) {
  WatchedDirectory watched("/nowhere/at/all", std::chrono::seconds(5), SystemEnvironment());
  EXPECT_EQ(watched.Look().status().code(), StatusCode::kNotFound);
}

}  // namespace
}  // namespace segue
