// SPDX-License-Identifier: Apache-2.0
//
// State and lock of receivers of disk deltas.
#include "interop/weight_sync.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <thread>

#include "checkpoint/testing.h"

namespace segue {
namespace {

using std::chrono::milliseconds;

TEST(WeightSyncTest, StateThereAndBack) {
  const test::TemporaryDirectory folder;
  EXPECT_EQ(ReadDiskState(folder.path()).value(), std::nullopt);
  ASSERT_TRUE(WriteDiskState(folder.path(), 42).ok());
  EXPECT_EQ(ReadDiskState(folder.path()).value(), 42u);
  const ByteVector text = ReadFile(folder.File(".weight_sync/state.json"), 1000).value();
  EXPECT_EQ(AsText(text), "{\"version\": \"000042\"}");
  ASSERT_TRUE(RemoveDiskState(folder.path()).ok());
  EXPECT_EQ(ReadDiskState(folder.path()).value(), std::nullopt);
  EXPECT_TRUE(RemoveDiskState(folder.path()).ok());
}

TEST(WeightSyncTest, StateThatSaysNothing) {
  const test::TemporaryDirectory folder;
  ASSERT_TRUE(WriteDiskState(folder.path(), 1).ok());
  const std::string deep(1000, '[');
  for (const char* const text : {"", "1", "{}", "{\"version\": 1}", "{\"version\": \"1\"}", "[]",
                                 deep.c_str(), R"({"version": "000001", "version": "000002"})"}) {
    test::WriteFile(folder.File(".weight_sync/state.json"), text);
    EXPECT_EQ(ReadDiskState(folder.path()).status().code(), StatusCode::kCorruption) << text;
  }
  // As others write it.
  test::WriteFile(folder.File(".weight_sync/state.json"), "{\"x\":1,\"version\":\"000007\"}\n");
  EXPECT_EQ(ReadDiskState(folder.path()).value(), 7u);
}

TEST(WeightSyncTest, OneHolderAtATime) {
  const test::TemporaryDirectory folder;
  {
    const auto lock = WeightSyncLock::Acquire(folder.path()).value();
    EXPECT_EQ(WeightSyncLock::Acquire(folder.path(), milliseconds(50)).status().code(),
              StatusCode::kUnavailable);
  }
  auto held = std::make_unique<WeightSyncLock>(WeightSyncLock::Acquire(folder.path()).value());
  std::jthread release([&] {
    std::this_thread::sleep_for(milliseconds(60));
    held.reset();
  });
  EXPECT_TRUE(WeightSyncLock::Acquire(folder.path(), milliseconds(10'000)).ok());
}

// Of a process that was killed while it wrote; what is there under other names is not ours.
TEST(WeightSyncTest, TheNextHolderRemovesHalfWrittenStates) {
  const test::TemporaryDirectory folder;
  ASSERT_TRUE(WriteDiskState(folder.path(), 7).ok());
  const std::string left = folder.File(".weight_sync/state.json.tmp.1234.5");
  const std::string other = folder.File(".weight_sync/note.tmp.1");
  ASSERT_TRUE(WriteFileAtomic(left, AsBytes("{\"ver")).ok());
  ASSERT_TRUE(WriteFileAtomic(other, AsBytes("x")).ok());
  ASSERT_TRUE(WeightSyncLock::Acquire(folder.path()).ok());
  EXPECT_FALSE(FileExists(left));
  EXPECT_TRUE(FileExists(other));
  EXPECT_EQ(ReadDiskState(folder.path()).value(), 7u);
}

TEST(WeightSyncTest, LinksAreRefused) {
  const test::TemporaryDirectory folder;
  const test::TemporaryDirectory outside;
  std::filesystem::create_directory_symlink(outside.path(), folder.File(".weight_sync"));
  EXPECT_FALSE(ReadDiskState(folder.path()).ok());
  EXPECT_FALSE(WriteDiskState(folder.path(), 1).ok());
  EXPECT_FALSE(WeightSyncLock::Acquire(folder.path()).ok());
  std::filesystem::remove(folder.File(".weight_sync"));
  std::filesystem::create_directory(folder.File(".weight_sync"));
  std::filesystem::create_symlink(outside.File("lock"), folder.File(".weight_sync/lock"));
  EXPECT_FALSE(WeightSyncLock::Acquire(folder.path()).ok());
  EXPECT_FALSE(FileExists(outside.File("lock")));
}

}  // namespace
}  // namespace segue
