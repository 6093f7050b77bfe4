// SPDX-License-Identifier: Apache-2.0
//
// Goal: by a pinned path nothing outside of its folder is read, made, changed or removed, whatever
// links are below the folder and whoever swaps them meanwhile; what is no link goes on as ever.
#include "base/file_place.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <thread>

#include "base/file.h"

namespace segue {
namespace {

using testing::ElementsAre;

class FilePlaceTest : public testing::Test {
 protected:
  FilePlaceTest() {
    std::string name = testing::TempDir() + "segue_place_XXXXXX";
    top_ = ::mkdtemp(name.data());
    for (const char* const folder : {"root", "root/a", "outside"}) {
      std::filesystem::create_directory(JoinPath(top_, folder));
    }
    Write("root/a/file", "inside");
    Write("outside/secret", "secret");
    Link("outside", "root/way");
    Link("outside/secret", "root/a/out");
    Link("root/a/file", "root/a/in");
    root_ = OpenFolderAt(AT_FDCWD, JoinPath(top_, "root"), O_PATH);
  }
  ~FilePlaceTest() override {
    ::close(root_);
    EXPECT_TRUE(RemoveTree(top_).ok());
  }

  void Write(const std::string& name, std::string_view text) {
    ASSERT_TRUE(WriteFileAtomic(JoinPath(top_, name), AsBytes(text)).ok());
  }
  void Link(const std::string& target, const std::string& name) {
    std::filesystem::create_symlink(JoinPath(top_, target), JoinPath(top_, name));
  }
  std::string Pinned(std::string_view below) const { return PinnedPath(root_, below); }
  std::string Read(std::string_view below, Links links = Links::kFollow) const {
    const Result<ByteVector> bytes = ReadFile(Pinned(below), 100, links);
    return bytes.ok() ? std::string(AsText(bytes.value()))
                      : std::string(StatusCodeName(bytes.status().code()));
  }
  void ExpectOutsideAsItWas() const {
    const std::string outside = JoinPath(top_, "outside");
    EXPECT_THAT(ListDirectory(outside).value(), ElementsAre("secret"));
    EXPECT_EQ(AsText(ReadFile(JoinPath(outside, "secret"), 100).value()), "secret");
  }

  std::string top_;
  int root_ = -1;
};

TEST_F(FilePlaceTest, NoCallIsLedOut) {
  const auto refused = [](const Status& status) {
    return status.code() == StatusCode::kInvalidArgument;
  };
  EXPECT_TRUE(refused(MappedFile::Open(Pinned("way/secret")).status()));
  EXPECT_TRUE(refused(MappedFile::Open(Pinned("a/out")).status()));
  EXPECT_TRUE(refused(MappedFile::Open(Pinned("a/in"), MappedFile::Mode::kReadWrite).status()));
  EXPECT_TRUE(refused(OutputFile::Create(Pinned("way/new")).status()));
  EXPECT_TRUE(refused(ReadFileRange(Pinned("a/out"), 0, 1).status()));
  EXPECT_TRUE(refused(WriteFileAtomic(Pinned("way/secret"), AsBytes("x"))));
  EXPECT_TRUE(refused(SyncDirectory(Pinned("way/x"))));
  EXPECT_TRUE(refused(SyncFile(Pinned("a/out"))));
  const FileRange range = {0, 4096};
  EXPECT_TRUE(refused(AllocateBlocks(Pinned("a/out"), {&range, 1})));
  EXPECT_FALSE(ListDirectory(Pinned("way")).ok());
  EXPECT_FALSE(MakeDirectories(Pinned("way")).ok());
  EXPECT_TRUE(refused(MakeDirectories(Pinned("way/b/c"))));
  EXPECT_TRUE(refused(MakeOwnDirectory(Pinned("way/b"))));
  EXPECT_TRUE(refused(CheckOwnDirectory(Pinned("way"))));
  EXPECT_TRUE(refused(RemoveFile(Pinned("way/secret"))));
  EXPECT_TRUE(refused(RemoveTree(Pinned("way/secret"))));
  EXPECT_TRUE(refused(RenameFile(Pinned("way/secret"), Pinned("a/b"))));
  EXPECT_TRUE(refused(RenameFile(Pinned("a/file"), Pinned("way/b"))));
  EXPECT_TRUE(refused(RenameToNew(Pinned("a/file"), Pinned("way/b"))));
  EXPECT_TRUE(refused(FileSize(Pinned("a/out")).status()));
  EXPECT_FALSE(FileExists(Pinned("way/secret")));
  EXPECT_TRUE(RemoveTree(Pinned("way")).ok());  // The link, not what it leads to.
  EXPECT_EQ(Read("a/file"), "inside");
  ExpectOutsideAsItWas();
}

TEST_F(FilePlaceTest, ALinkToAFileBelowIsReadAndNothingElse) {
  EXPECT_EQ(Read("a/in"), "inside");
  EXPECT_EQ(Read("a/out"), "invalid_argument");
  EXPECT_EQ(Read("a/in", Links::kRefuse), "invalid_argument");
  EXPECT_EQ(FileSize(Pinned("a/in")).value(), 6u);
  EXPECT_EQ(MappedFile::Open(Pinned("a/in"))->bytes().size(), 6u);
  // Replaced, not written through.
  EXPECT_TRUE(WriteFileAtomic(Pinned("a/out"), AsBytes("new")).ok());
  EXPECT_EQ(Read("a/out"), "new");
  ExpectOutsideAsItWas();
}

TEST_F(FilePlaceTest, NoPartLeadsUp) {
  for (const char* const path : {"..", "../outside/secret", "a/../../outside/secret", "a//file"}) {
    EXPECT_EQ(Read(path), "unavailable") << path;  // EINVAL
  }
}

TEST_F(FilePlaceTest, WhatIsNoLinkIsAsEver) {
  EXPECT_EQ(Read("a/none"), "not_found");
  EXPECT_EQ(Read("none/file"), "not_found");
  EXPECT_TRUE(MakeDirectories(Pinned("b/c/d")).ok());
  EXPECT_TRUE(MakeDirectories(Pinned("b/c/d")).ok());
  EXPECT_TRUE(MakeDirectories(Pinned("")).ok());
  EXPECT_TRUE(WriteFileAtomic(Pinned("b/c/d/e"), AsBytes("x")).ok());
  EXPECT_THAT(ListDirectory(Pinned("b/c")).value(), ElementsAre("d"));
  EXPECT_TRUE(RenameToNew(Pinned("b/c"), Pinned("b/f")).ok());
  EXPECT_EQ(RenameToNew(Pinned("b/f"), Pinned("a")).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(AsText(ReadFile(JoinPath(top_, "root/b/f/d/e"), 100).value()), "x");
  EXPECT_TRUE(RemoveTree(Pinned("b")).ok());
  EXPECT_TRUE(RemoveTree(Pinned("b")).ok());
  EXPECT_THAT(ListDirectory(Pinned("")).value(), ElementsAre("a", "way"));
}

TEST_F(FilePlaceTest, WhileFoldersAreSwappedForLinks) {
  const std::string place = JoinPath(top_, "root/s");
  std::filesystem::create_directory(place);
  std::atomic<bool> stop = false;
  std::jthread swapper([&] {
    Link("outside", "root/link");
    while (!stop) {
      ::renameat2(AT_FDCWD, JoinPath(top_, "root/link").c_str(), AT_FDCWD, place.c_str(),
                  RENAME_EXCHANGE);
    }
  });
  int written = 0;
  for (int i = 0; i < 5000; ++i) {
    written += WriteFileAtomic(Pinned("s/new"), AsBytes("x")).ok() ? 1 : 0;
    (void)RemoveFile(Pinned("s/secret"));
    EXPECT_NE(Read("s/secret"), "secret");
  }
  stop = true;
  swapper.join();
  EXPECT_GT(written, 0);
  ExpectOutsideAsItWas();
}

}  // namespace
}  // namespace segue
