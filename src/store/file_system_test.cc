// SPDX-License-Identifier: Apache-2.0
//
// FileSystem: errors come out as -errno, listings tell kinds, and MakeFolders counts what it made.
#include "store/file_system.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <map>

#include "store/test_support.h"

namespace segue {
namespace {

using ::testing::HasSubstr;

TEST(PosixFileSystemTest, TellsTheExactError) {
  const TemporaryFolder folder;
  PosixFileSystem& files = PosixFileSystem::Instance();
  std::vector<FolderEntry> entries;
  WriteRaw(folder / "a", "1");
  ASSERT_EQ(::symlink("a", (folder / "link").c_str()), 0);
  EXPECT_EQ(files.OpenForRead(folder / "none"), -ENOENT);
  EXPECT_EQ(files.OpenForRead(folder / "a/b"), -ENOTDIR);
  EXPECT_EQ(files.OpenForRead(folder / "link"), -ELOOP);
  EXPECT_EQ(files.CreateNew(folder / "a"), -EEXIST);
  EXPECT_EQ(files.CreateNew(folder / "link"), -EEXIST);
  EXPECT_EQ(files.Link(folder / "a", folder / "link"), -EEXIST);
  EXPECT_EQ(files.Unlink(folder / "none"), -ENOENT);
  EXPECT_EQ(files.MakeFolder(folder / "a"), -EEXIST);
  EXPECT_EQ(files.RemoveFolder(folder.path()), -ENOTEMPTY);
  EXPECT_EQ(files.SyncFolder(folder / "none"), -ENOENT);
  EXPECT_EQ(files.List(folder / "none", entries), -ENOENT);
  EXPECT_EQ(files.List(folder / "a", entries), -ENOTDIR);
  EXPECT_EQ(files.Sync(-1), -EBADF);
  EXPECT_EQ(files.Close(-1), -EBADF);
}

TEST(PosixFileSystemTest, ListsNamesWithTheirKinds) {
  const TemporaryFolder folder;
  WriteRaw(folder / "file", "1");
  WriteRaw(folder / "folder/below", "1");
  ASSERT_EQ(::symlink("file", (folder / "link").c_str()), 0);
  ASSERT_EQ(::mkfifo((folder / "pipe").c_str(), 0600), 0);
  std::vector<FolderEntry> entries = {{"left over", FileKind::kFile}};
  ASSERT_EQ(PosixFileSystem::Instance().List(folder.path(), entries), 0);
  std::map<std::string, FileKind> kinds;
  for (const FolderEntry& entry : entries) kinds[entry.name] = entry.kind;
  EXPECT_EQ(kinds, (std::map<std::string, FileKind>{{"file", FileKind::kFile},
                                                    {"folder", FileKind::kFolder},
                                                    {"link", FileKind::kOther},
                                                    {"pipe", FileKind::kOther}}));
}

TEST(OpenFileTest, ClosesOnceAndMoves) {
  const TemporaryFolder folder;
  WriteRaw(folder / "a", "1");
  FaultyFileSystem files;
  {
    OpenFile first(files, files.OpenForRead(folder / "a"));
    OpenFile second(std::move(first));
    OpenFile third(files, files.OpenForRead(folder / "none"));
    third = std::move(second);
    EXPECT_GE(third.get(), 0);
    EXPECT_EQ(third.Close(), 0);
    EXPECT_EQ(third.Close(), 0);
  }
  EXPECT_EQ(std::count(files.calls.begin(), files.calls.end(), "close"), 1);
}

TEST(MakeFoldersTest, CountsWhatItMade) {
  const TemporaryFolder folder;
  PosixFileSystem& files = PosixFileSystem::Instance();
  EXPECT_EQ(MakeFolders(files, folder.path()), 0);
  EXPECT_EQ(MakeFolders(files, folder / "a/b/c"), 3);
  EXPECT_EQ(MakeFolders(files, folder / "a/b/d"), 1);
  EXPECT_EQ(MakeFolders(files, "/"), 0);
  EXPECT_EQ(MakeFolders(files, "."), 0);
  WriteRaw(folder / "file", "1");
  EXPECT_EQ(MakeFolders(files, folder / "file/a/b"), -ENOTDIR);
}

TEST(ErrorStatusTest, NamesActionPathAndReason) {
  const Status status = ErrorStatus(-EACCES, "open", "/a/b");
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(status.message(), HasSubstr("cannot open '/a/b': Permission denied"));
  EXPECT_EQ(ErrorStatus(-ESTALE, "open", "/a").code(), StatusCode::kUnavailable);
}

}  // namespace
}  // namespace segue
