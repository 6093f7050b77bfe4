// SPDX-License-Identifier: Apache-2.0
//
// Goal: what is written is read back, an atomic write leaves the old or the new file and nothing
// beside it, and every refusal carries the right code and names the path.
#include "base/file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>

#include "base/threads.h"

namespace segue {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class FileTest : public testing::Test {
 protected:
  FileTest() {
    std::string name = testing::TempDir() + "segue_file_XXXXXX";
    directory_ = ::mkdtemp(name.data());
  }
  ~FileTest() override { EXPECT_TRUE(RemoveTree(directory_).ok()); }

  std::string Path(std::string_view name) const { return JoinPath(directory_, name); }
  std::string Text(std::string_view name) const {
    const Result<ByteVector> bytes = ReadFile(Path(name), 1 << 20);
    return bytes.ok() ? std::string(AsText(bytes.value())) : bytes.status().ToString();
  }
  std::vector<std::string> Names() const { return ListDirectory(directory_).value(); }

  std::string directory_;
};

TEST_F(FileTest, OutputFileAppendsAndWritesAnywhere) {
  OutputFile file = OutputFile::Create(Path("a")).value();
  EXPECT_TRUE(file.Append(AsBytes("hello ")).ok());
  EXPECT_TRUE(file.Append(AsBytes("world")).ok());
  EXPECT_TRUE(file.WriteAt(0, AsBytes("J")).ok());
  OutputFile moved = std::move(file);
  EXPECT_TRUE(moved.Append(AsBytes("!")).ok());
  EXPECT_EQ(moved.path(), Path("a"));
  EXPECT_TRUE(moved.Sync().ok());
  EXPECT_TRUE(moved.Close().ok());
  EXPECT_EQ(Text("a"), "Jello world!");
  EXPECT_EQ(FileSize(Path("a")).value(), 12u);
  EXPECT_TRUE(SyncFile(Path("a")).ok());
}

TEST_F(FileTest, AtomicWriteReplacesAndLeavesNothingBeside) {
  EXPECT_TRUE(WriteFileAtomic(Path("a"), AsBytes("one")).ok());
  EXPECT_TRUE(WriteFileAtomic(Path("a"), AsBytes("two")).ok());
  EXPECT_EQ(Text("a"), "two");
  EXPECT_THAT(Names(), ElementsAre("a"));
}

TEST_F(FileTest, FailedAtomicWriteLeavesTheOldAndNothingBeside) {
  // A directory that is not empty cannot be replaced by a file.
  ASSERT_TRUE(MakeDirectories(Path("a/b")).ok());
  EXPECT_FALSE(WriteFileAtomic(Path("a"), AsBytes("new")).ok());
  EXPECT_THAT(Names(), ElementsAre("a"));
  const Status status = WriteFileAtomic(Path("none/a"), AsBytes("new"));
  EXPECT_EQ(status.code(), StatusCode::kNotFound);
}

TEST_F(FileTest, AtomicWritesOfOnePathByManyThreadsLeaveOneWhole) {
  const Status status = ParallelFor(40, 4, [&](std::size_t index, unsigned) {
    return WriteFileAtomic(Path("a"), AsBytes(std::string(1000, static_cast<char>('A' + index))));
  });
  EXPECT_TRUE(status.ok()) << status.ToString();
  const std::string text = Text("a");
  EXPECT_EQ(text, std::string(1000, text[0]));
  EXPECT_THAT(Names(), ElementsAre("a"));
}

TEST_F(FileTest, MapsForReadingAndWriting) {
  ASSERT_TRUE(WriteFileAtomic(Path("a"), AsBytes("hello")).ok());
  MappedFile read = MappedFile::Open(Path("a")).value();
  EXPECT_EQ(AsText(read.bytes()), "hello");
  EXPECT_TRUE(read.mutable_bytes().empty());
  MappedFile write = MappedFile::Open(Path("a"), MappedFile::Mode::kReadWrite).value();
  write.mutable_bytes()[0] = std::byte{'J'};
  EXPECT_TRUE(write.Sync().ok());
  EXPECT_EQ(Text("a"), "Jello");
  const MappedFile moved = std::move(write);
  EXPECT_EQ(AsText(moved.bytes()), "Jello");
}

TEST_F(FileTest, EmptyFilesMapAndRead) {
  ASSERT_TRUE(WriteFileAtomic(Path("a"), {}).ok());
  MappedFile mapped = MappedFile::Open(Path("a"), MappedFile::Mode::kReadWrite).value();
  EXPECT_TRUE(mapped.bytes().empty());
  EXPECT_TRUE(mapped.Sync().ok());
  EXPECT_EQ(Text("a"), "");
}

TEST_F(FileTest, RangesEndInsideTheFile) {
  ASSERT_TRUE(WriteFileAtomic(Path("a"), AsBytes("hello")).ok());
  EXPECT_EQ(AsText(ReadFileRange(Path("a"), 1, 3).value()), "ell");
  EXPECT_TRUE(ReadFileRange(Path("a"), 5, 0).value().empty());
  const Status status = ReadFileRange(Path("a"), 3, 3).status();
  EXPECT_EQ(status.ToString(),
            "corruption: '" + Path("a") + "' has 5 bytes, 3 from offset 3 were asked for");
  EXPECT_EQ(ReadFileRange(Path("a"), 6, 0).status().code(), StatusCode::kCorruption);
  EXPECT_EQ(ReadFileRange(Path("a"), 1, ~0ull).status().code(), StatusCode::kCorruption);
}

TEST_F(FileTest, ReadFileKeepsItsLimit) {
  ASSERT_TRUE(WriteFileAtomic(Path("a"), AsBytes("hello")).ok());
  EXPECT_TRUE(ReadFile(Path("a"), 5).ok());
  EXPECT_EQ(ReadFile(Path("a"), 4).status().ToString(),
            "resource_exhausted: '" + Path("a") + "' has 5 bytes, the limit is 4");
}

TEST_F(FileTest, MissingFilesAreNotFoundAndNamed) {
  const std::string expected = "cannot open '" + Path("none") + "': No such file or directory";
  for (const Status& status :
       {MappedFile::Open(Path("none")).status(), ReadFile(Path("none"), 1).status(),
        ReadFileRange(Path("none"), 0, 0).status(), SyncFile(Path("none"))}) {
    EXPECT_EQ(status.code(), StatusCode::kNotFound);
    EXPECT_EQ(status.message(), expected);
  }
  EXPECT_EQ(FileSize(Path("none")).status().code(), StatusCode::kNotFound);
  EXPECT_EQ(ListDirectory(Path("none")).status().code(), StatusCode::kNotFound);
  EXPECT_EQ(OutputFile::Create(Path("none/a")).status().code(), StatusCode::kNotFound);
  EXPECT_EQ(RenameFile(Path("none"), Path("b")).code(), StatusCode::kNotFound);
}

TEST_F(FileTest, OnlyRegularFilesOpenAndPipesDoNotBlock) {
  ASSERT_EQ(::mkfifo(Path("pipe").c_str(), 0600), 0);
  for (const std::string& path : {directory_, Path("pipe")}) {
    for (const Status& status : {MappedFile::Open(path).status(), ReadFile(path, 1).status(),
                                 MappedFile::Open(path, MappedFile::Mode::kReadWrite).status()}) {
      EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
      EXPECT_THAT(status.message(), HasSubstr("'" + path + "'"));
    }
  }
}

TEST_F(FileTest, DirectoriesListSortedAndGo) {
  ASSERT_TRUE(MakeDirectories(Path("d/e/f")).ok());
  ASSERT_TRUE(MakeDirectories(Path("d/e/f")).ok());
  for (const char* name : {"d/b", "d/a", "d/.hidden"}) {
    ASSERT_TRUE(WriteFileAtomic(Path(name), AsBytes(name)).ok());
  }
  EXPECT_THAT(ListDirectory(Path("d")).value(), ElementsAre(".hidden", "a", "b", "e"));
  EXPECT_TRUE(SyncDirectory(Path("d")).ok());
  ASSERT_TRUE(WriteFileAtomic(Path("kept"), AsBytes("kept")).ok());
  ASSERT_EQ(::symlink(Path("kept").c_str(), Path("d/link").c_str()), 0);
  EXPECT_TRUE(RemoveTree(Path("d")).ok());
  EXPECT_TRUE(RemoveTree(Path("d")).ok());
  EXPECT_THAT(Names(), ElementsAre("kept"));
}

TEST_F(FileTest, NamesComeAndGo) {
  ASSERT_TRUE(WriteFileAtomic(Path("a"), AsBytes("a")).ok());
  EXPECT_TRUE(FileExists(Path("a")));
  EXPECT_TRUE(RenameFile(Path("a"), Path("b")).ok());
  EXPECT_FALSE(FileExists(Path("a")));
  EXPECT_TRUE(RemoveFile(Path("b")).ok());
  EXPECT_TRUE(RemoveFile(Path("b")).ok());
  // A link whose target is gone is still a name that is taken.
  ASSERT_EQ(::symlink("gone", Path("link").c_str()), 0);
  EXPECT_TRUE(FileExists(Path("link")));
}

TEST(PathTest, JoinsAndSplits) {
  EXPECT_EQ(JoinPath("a", "b"), "a/b");
  EXPECT_EQ(JoinPath("a/", "b"), "a/b");
  EXPECT_EQ(JoinPath("", "b"), "b");
  EXPECT_EQ(DirectoryOf("a/b/c"), "a/b");
  EXPECT_EQ(DirectoryOf("/c"), "/");
  EXPECT_EQ(DirectoryOf("c"), ".");
}

TEST(ErrnoStatusTest, CodesSayWhatTheCallerShouldDo) {
  const std::pair<int, StatusCode> cases[] = {
      {ENOENT, StatusCode::kNotFound},          {ENOTDIR, StatusCode::kNotFound},
      {ENOSPC, StatusCode::kResourceExhausted}, {EDQUOT, StatusCode::kResourceExhausted},
      {EMFILE, StatusCode::kResourceExhausted}, {EACCES, StatusCode::kInvalidArgument},
      {EROFS, StatusCode::kInvalidArgument},    {ELOOP, StatusCode::kInvalidArgument},
      {EIO, StatusCode::kUnavailable},          {EBUSY, StatusCode::kUnavailable},
  };
  for (const auto& [error, code] : cases) {
    errno = error;
    EXPECT_EQ(ErrnoStatus("write", "p").code(), code) << error;
  }
  errno = ENOSPC;
  EXPECT_EQ(ErrnoStatus("write", "p").message(), "cannot write 'p': No space left on device");
}

// What other names share, or a link leads to, is never written through.
TEST_F(FileTest, CreateReplacesTheNameAndNotWhatItLeadsTo) {
  ASSERT_TRUE(WriteFileAtomic(Path("precious"), AsBytes("precious")).ok());
  ASSERT_EQ(::symlink("precious", Path("symlink").c_str()), 0);
  ASSERT_EQ(::symlink("nowhere", Path("dangling").c_str()), 0);
  ASSERT_EQ(::link(Path("precious").c_str(), Path("hard").c_str()), 0);
  for (const char* name : {"symlink", "dangling", "hard"}) {
    OutputFile file = OutputFile::Create(Path(name)).value();
    EXPECT_TRUE(file.Append(AsBytes("new")).ok());
    EXPECT_EQ(Text(name), "new");
  }
  EXPECT_EQ(Text("precious"), "precious");
  EXPECT_FALSE(FileExists(Path("nowhere")));
}

TEST_F(FileTest, OwnDirectoriesAndFilesAreNoLinks) {
  EXPECT_TRUE(MakeOwnDirectory(Path("a")).ok());
  EXPECT_TRUE(MakeOwnDirectory(Path("a")).ok());
  EXPECT_TRUE(CheckOwnDirectory(Path("absent")).ok());
  ASSERT_EQ(::symlink("a", Path("link").c_str()), 0);
  ASSERT_EQ(::symlink("nowhere", Path("dangling").c_str()), 0);
  ASSERT_TRUE(WriteFileAtomic(Path("file"), AsBytes("x")).ok());
  for (const char* name : {"link", "dangling", "file"}) {
    for (const Status& status : {MakeOwnDirectory(Path(name)), CheckOwnDirectory(Path(name))}) {
      EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << name;
      EXPECT_THAT(status.message(), HasSubstr(Path(name)));
    }
  }
  EXPECT_FALSE(FileExists(Path("nowhere")));
  ASSERT_EQ(::symlink("file", Path("file-link").c_str()), 0);
  EXPECT_TRUE(ReadFile(Path("file-link"), 10).ok());
  EXPECT_EQ(ReadFile(Path("file-link"), 10, Links::kRefuse).status().code(),
            StatusCode::kInvalidArgument);
}

TEST_F(FileTest, RenameToNewReplacesNothing) {
  ASSERT_TRUE(MakeDirectories(Path("a")).ok());
  ASSERT_TRUE(MakeDirectories(Path("empty")).ok());
  EXPECT_EQ(RenameToNew(Path("a"), Path("empty")).code(), StatusCode::kInvalidArgument);
  EXPECT_TRUE(RenameToNew(Path("a"), Path("b")).ok());
  EXPECT_THAT(Names(), ElementsAre("b", "empty"));
}

TEST_F(FileTest, AllocatedHolesKeepTheBytesAndTheSize) {
  OutputFile file = OutputFile::Create(Path("a")).value();
  ASSERT_TRUE(file.WriteAt(1 << 20, AsBytes("end")).ok());
  struct stat before {};
  ASSERT_EQ(::stat(Path("a").c_str(), &before), 0);
  const FileRange ranges[] = {{4096, 8192}, {1 << 20, 3}};
  ASSERT_TRUE(AllocateBlocks(Path("a"), ranges).ok());
  struct stat after {};
  ASSERT_EQ(::stat(Path("a").c_str(), &after), 0);
  EXPECT_EQ(after.st_size, before.st_size);
  EXPECT_GE(after.st_blocks, before.st_blocks);
  EXPECT_EQ(AsText(ReadFileRange(Path("a"), 1 << 20, 3).value()), "end");
  EXPECT_EQ(AllocateBlocks(Path("none"), ranges).code(), StatusCode::kNotFound);
}

TEST_F(FileTest, FreeSpaceIsThatOfTheNearestFolder) {
  EXPECT_GT(FreeSpace(directory_).value(), 0u);
  EXPECT_GT(FreeSpace(Path("not/yet/there")).value(), 0u);
}

}  // namespace
}  // namespace segue
