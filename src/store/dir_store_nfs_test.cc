// SPDX-License-Identifier: Apache-2.0
//
// DirStore on a file system that behaves like NFS (case G1): names that another machine has just
// made are remembered as absent, listings lag, handles go stale. What must hold: a fresh object is
// read after its folders were listed; a missing one ends in an error that names it, within a bound.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "store/dir_store.h"
#include "store/test_support.h"

namespace segue {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr int kNeverListed = 1'000'000;
// 20 + 40 + 80 + 160 + 320.
constexpr std::chrono::milliseconds kWaitMax{620};

class DirStoreNfsTest : public ::testing::Test {
 protected:
  DirStoreNfsTest() {
    // By another machine, so to speak: our file system has seen none of it.
    const std::unique_ptr<DirStore> trainer = folder_.OpenDirStore();
    for (const std::string name : {"versions/5.json", "payloads/5/rank-0", "payloads/5/rank-1"}) {
      EXPECT_TRUE(trainer->PutIfAbsent(name, AsBytes(name)).ok());
    }
  }

  const TemporaryFolder folder_;
  FaultyFileSystem files_;
  const std::unique_ptr<DirStore> store_ = folder_.OpenDirStore(files_);
};

// case G1: hidden from open until the folder above is listed.
TEST_F(DirStoreNfsTest, AFreshNameIsReadAfterAListingAndWithoutAWait) {
  files_.Hide(folder_ / "versions/5.json");
  EXPECT_EQ(AsText(store_->Get("versions/5.json", 100).value()), "versions/5.json");
  files_.Hide(folder_ / "versions/5.json");
  EXPECT_EQ(store_->Size("versions/5.json").value(), 15u);
  files_.Hide(folder_ / "versions/5.json");
  EXPECT_EQ(AsText(store_->GetRange("versions/5.json", 9, 6).value()), "5.json");
  EXPECT_EQ(files_.waited.count(), 0);
}

// case G1: the folder is as fresh as the object in it.
TEST_F(DirStoreNfsTest, FreshFoldersAreListedFromTheRootDown) {
  files_.Hide(folder_ / "payloads");
  files_.Hide(folder_ / "payloads/5");
  files_.Hide(folder_ / "payloads/5/rank-1");
  EXPECT_TRUE(store_->Get("payloads/5/rank-1", 100).ok());
  EXPECT_EQ(files_.waited.count(), 0);
}

// case G1: the poll lists, and so sees a version at once, without waiting when there is none.
TEST_F(DirStoreNfsTest, ThePollSeesWhatIsFresh) {
  files_.Hide(folder_ / "versions/5.json");
  EXPECT_THAT(store_->List("versions").value(), ElementsAre("5.json"));
  files_.Hide(folder_ / "versions");
  EXPECT_THAT(store_->List("versions").value(), ElementsAre("5.json"));
  EXPECT_THAT(store_->List("none").value(), IsEmpty());
  EXPECT_EQ(files_.waited.count(), 0);
}

// case G1: a listing that lags behind too is waited for.
TEST_F(DirStoreNfsTest, ALaggingListingIsWaitedFor) {
  files_.Hide(folder_ / "payloads/5/rank-0", 3);
  EXPECT_TRUE(store_->Get("payloads/5/rank-0", 100).ok());
  EXPECT_EQ(files_.waited, 3 * kMissingWaitFirst);
}

// case G1: the manifest is there, one payload is not.
TEST_F(DirStoreNfsTest, AMissingPayloadIsNamedWithinABound) {
  files_.Hide(folder_ / "payloads/5/rank-1", kNeverListed);
  EXPECT_THAT(store_->List("versions").value(), ElementsAre("5.json"));
  EXPECT_TRUE(store_->Get("versions/5.json", 100).ok());
  EXPECT_TRUE(store_->Get("payloads/5/rank-0", 100).ok());
  EXPECT_THAT(store_->Get("payloads/5/rank-1", 100).status().ToString(),
              AllOf(HasSubstr("not_found"), HasSubstr("object 'payloads/5/rank-1' of store 'dir:"),
                    HasSubstr("6 listings")));
  EXPECT_EQ(files_.waited, kWaitMax);
}

// case G1
TEST_F(DirStoreNfsTest, AStaleHandleIsOpenedAnewOnce) {
  for (const std::string call : {"open", "read"}) {
    files_.FailBefore(call, ESTALE);
    EXPECT_TRUE(store_->Get("versions/5.json", 100).ok()) << call;
    files_.FailBefore(call, ESTALE);
    files_.FailBefore(call, ESTALE);
    EXPECT_EQ(store_->Get("versions/5.json", 100).status().code(), StatusCode::kUnavailable);
  }
  files_.FailBefore("list", ESTALE);
  EXPECT_THAT(store_->List("versions").value(), ElementsAre("5.json"));
  files_.FailBefore("unlink", ESTALE);
  EXPECT_TRUE(store_->Delete("versions/5.json").ok());
  EXPECT_THAT(store_->List("versions").value(), IsEmpty());
}

// case G2 over NFS: the server has no open files, so the reader's handle goes stale.
TEST_F(DirStoreNfsTest, AnObjectDeletedUnderAReaderIsGoneAndNotBroken) {
  files_.before_read = [&](int) {
    ASSERT_TRUE(folder_.OpenDirStore()->Delete("payloads/5/rank-0").ok());
    files_.FailBefore("read", ESTALE);
  };
  EXPECT_THAT(store_->Get("payloads/5/rank-0", 100).status().ToString(),
              AllOf(HasSubstr("not_found"), HasSubstr("payloads/5/rank-0")));
}

// A remembered absence must not make a deletion a silent no-op.
TEST_F(DirStoreNfsTest, AFreshObjectIsDeleted) {
  files_.Hide(folder_ / "payloads");
  files_.Hide(folder_ / "payloads/5/rank-0");
  EXPECT_TRUE(store_->Delete("payloads/5/rank-0").ok());
  EXPECT_FALSE(FileExists(folder_ / "payloads/5/rank-0"));
}

}  // namespace
}  // namespace segue
