// SPDX-License-Identifier: Apache-2.0
//
// Scratch directories: new ones, each gone with its contents, moved ones once.
#include "base/scratch_directory.h"

#include <gtest/gtest.h>

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
      ScratchDirectory inner = ScratchDirectory::Make(JoinPath(parent, "a/b"), "x").value();
      const ScratchDirectory other = ScratchDirectory::Make(JoinPath(parent, "a/b"), "x").value();
      EXPECT_NE(inner.path(), other.path());
      first = inner.path();
      ASSERT_TRUE(MakeDirectories(JoinPath(first, "c/d")).ok());
      const ScratchDirectory moved = std::move(inner);
      EXPECT_EQ(moved.path(), first);
      EXPECT_TRUE(FileExists(first));
    }
    EXPECT_FALSE(FileExists(first));
    EXPECT_TRUE(ListDirectory(JoinPath(parent, "a/b")).value().empty());
  }
  EXPECT_FALSE(FileExists(parent));
  EXPECT_FALSE(ScratchDirectory::Make("/proc/none", "x").ok());
}

}  // namespace
}  // namespace segue
