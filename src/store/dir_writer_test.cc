// SPDX-License-Identifier: Apache-2.0
//
// DirWriter: of many writers of one name exactly one wins, and whatever fails or dies on the way
// leaves nothing that a reader could see. Judged from outside, by another store on the same folder.
#include "store/dir_writer.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <barrier>
#include <set>
#include <thread>

#include "store/dir_store.h"
#include "store/test_support.h"

namespace segue {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr std::size_t kObjectSize = 100'000;

class DirWriterTest : public ::testing::Test {
 protected:
  // Made with the test's own, well-behaved file system.
  const TemporaryFolder folder_;
  const std::unique_ptr<DirStore> reader_ = folder_.OpenDirStore();
  FaultyFileSystem files_;
  const std::unique_ptr<DirStore> store_ = folder_.OpenDirStore(files_);

  // What is there is what exactly one of `count` writers wrote.
  void ExpectOneWhole(const std::string& name, std::uint64_t winner) {
    EXPECT_EQ(reader_->Get(name, 1 << 20).value(), Pattern(winner, kObjectSize));
    EXPECT_THAT(folder_.Temporaries(), IsEmpty());
  }

  void MakeOlder(const std::string& path, std::chrono::seconds age) {
    struct stat info {};
    ASSERT_EQ(::stat(path.c_str(), &info), 0);
    const timespec then = {info.st_mtim.tv_sec - age.count(), 0};
    const timespec times[2] = {then, then};
    ASSERT_EQ(::utimensat(AT_FDCWD, path.c_str(), times, 0), 0);
  }
};

TEST_F(DirWriterTest, EightThreadsOneWinner) {
  constexpr std::uint64_t kThreads = 8;
  for (int round = 0; round < 20; ++round) {
    const std::string name = "round-" + std::to_string(round) + "/x";
    std::barrier start(kThreads);
    std::atomic<std::uint64_t> winners{0};
    std::atomic<std::uint64_t> winner{0};
    std::vector<std::jthread> threads;
    for (std::uint64_t i = 0; i < kThreads; ++i) {
      threads.emplace_back([&, i] {
        const ByteVector bytes = Pattern(i, kObjectSize);
        start.arrive_and_wait();
        if (reader_->PutIfAbsent(name, bytes).value() != PutOutcome::kCreated) return;
        ++winners;
        winner = i;
      });
    }
    threads.clear();
    EXPECT_EQ(winners, 1u);
    ExpectOneWhole(name, winner);
  }
}

// case G7: two ranks race to make the version visible; a second coordinator starts.
TEST_F(DirWriterTest, FourProcessesOneWinner) {
  constexpr int kProcesses = 4;
  for (int round = 0; round < 10; ++round) {
    const std::string name = "versions/" + std::to_string(round);
    Pipe start;
    std::vector<pid_t> children;
    children.reserve(kProcesses);
    for (int i = 0; i < kProcesses; ++i) {
      children.push_back(Fork([&, i] {
        const std::unique_ptr<DirStore> store = folder_.OpenDirStore();
        const ByteVector bytes = Pattern(static_cast<std::uint64_t>(i), kObjectSize);
        start.Await();
        return store->PutIfAbsent(name, bytes).value() == PutOutcome::kCreated ? 1 : 0;
      }));
    }
    for (int i = 0; i < kProcesses; ++i) start.Signal();
    std::vector<std::uint64_t> winners;
    for (int i = 0; i < kProcesses; ++i) {
      const int status = Join(children[static_cast<std::size_t>(i)]);
      EXPECT_GE(status, 0);
      if (status == 1) winners.push_back(static_cast<std::uint64_t>(i));
    }
    ASSERT_THAT(winners, SizeIs(1));
    ExpectOneWhole(name, winners.front());
  }
}

TEST_F(DirWriterTest, AWriterThatIsDroppedLeavesNothing) {
  {
    const std::unique_ptr<StoreWriter> writer = store_->StartWrite().value();
    ASSERT_TRUE(writer->Append(AsBytes("half")).ok());
    EXPECT_THAT(folder_.Temporaries(), SizeIs(1));
  }
  EXPECT_THAT(folder_.Temporaries(), IsEmpty());
  EXPECT_THAT(reader_->List("").value(), IsEmpty());
}

// case G7: rank 3 dies in the middle; its object is not there, its temporary can be cleaned.
TEST_F(DirWriterTest, AKilledWriterLeavesNothingVisible) {
  Pipe appended;
  const auto write = [&](int rank) {
    const std::unique_ptr<DirStore> store = folder_.OpenDirStore();
    const std::unique_ptr<StoreWriter> writer = store->StartWrite().value();
    for (int i = 0; i < 10; ++i) {
      if (!writer->Append(Pattern(1, kObjectSize)).ok()) return 1;
    }
    if (rank == 3) appended.Signal();
    while (rank == 3 && writer->Append(Pattern(1, 10)).ok()) ::usleep(1000);
    return writer->Commit("payloads/rank-" + std::to_string(rank)).ok() ? 0 : 1;
  };
  std::vector<pid_t> children;
  children.reserve(4);
  for (int rank = 0; rank < 4; ++rank) children.push_back(Fork([&, rank] { return write(rank); }));
  appended.Await();
  ASSERT_EQ(::kill(children[3], SIGKILL), 0);
  for (int rank = 0; rank < 3; ++rank) EXPECT_EQ(Join(children[static_cast<std::size_t>(rank)]), 0);
  EXPECT_EQ(Join(children[3]), -SIGKILL);
  EXPECT_THAT(reader_->List("payloads").value(), ElementsAre("rank-0", "rank-1", "rank-2"));
  EXPECT_THAT(folder_.Temporaries(), SizeIs(1));

  EXPECT_TRUE(reader_->RemoveStaleTemporaries(std::chrono::hours(1)).ok());
  EXPECT_THAT(folder_.Temporaries(), SizeIs(1));
  MakeOlder(folder_ / ".tmp/" + folder_.Temporaries().front(), std::chrono::hours(1));
  EXPECT_TRUE(reader_->RemoveStaleTemporaries(std::chrono::hours(1)).ok());
  EXPECT_THAT(folder_.Temporaries(), IsEmpty());
}

TEST_F(DirWriterTest, OnlyAgeMakesATemporaryStale) {
  EXPECT_TRUE(store_->RemoveStaleTemporaries(std::chrono::seconds(0)).ok());
  const std::unique_ptr<StoreWriter> live = store_->StartWrite().value();
  ASSERT_TRUE(live->Append(AsBytes("slow")).ok());
  MakeOlder(folder_ / ".tmp/" + folder_.Temporaries().front(), std::chrono::hours(23));
  WriteRaw(folder_ / ".tmp/.nfs0001", "open elsewhere");
  WriteRaw(folder_ / ".tmp/from the future", "");
  MakeOlder(folder_ / ".tmp/from the future", std::chrono::hours(-1000));
  MakeOlder(folder_ / ".tmp/.nfs0001", std::chrono::hours(1000));
  EXPECT_TRUE(store_->RemoveStaleTemporaries(std::chrono::hours(24)).ok());
  EXPECT_THAT(folder_.Temporaries(), SizeIs(3));
  EXPECT_EQ(live->Commit("x").value(), PutOutcome::kCreated);
  EXPECT_EQ(AsText(reader_->Get("x", 10).value()), "slow");
}

TEST_F(DirWriterTest, AWriterTakenForStaleFailsInASentence) {
  const std::unique_ptr<StoreWriter> writer = store_->StartWrite().value();
  ASSERT_TRUE(store_->RemoveStaleTemporaries(std::chrono::seconds(0)).ok());
  EXPECT_THAT(writer->Commit("x").status().ToString(),
              AllOf(HasSubstr("unavailable"), HasSubstr("object 'x'"), HasSubstr("as stale")));
  EXPECT_THAT(reader_->List("").value(), IsEmpty());
}

// A crash between the link and the removal of the temporary leaves two names of one file.
TEST_F(DirWriterTest, CleaningATemporaryThatWasLinkedKeepsTheObject) {
  files_.FailBefore("unlink", EIO);
  ASSERT_TRUE(store_->PutIfAbsent("x", AsBytes("whole")).ok());
  EXPECT_THAT(folder_.Temporaries(), SizeIs(1));
  ASSERT_TRUE(reader_->RemoveStaleTemporaries(std::chrono::seconds(0)).ok());
  EXPECT_THAT(folder_.Temporaries(), IsEmpty());
  EXPECT_EQ(AsText(reader_->Get("x", 10).value()), "whole");
}

// Bytes before the name, the name before the report of success; every folder, whoever made it.
TEST_F(DirWriterTest, SyncsInOrder) {
  ASSERT_TRUE(store_->PutIfAbsent("first", {}).ok());
  files_.calls.clear();
  ASSERT_TRUE(store_->PutIfAbsent("a/b/x", AsBytes("1")).ok());
  std::vector<std::string> calls;
  for (const std::string& call : files_.calls) {
    if (call.find(".tmp") == std::string::npos) calls.push_back(call);
  }
  // The second "close" ends the look at whether the failed link was made after all.
  EXPECT_THAT(calls,
              ElementsAre("write", "sync", "close", "link " + (folder_ / "a/b/x"), "close",
                          "mkdir " + (folder_ / "a/b"), "mkdir " + (folder_ / "a"),
                          "mkdir " + (folder_ / "a/b"), "link " + (folder_ / "a/b/x"),
                          "sync_folder " + (folder_ / "a/b"), "sync_folder " + (folder_ / "a"),
                          "sync_folder " + folder_.path()));
}

// The other writer may have died before it synced the folders: "already there" is durable as well.
TEST_F(DirWriterTest, AlreadyThereIsSyncedToo) {
  ASSERT_TRUE(reader_->PutIfAbsent("a/x", {}).ok());
  files_.calls.clear();
  EXPECT_EQ(store_->PutIfAbsent("a/x", {}).value(), PutOutcome::kAlreadyThere);
  EXPECT_EQ(std::count(files_.calls.begin(), files_.calls.end(), "sync_folder " + (folder_ / "a")),
            1);
}

// case D2: a failure before the link leaves nothing, is reported, and another try succeeds.
TEST_F(DirWriterTest, WhatFailsBeforeTheLinkIsNotThere) {
  for (const std::string call : {"write", "sync", "close", "link", "create"}) {
    files_.FailBefore(call, call == "write" ? ENOSPC : EIO);
    const Status status = store_->PutIfAbsent("x", AsBytes("1")).status();
    EXPECT_EQ(status.code(),
              call == "write" ? StatusCode::kResourceExhausted : StatusCode::kUnavailable)
        << call;
    EXPECT_THAT(status.message(), HasSubstr("store 'dir:"));
    EXPECT_THAT(reader_->List("").value(), IsEmpty()) << call;
    EXPECT_THAT(folder_.Temporaries(), IsEmpty()) << call;
  }
  EXPECT_EQ(store_->PutIfAbsent("x", AsBytes("1")).value(), PutOutcome::kCreated);
}

// case D2
TEST_F(DirWriterTest, HalfAnObjectIsNotCommitted) {
  const std::unique_ptr<StoreWriter> writer = store_->StartWrite().value();
  ASSERT_TRUE(writer->Append(AsBytes("one")).ok());
  files_.FailBefore("write", ENOSPC);
  EXPECT_FALSE(writer->Append(AsBytes("two")).ok());
  EXPECT_FALSE(writer->Append(AsBytes("three")).ok());
  EXPECT_EQ(writer->Commit("x").status().code(), StatusCode::kResourceExhausted);
  EXPECT_THAT(reader_->List("").value(), IsEmpty());
}

// case D2: after an uncertain commit the second try finds the object and makes it durable.
TEST_F(DirWriterTest, AFailedFolderSyncIsReportedAndCanBeRepeated) {
  files_.FailBefore("sync_folder", EIO);
  EXPECT_EQ(store_->PutIfAbsent("x", AsBytes("1")).status().code(), StatusCode::kUnavailable);
  EXPECT_EQ(store_->PutIfAbsent("x", AsBytes("1")).value(), PutOutcome::kAlreadyThere);
}

// NFS sends a link again when the answer was lost; the second one fails.
TEST_F(DirWriterTest, ALinkWhoseAnswerWasLostIsOurs) {
  for (const int error : {EEXIST, EIO, ESTALE, ENOENT}) {
    const std::string name = std::to_string(error);
    files_.FailAfter("link", error);
    EXPECT_EQ(store_->PutIfAbsent(name, AsBytes("1")).value(), PutOutcome::kCreated);
    EXPECT_EQ(AsText(reader_->Get(name, 1).value()), "1");
  }
  EXPECT_THAT(folder_.Temporaries(), IsEmpty());
}

TEST_F(DirWriterTest, WithoutHardLinksTheStoreSaysSo) {
  files_.FailBefore("link", EPERM);
  EXPECT_THAT(store_->PutIfAbsent("x", {}).status().ToString(),
              AllOf(HasSubstr("unsupported"), HasSubstr("object 'x' of store 'dir:"),
                    HasSubstr("with hard links")));
}

// Deleters remove the folder that the writer has just found or made.
TEST_F(DirWriterTest, FoldersThatVanishAreMadeAgain) {
  for (int i = 0; i < kLinkTryCountMax - 1; ++i) files_.FailBefore("link", ENOENT);
  EXPECT_EQ(store_->PutIfAbsent("a/x", {}).value(), PutOutcome::kCreated);
  for (int i = 0; i < kLinkTryCountMax; ++i) files_.FailBefore("link", ENOENT);
  EXPECT_EQ(store_->PutIfAbsent("a/y", {}).status().code(), StatusCode::kNotFound);
}

// case G2: writers and deleters of one folder at full speed; nobody fails.
TEST_F(DirWriterTest, WritersAndDeletersShareAFolder) {
  const auto work = [&](const std::string& name) {
    for (int i = 0; i < 200; ++i) {
      const auto put = reader_->PutIfAbsent("a/b/" + name, AsBytes(name));
      ASSERT_TRUE(put.ok()) << put.status().ToString();
      EXPECT_EQ(put.value(), PutOutcome::kCreated);
      const Status status = reader_->Delete("a/b/" + name);
      ASSERT_TRUE(status.ok()) << status.ToString();
    }
  };
  std::jthread first(work, "x");
  std::jthread second(work, "y");
  work("z");
}

TEST_F(DirWriterTest, ASpentWriterIsABugOfTheCaller) {
  const std::unique_ptr<StoreWriter> writer = reader_->StartWrite().value();
  ASSERT_TRUE(writer->Commit("x").ok());
  EXPECT_DEATH((void)writer->Append({}), "check failed");
  EXPECT_DEATH((void)writer->Commit("y"), "check failed");
}

}  // namespace
}  // namespace segue
