// SPDX-License-Identifier: Apache-2.0
//
// DirStore on a well-behaved file system: what is put is got, listed and deleted; sizes are checked
// before memory is taken; a deletion disturbs neither an open reader nor another deleter.
#include "store/dir_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <barrier>
#include <thread>

#include "store/test_support.h"

namespace segue {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class DirStoreTest : public ::testing::Test {
 protected:
  void Put(const std::string& name, ByteSpan bytes) {
    ASSERT_EQ(store_->PutIfAbsent(name, bytes).value(), PutOutcome::kCreated);
  }

  const TemporaryFolder folder_;
  FaultyFileSystem files_;
  const std::unique_ptr<DirStore> store_ = folder_.OpenDirStore(files_);
};

TEST_F(DirStoreTest, PutGetListDelete) {
  const ByteVector bytes = Pattern(1, 3'000'001);
  Put("run/payloads/1/rank-0", bytes);
  Put("run/versions/1.json", AsBytes("{}"));
  EXPECT_EQ(store_->Get("run/payloads/1/rank-0", bytes.size()).value(), bytes);
  EXPECT_EQ(store_->Size("run/payloads/1/rank-0").value(), bytes.size());
  EXPECT_THAT(store_->List("run/versions").value(), ElementsAre("1.json"));
  EXPECT_TRUE(store_->Delete("run/versions/1.json").ok());
  EXPECT_THAT(store_->List("run/versions").value(), IsEmpty());
  EXPECT_EQ(store_->Get("run/versions/1.json", 10).status().code(), StatusCode::kNotFound);
  EXPECT_EQ(store_->PutIfAbsent("run/versions/1.json", {}).value(), PutOutcome::kCreated);
}

TEST_F(DirStoreTest, AnObjectWrittenInPiecesAppearsAtCommit) {
  const std::unique_ptr<StoreWriter> writer = store_->StartWrite().value();
  ASSERT_TRUE(writer->Append(AsBytes("one ")).ok());
  ASSERT_TRUE(writer->Append({}).ok());
  ASSERT_TRUE(writer->Append(AsBytes("two")).ok());
  EXPECT_THAT(store_->List("").value(), IsEmpty());
  EXPECT_EQ(writer->Commit("x").value(), PutOutcome::kCreated);
  EXPECT_EQ(AsText(store_->Get("x", 7).value()), "one two");
  EXPECT_THAT(folder_.Temporaries(), IsEmpty());
}

TEST_F(DirStoreTest, EmptyObjects) {
  Put("empty", {});
  EXPECT_TRUE(store_->Get("empty", 0).value().empty());
  EXPECT_TRUE(store_->GetRange("empty", 0, 0).value().empty());
  EXPECT_EQ(store_->Size("empty").value(), 0u);
  EXPECT_EQ(store_->GetRange("empty", 0, 1).status().code(), StatusCode::kCorruption);
}

TEST_F(DirStoreTest, ListShowsObjectsOnly) {
  for (const std::string name : {"b", "a", "10", "9", "folder/below"}) Put(name, {});
  const auto unfinished = store_->StartWrite();
  ASSERT_TRUE(unfinished.ok());
  WriteRaw(folder_ / ".nfs0001", "x");
  WriteRaw(folder_ / "a name of someone else", "x");
  ASSERT_EQ(::symlink("a", (folder_ / "link").c_str()), 0);
  ASSERT_EQ(::mkfifo((folder_ / "pipe").c_str(), 0600), 0);
  EXPECT_THAT(store_->List("").value(), ElementsAre("10", "9", "a", "b"));
  EXPECT_THAT(store_->List("folder").value(), ElementsAre("below"));
  EXPECT_THAT(store_->ListFolders("").value(), ElementsAre("folder"));
  EXPECT_THAT(store_->ListFolders("folder").value(), IsEmpty());
  EXPECT_THAT(store_->ListFolders("none/at/all").value(), IsEmpty());
  EXPECT_THAT(store_->List("none/at/all").value(), IsEmpty());
  EXPECT_THAT(store_->List("a").value(), IsEmpty());
  EXPECT_EQ(store_->List(".tmp").status().code(), StatusCode::kInvalidArgument);
}

TEST_F(DirStoreTest, RangesUpToTheBorders) {
  const ByteVector bytes = Pattern(2, 1000);
  Put("x", bytes);
  const auto range = [&](std::size_t offset, std::size_t size) {
    return ByteVector(bytes.begin() + offset, bytes.begin() + offset + size);
  };
  for (const auto& [offset, size] : std::vector<std::pair<std::size_t, std::size_t>>{
           {0, 0}, {0, 1}, {0, 1000}, {1, 999}, {999, 1}, {1000, 0}, {17, 400}}) {
    EXPECT_EQ(store_->GetRange("x", offset, size).value(), range(offset, size)) << offset;
  }
}

TEST_F(DirStoreTest, RangesBeyondTheEndAreRefusedWithTheSizes) {
  Put("x", Pattern(2, 1000));
  EXPECT_THAT(store_->GetRange("x", 990, 11).status().ToString(),
              AllOf(HasSubstr("corruption"), HasSubstr("'x'"), HasSubstr("has 1000 bytes"),
                    HasSubstr("11 bytes from offset 990")));
  constexpr std::uint64_t kHuge = ~std::uint64_t{0};
  for (const auto& [offset, size] : std::vector<std::pair<std::uint64_t, std::uint64_t>>{
           {1001, 0}, {1000, 1}, {0, 1001}, {0, kHuge}, {kHuge, 0}, {kHuge, kHuge}, {1, kHuge}}) {
    EXPECT_EQ(store_->GetRange("x", offset, size).status().code(), StatusCode::kCorruption);
  }
}

// Sizes that memory could not hold: nothing is allocated before the check.
TEST_F(DirStoreTest, SizesAreCheckedBeforeAllocation) {
  Put("huge", {});
  ASSERT_EQ(::truncate((folder_ / "huge").c_str(), off_t{1} << 42), 0);
  EXPECT_THAT(store_->Get("huge", 1 << 20).status().ToString(),
              AllOf(HasSubstr("resource_exhausted"), HasSubstr("'huge'"),
                    HasSubstr("4398046511104 bytes"), HasSubstr("limit is 1048576")));
  EXPECT_EQ(store_->GetRange("huge", 1, std::uint64_t{1} << 42).status().code(),
            StatusCode::kCorruption);
  Put("x", Pattern(1, 10));
  EXPECT_EQ(store_->Get("x", 9).status().code(), StatusCode::kResourceExhausted);
  EXPECT_TRUE(store_->Get("x", 10).ok());
}

TEST_F(DirStoreTest, RangesBeyond4GiB) {
  constexpr std::uint64_t kOffset = (std::uint64_t{5} << 30) + 3;
  OutputFile file = OutputFile::Create(folder_ / "sparse").value();
  ASSERT_TRUE(file.WriteAt(kOffset, AsBytes("far out")).ok());
  EXPECT_EQ(store_->Size("sparse").value(), kOffset + 7);
  EXPECT_EQ(AsText(store_->GetRange("sparse", kOffset, 7).value()), "far out");
  EXPECT_EQ(store_->GetRange("sparse", kOffset - 2, 3).value().back(), std::byte{'f'});
}

// Short reads, as network file systems make them.
TEST_F(DirStoreTest, AFileThatShrinksWhileItIsReadIsCorrupt) {
  Put("x", Pattern(3, 1000));
  files_.before_read = [&](int) { ASSERT_EQ(::truncate((folder_ / "x").c_str(), 400), 0); };
  EXPECT_THAT(store_->Get("x", 1000).status().ToString(),
              AllOf(HasSubstr("corruption"), HasSubstr("ends at 400 bytes"), HasSubstr("1000")));
}

TEST_F(DirStoreTest, WhatIsNoFileIsNoObject) {
  Put("folder/x", {});
  ASSERT_EQ(::symlink("/etc/passwd", (folder_ / "link").c_str()), 0);
  ASSERT_EQ(::mkfifo((folder_ / "pipe").c_str(), 0600), 0);
  for (const std::string name : {"folder", "link", "pipe"}) {
    EXPECT_EQ(store_->Get(name, 1 << 20).status().code(), StatusCode::kInvalidArgument) << name;
    const Status status = store_->PutIfAbsent(name, {}).status();
    EXPECT_THAT(status.ToString(), AllOf(HasSubstr("invalid_argument"), HasSubstr(name)));
  }
  EXPECT_EQ(store_->Delete("folder").code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(store_->Get("folder/x/y", 1).status().code(), StatusCode::kNotFound);
  EXPECT_THAT(store_->PutIfAbsent("folder/x/y", {}).status().ToString(),
              AllOf(HasSubstr("invalid_argument"), HasSubstr("is a file, expected a folder")));
  EXPECT_THAT(folder_.Temporaries(), IsEmpty());
}

TEST_F(DirStoreTest, TheRootMayBeALink) {
  const TemporaryFolder other;
  ASSERT_EQ(::symlink(folder_.path().c_str(), (other / "root").c_str()), 0);
  const auto linked = DirStore::Open({.url = "u", .root = other / "root", .create = true});
  ASSERT_TRUE(linked.ok()) << linked.status().ToString();
  EXPECT_TRUE(linked.value()->PutIfAbsent("a/x", AsBytes("1")).ok());
  EXPECT_EQ(AsText(store_->Get("a/x", 1).value()), "1");
}

TEST_F(DirStoreTest, PermissionErrorsAreSentences) {
  Put("x", {});
  files_.FailBefore("open", EACCES);
  EXPECT_THAT(store_->Get("x", 1).status().ToString(),
              AllOf(HasSubstr("invalid_argument"), HasSubstr("object 'x' of store 'dir:"),
                    HasSubstr("should be a readable file"), HasSubstr("Permission denied")));
  files_.FailBefore("create", EACCES);
  EXPECT_THAT(store_->StartWrite().status().ToString(),
              AllOf(HasSubstr("invalid_argument"), HasSubstr("store 'dir:"),
                    HasSubstr("should be a writable folder"), HasSubstr("Permission denied")));
  files_.FailBefore("unlink", EROFS);
  EXPECT_THAT(store_->Delete("x").ToString(),
              AllOf(HasSubstr("object 'x'"), HasSubstr("should be deletable"),
                    HasSubstr("Read-only file system")));
}

// A store that was unmounted must not look like one without versions.
TEST_F(DirStoreTest, AMissingRootIsAnErrorAndNotAnEmptyStore) {
  ASSERT_TRUE(RemoveTree(folder_.path()).ok());
  for (const std::string prefix : {"", "versions"}) {
    EXPECT_EQ(store_->List(prefix).status().code(), StatusCode::kNotFound) << prefix;
  }
  EXPECT_THAT(store_->Get("x", 1).status().message(), HasSubstr("should be a folder"));
  EXPECT_EQ(store_->StartWrite().status().code(), StatusCode::kNotFound);
  EXPECT_EQ(store_->Delete("x").code(), StatusCode::kNotFound);
}

TEST_F(DirStoreTest, DeleteTakesEmptiedFoldersAlong) {
  Put("a/b/c/x", {});
  Put("a/y", {});
  EXPECT_TRUE(store_->Delete("a/b/c/x").ok());
  EXPECT_FALSE(FileExists(folder_ / "a/b"));
  EXPECT_TRUE(FileExists(folder_ / "a/y"));
  EXPECT_TRUE(store_->Delete("a/y").ok());
  EXPECT_FALSE(FileExists(folder_ / "a"));
  EXPECT_TRUE(FileExists(folder_.path()));
  EXPECT_TRUE(store_->Delete("a/y").ok());
  EXPECT_TRUE(store_->Delete("never/was").ok());
}

// case G2: the deletion comes between the open and the read.
TEST_F(DirStoreTest, AReaderWithTheObjectOpenGetsItWhole) {
  const ByteVector bytes = Pattern(4, 100'000);
  Put("v3/payload", bytes);
  const std::unique_ptr<DirStore> pruner = folder_.OpenDirStore();
  files_.before_read = [&](int) { ASSERT_TRUE(pruner->Delete("v3/payload").ok()); };
  EXPECT_EQ(store_->Get("v3/payload", bytes.size()).value(), bytes);
  EXPECT_EQ(store_->Size("v3/payload").status().code(), StatusCode::kNotFound);
}

// case G2: the deletion comes between two range reads.
TEST_F(DirStoreTest, AReaderThatComesBackIsToldThatTheObjectIsGone) {
  Put("v3/payload", Pattern(4, 100));
  EXPECT_TRUE(store_->GetRange("v3/payload", 0, 50).ok());
  EXPECT_TRUE(folder_.OpenDirStore()->Delete("v3/payload").ok());
  EXPECT_THAT(store_->GetRange("v3/payload", 50, 50).status().ToString(),
              AllOf(HasSubstr("not_found"), HasSubstr("object 'v3/payload'")));
}

// case G2: two pruners on the same versions, and neither fails.
TEST_F(DirStoreTest, TwoDeletersBothSucceed) {
  constexpr int kCount = 100;
  for (int i = 0; i < kCount; ++i) Put("v/" + std::to_string(i) + "/payloads/x", {});
  std::barrier start(2);
  const auto prune = [&] {
    const std::unique_ptr<DirStore> store = folder_.OpenDirStore();
    start.arrive_and_wait();
    for (int i = 0; i < kCount; ++i) {
      const Status status = store->Delete("v/" + std::to_string(i) + "/payloads/x");
      EXPECT_TRUE(status.ok()) << status.ToString();
    }
  };
  std::jthread other(prune);
  prune();
  other.join();
  EXPECT_FALSE(FileExists(folder_ / "v"));
}

// A manifest that was deleted first must not come back without its payloads.
TEST_F(DirStoreTest, DeletionsAreDurableInTheirOrder) {
  Put("a/x", {});
  files_.calls.clear();
  ASSERT_TRUE(store_->Delete("a/x").ok());
  EXPECT_THAT(files_.calls,
              ElementsAre("unlink " + (folder_ / "a/x"), "sync_folder " + (folder_ / "a")));
  Put("a/x", {});
  files_.FailBefore("sync_folder", EIO);
  EXPECT_EQ(store_->Delete("a/x").code(), StatusCode::kUnavailable);
}

}  // namespace
}  // namespace segue
