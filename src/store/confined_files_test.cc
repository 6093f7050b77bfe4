// SPDX-License-Identifier: Apache-2.0
//
// ConfinedFiles: every call stays below the root whatever links are there, also while they are
// being swapped; what is no link goes on as with the file system itself.
#include "store/confined_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "store/test_support.h"

namespace segue {
namespace {

using ::testing::IsEmpty;

class ConfinedFilesTest : public ::testing::Test {
 protected:
  ConfinedFilesTest() {
    WriteRaw(outside_ / "secret", "secret");
    WriteRaw(root_ / "folder/file", "1");
    EXPECT_EQ(::symlink(outside_.path().c_str(), (root_ / "way").c_str()), 0);
    EXPECT_EQ(::symlink((outside_ / "secret").c_str(), (root_ / "folder/link").c_str()), 0);
  }

  const TemporaryFolder root_;
  const TemporaryFolder outside_;
  ConfinedFiles files_{root_.path()};
  std::vector<FolderEntry> entries_;
};

TEST_F(ConfinedFilesTest, NoCallFollowsALink) {
  EXPECT_EQ(files_.OpenForRead(root_ / "way/secret"), -ELOOP);
  EXPECT_EQ(files_.OpenForRead(root_ / "folder/link"), -ELOOP);
  EXPECT_EQ(files_.CreateNew(root_ / "way/new"), -ELOOP);
  EXPECT_EQ(files_.CreateNew(root_ / "folder/link"), -EEXIST);
  EXPECT_EQ(files_.Link(root_ / "folder/file", root_ / "way/new"), -ELOOP);
  EXPECT_EQ(files_.Link(root_ / "way/secret", root_ / "folder/new"), -ELOOP);
  EXPECT_EQ(files_.Unlink(root_ / "way/secret"), -ELOOP);
  EXPECT_EQ(files_.MakeFolder(root_ / "way/new"), -ELOOP);
  EXPECT_EQ(files_.RemoveFolder(root_ / "way/new"), -ELOOP);
  EXPECT_EQ(files_.SyncFolder(root_ / "way"), -ELOOP);
  EXPECT_EQ(files_.List(root_ / "way", entries_), -ELOOP);
  EXPECT_THAT(ListDirectory(outside_.path()).value(), ::testing::ElementsAre("secret"));
}

TEST_F(ConfinedFilesTest, NoPartLeadsUp) {
  for (const char* const path : {"folder/../../x", "../x", "./folder/file", "folder//file"}) {
    EXPECT_EQ(files_.OpenForRead(root_ / path), -EINVAL) << path;
  }
}

TEST_F(ConfinedFilesTest, WhatIsNoLinkIsAsEver) {
  EXPECT_EQ(files_.Close(files_.OpenForRead(root_ / "folder/file")), 0);
  EXPECT_EQ(files_.OpenForRead(root_ / "folder/none"), -ENOENT);
  EXPECT_EQ(files_.OpenForRead(root_ / "none/file"), -ENOENT);
  EXPECT_EQ(files_.OpenForRead(root_ / "folder/file/x"), -ENOTDIR);
  EXPECT_EQ(files_.Close(files_.CreateNew(root_ / "new")), 0);
  EXPECT_EQ(files_.Link(root_ / "new", root_ / "folder/new"), 0);
  EXPECT_EQ(files_.MakeFolder(root_ / "folder/below"), 0);
  EXPECT_EQ(files_.SyncFolder(root_ / "folder/below"), 0);
  EXPECT_EQ(files_.RemoveFolder(root_ / "folder/below"), 0);
  EXPECT_EQ(files_.List(root_ / "folder", entries_), 0);
  EXPECT_EQ(entries_.size(), 3u);
  EXPECT_EQ(files_.Unlink(root_ / "folder/new"), 0);
  EXPECT_EQ(files_.Unlink(root_ / "folder/link"), 0);  // The link, not what it leads to.
  EXPECT_TRUE(FileExists(outside_ / "secret"));
}

// Whoever can write below the root swaps a folder and a link all the time.
TEST_F(ConfinedFilesTest, ALinkThatIsSwappedInIsNotFollowed) {
  ASSERT_EQ(::symlink(outside_.path().c_str(), (root_ / "spare").c_str()), 0);
  WriteRaw(root_ / "place/file", "1");
  std::atomic<bool> ends{false};
  std::jthread swapper([&] {
    while (!ends) {
      ::renameat2(AT_FDCWD, (root_ / "place").c_str(), AT_FDCWD, (root_ / "spare").c_str(),
                  RENAME_EXCHANGE);
    }
  });
  int refused = 0;
  for (int i = 0; i < 20'000; ++i) {
    const int opened = files_.OpenForRead(root_ / "place/secret");
    EXPECT_TRUE(opened == -ELOOP || opened == -ENOENT || opened == -ENOTDIR) << opened;
    refused += opened == -ELOOP ? 1 : 0;
  }
  ends = true;
  EXPECT_GT(refused, 0);
}

}  // namespace
}  // namespace segue
