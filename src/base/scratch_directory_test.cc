// SPDX-License-Identifier: Apache-2.0
//
// Scratch directories: new ones, each gone with its contents, moved ones once.
#include "base/scratch_directory.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

#include "base/file.h"

namespace segue {
namespace {

TEST(ScratchDirectoryTest, GoesWithAllThatIsInIt) {
  std::string parent;
  {
    const ScratchDirectory outer = ScratchDirectory::Make("", "outer").value();
    parent = outer.path();
    std::string first;
    {
      ScratchDirectory inner = ScratchDirectory::Make(JoinPath(parent, "a"), "x").value();
      const ScratchDirectory other = ScratchDirectory::Make(JoinPath(parent, "a"), "x").value();
      EXPECT_NE(inner.path(), other.path());
      first = inner.path();
      ASSERT_TRUE(MakeDirectories(JoinPath(first, "c/d")).ok());
      const ScratchDirectory moved = std::move(inner);
      EXPECT_EQ(moved.path(), first);
      EXPECT_TRUE(FileExists(first));
    }
    EXPECT_FALSE(FileExists(first));
    EXPECT_TRUE(ListDirectory(JoinPath(parent, "a")).value().empty());
  }
  EXPECT_FALSE(FileExists(parent));
  EXPECT_FALSE(ScratchDirectory::Make("/proc/none", "x").ok());
}

TEST(ScratchDirectoryTest, MakesTheLastPartAlone) {
  const ScratchDirectory outer = ScratchDirectory::Make("", "outer").value();
  const std::string deep = JoinPath(outer.path(), "a/b");
  EXPECT_EQ(ScratchDirectory::Make(deep, "x").status().code(), StatusCode::kNotFound);
  EXPECT_FALSE(FileExists(JoinPath(outer.path(), "a")));
}

TEST(ScratchDirectoryTest, WhoseOwnerWasKilledGoesWithTheNext) {
  const ScratchDirectory outer = ScratchDirectory::Make("", "outer").value();
  const auto names = [&] { return ListDirectory(outer.path()).value(); };
  // What others have there, under names that could be ours, stays.
  ASSERT_TRUE(MakeDirectories(JoinPath(outer.path(), "x-theirs/deep")).ok());
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    const auto killed = ScratchDirectory::Make(outer.path(), "x");
    ::kill(::getpid(), SIGKILL);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_EQ(names().size(), 3u) << "what the child has made, beside theirs and the mark";
  {
    const ScratchDirectory other = ScratchDirectory::Make(outer.path(), "y").value();
    EXPECT_EQ(names().size(), 4u) << "another label";
  }
  const ScratchDirectory alive = ScratchDirectory::Make(outer.path(), "x").value();
  EXPECT_EQ(names().size(), 3u);
  const ScratchDirectory second = ScratchDirectory::Make(outer.path(), "x").value();
  EXPECT_TRUE(FileExists(alive.path()));
  EXPECT_TRUE(FileExists(JoinPath(outer.path(), "x-theirs/deep")));
}

}  // namespace
}  // namespace segue
