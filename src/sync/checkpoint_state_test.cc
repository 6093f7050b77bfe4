// SPDX-License-Identifier: Apache-2.0
//
// State file and lock: what is written is read back, damage is reported, and one holder excludes
// others.
#include "sync/checkpoint_state.h"

#include <gtest/gtest.h>

#include "checkpoint/testing.h"
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

}  // namespace
}  // namespace segue
