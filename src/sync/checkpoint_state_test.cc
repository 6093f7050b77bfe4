// SPDX-License-Identifier: Apache-2.0
//
// State file and lock: what is written is read back, damage is reported, and one holder excludes
// others.
#include "sync/checkpoint_state.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "checkpoint/testing.h"
#include "segue/apply.h"
#include "sync/json_fields.h"

namespace segue {
namespace {

TEST(CheckpointStateTest, RoundTrip) {
  const test::TemporaryDirectory directory;
  EXPECT_FALSE(ReadState(directory.path()).value().has_value());
  CheckpointState state = {"run7", 12, Digest{{3, 4}}, HashSha256(AsBytes("plan"))};
  ASSERT_TRUE(WriteState(directory.path(), state).ok());
  const auto found = ReadState(directory.path()).value();
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(found->lineage, "run7");
  EXPECT_EQ(found->version, 12u);
  EXPECT_EQ(found->digest, state.digest);
  EXPECT_EQ(found->plan, state.plan);
}

TEST(CheckpointStateTest, DamageIsReported) {
  const test::TemporaryDirectory directory;
  ASSERT_TRUE(WriteState(directory.path(), {"run7", 1, {}, {}}).ok());
  const std::string path = JoinPath(StateDirectory(directory.path()), "state.json");
  for (const char* text : {"", "[]", "{\"format\": \"segue-state\"}",
                           R"({"format": "segue-apply", "format_version": 1})"}) {
    test::WriteFile(path, std::string_view(text));
    EXPECT_EQ(ReadState(directory.path()).status().code(), StatusCode::kCorruption) << text;
  }
  test::WriteFile(path, std::string_view(R"({"format": "segue-state", "format_version": 2})"));
  EXPECT_EQ(ReadState(directory.path()).status().code(), StatusCode::kUnsupported);
}

TEST(CheckpointStateTest, LockExcludes) {
  const test::TemporaryDirectory directory;
  {
    const auto lock = CheckpointLock::Acquire(directory.path());
    ASSERT_TRUE(lock.ok());
    const auto second = CheckpointLock::Acquire(directory.path());
    EXPECT_EQ(second.status().code(), StatusCode::kUnavailable);
  }
  EXPECT_TRUE(CheckpointLock::Acquire(directory.path()).ok());
}

// The lock's file went with its directory: a new one is taken, and the old one knows.
TEST(CheckpointStateTest, LockKnowsWhetherItIsInPlace) {
  const test::TemporaryDirectory directory;
  const CheckpointLock lock = CheckpointLock::Acquire(directory.path()).value();
  EXPECT_TRUE(lock.IsInPlace());
  ASSERT_TRUE(RemoveTree(StateDirectory(directory.path())).ok());
  EXPECT_FALSE(lock.IsInPlace());
  EXPECT_TRUE(CheckpointLock::Acquire(directory.path()).ok());
}

// `.segue` that leads elsewhere, or is no directory: refused by name, nothing made or read there.
TEST(CheckpointStateTest, StateDirectoryIsNeverALink) {
  const test::TemporaryDirectory directory;
  const std::string outside = directory.File("outside");
  ASSERT_TRUE(MakeDirectories(outside).ok());
  ASSERT_TRUE(WriteState(outside, {"run7", 1, {}, {}}).ok());
  const std::string precious = StateDirectory(outside);
  for (const std::string& target : {precious, directory.File("nowhere"), std::string()}) {
    const std::string checkpoint = directory.File("checkpoint");
    ASSERT_TRUE(RemoveTree(checkpoint).ok());
    ASSERT_TRUE(MakeDirectories(checkpoint).ok());
    if (target.empty()) {
      test::WriteFile(StateDirectory(checkpoint), std::string_view("a file"));
    } else {
      std::filesystem::create_symlink(target, StateDirectory(checkpoint));
    }
    const Status refusals[] = {ReadState(checkpoint).status(), WriteState(checkpoint, {}),
                               CheckpointLock::Acquire(checkpoint).status(),
                               RemoveLeftovers(checkpoint), Resolve(checkpoint, 1).status()};
    for (const Status& refusal : refusals) {
      EXPECT_EQ(refusal.code(), StatusCode::kInvalidArgument) << refusal.ToString();
      EXPECT_NE(refusal.message().find(StateDirectory(checkpoint)), std::string::npos);
    }
  }
  EXPECT_EQ(ListDirectory(precious).value(), std::vector<std::string>{"state.json"});
  EXPECT_FALSE(FileExists(directory.File("nowhere")));
}

TEST(CheckpointStateTest, FilesOfOurOwnAreNeverLinks) {
  const test::TemporaryDirectory directory;
  const std::string state = StateDirectory(directory.path());
  ASSERT_TRUE(WriteState(directory.File("other"), {"run7", 1, {}, {}}).code() ==
              StatusCode::kNotFound);
  ASSERT_TRUE(MakeDirectories(state).ok());
  std::filesystem::create_symlink(directory.File("made-by-lock"), JoinPath(state, "lock"));
  EXPECT_EQ(CheckpointLock::Acquire(directory.path()).status().code(),
            StatusCode::kInvalidArgument);
  EXPECT_FALSE(FileExists(directory.File("made-by-lock")));
  test::WriteFile(directory.File("outside"), std::string_view("precious"));
  std::filesystem::create_symlink(directory.File("outside"), JoinPath(state, "state.json"));
  EXPECT_EQ(ReadState(directory.path()).status().code(), StatusCode::kInvalidArgument);
  ASSERT_TRUE(RemoveFile(JoinPath(state, "lock")).ok());
  // An `apply` that leads elsewhere is neither resolved from nor emptied.
  ASSERT_TRUE(MakeDirectories(directory.File("elsewhere")).ok());
  test::WriteFile(directory.File("elsewhere/precious"), std::string_view("precious"));
  std::filesystem::create_directory_symlink(directory.File("elsewhere"), JoinPath(state, "apply"));
  EXPECT_EQ(Resolve(directory.path(), 1).status().code(), StatusCode::kInvalidArgument);
  EXPECT_TRUE(FileExists(directory.File("elsewhere/precious")));
}

TEST(CheckpointStateTest, LeftoversOfKilledProcessesAreRemoved) {
  const test::TemporaryDirectory directory;
  const std::string state = StateDirectory(directory.path());
  ASSERT_TRUE(WriteState(directory.path(), {"run7", 1, {}, {}}).ok());
  for (const char* name : {"copy-model.safetensors", "state.json.tmp.12.0", "kept"}) {
    test::WriteFile(JoinPath(state, name), std::string_view("x"));
  }
  ASSERT_TRUE(MakeDirectories(JoinPath(state, "apply-done")).ok());
  ASSERT_TRUE(Resolve(directory.path(), 1).ok());
  EXPECT_EQ(ListDirectory(state).value(), (std::vector<std::string>{"kept", "lock", "state.json"}));
}

}  // namespace
}  // namespace segue
