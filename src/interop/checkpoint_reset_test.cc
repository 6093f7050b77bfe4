// SPDX-License-Identifier: Apache-2.0
//
// Checkpoint reset: built files are not the checkpoint's before the commit; a commit that is cut
// off at any of its steps is finished by the next one who looks.
#include "interop/checkpoint_reset.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "interop/testing.h"
#include "interop/weight_sync.h"

namespace segue {
namespace {

using test::DiskTrainer;

class CheckpointResetTest : public ::testing::Test {
 protected:
  CheckpointResetTest() : trainer_(folder_.File("run")), local_(folder_.File("local")) {
    trainer_.Step();
    trainer_.Step();
    std::filesystem::copy(trainer_.Directory(0), local_);
    test::WriteFile(JoinPath(local_, "stray.safetensors"), "old weights");
    test::WriteFile(JoinPath(local_, "notes.txt"), "mine");
    SEGUE_CHECK(WriteDiskState(local_, 0).ok());
  }

  Status Build(CheckpointReset& reset, std::uint64_t seed_version) {
    const Checkpoint seed = Checkpoint::Open(trainer_.Directory(seed_version)).value();
    const Plan plan = trainer_.MakePlan();
    SEGUE_ASSIGN_OR_RETURN(
        const DeltaChain chain,
        DeltaChain::Open(trainer_.source(), seed_version + 1, trainer_.version(), plan));
    std::vector<std::string> warnings;
    return reset.Build(seed, chain, 2, {}, warnings);
  }

  void ExpectDone() {
    EXPECT_TRUE(test::SameWeights(local_, trainer_.Directory(2)));
    EXPECT_TRUE(FileExists(JoinPath(local_, "notes.txt")));
    EXPECT_TRUE(FileExists(JoinPath(local_, "config.json")));
    EXPECT_EQ(ReadDiskState(local_).value(), 2u);
    EXPECT_EQ(ListDirectory(WeightSyncFolder(local_)).value(),
              std::vector<std::string>{"state.json"});
    EXPECT_TRUE(Checkpoint::Open(local_).ok());
  }

  test::TemporaryDirectory folder_;
  DiskTrainer trainer_;
  std::string local_;
};

TEST_F(CheckpointResetTest, BuildsAsideThenReplaces) {
  for (const std::uint64_t seed : {0, 1, 2}) {
    CheckpointReset reset(local_);
    ASSERT_TRUE(Build(reset, seed).ok());
    ASSERT_TRUE(reset.Commit(2).ok());
    ExpectDone();
  }
}

TEST_F(CheckpointResetTest, DiscardLeavesTheCheckpoint) {
  CheckpointReset reset(local_);
  ASSERT_TRUE(Build(reset, 1).ok());
  EXPECT_EQ(ReadDiskState(local_).value(), 0u);
  ASSERT_TRUE(CheckpointReset(local_).Resume().ok());  // Nothing was begun.
  EXPECT_EQ(ReadDiskState(local_).value(), 0u);
  ASSERT_TRUE(RemoveFile(JoinPath(local_, "stray.safetensors")).ok());
  EXPECT_TRUE(test::SameWeights(local_, trainer_.Directory(0)));
  EXPECT_EQ(ListDirectory(WeightSyncFolder(local_)).value(),
            std::vector<std::string>{"state.json"});
}

// A directory in the place of a file makes the commit fail at that file; without it the next one
// goes on.
TEST_F(CheckpointResetTest, CutOffAnywhere) {
  for (const char* const name :
       {"config.json", "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors",
        "model.safetensors.index.json"}) {
    CheckpointReset reset(local_);
    ASSERT_TRUE(Build(reset, 1).ok());
    const std::string path = JoinPath(local_, name);
    ASSERT_TRUE(RemoveFile(path).ok());
    std::filesystem::create_directory(path);
    EXPECT_EQ(reset.Commit(2).code(), StatusCode::kTainted) << name;
    EXPECT_EQ(ReadDiskState(local_).value(), std::nullopt);
    EXPECT_EQ(CheckpointReset(local_).Resume().code(), StatusCode::kTainted);
    std::filesystem::remove(path);
    EXPECT_FALSE(Checkpoint::Open(local_).ok());
    ASSERT_TRUE(CheckpointReset(local_).Resume().ok());
    ExpectDone();
  }
}

TEST_F(CheckpointResetTest, DirectoryInAFilesPlaceIsRefusedBeforehand) {
  const std::string path = JoinPath(local_, "config.json");
  ASSERT_TRUE(RemoveFile(path).ok());
  std::filesystem::create_directory(path);
  CheckpointReset reset(local_);
  EXPECT_EQ(Build(reset, 1).code(), StatusCode::kInvalidArgument);
}

// Somebody else has started anew from a full checkpoint: what is left of the reset goes.
TEST_F(CheckpointResetTest, StateOfOthersEndsIt) {
  CheckpointReset reset(local_);
  ASSERT_TRUE(Build(reset, 1).ok());
  const std::string path = JoinPath(local_, "model-00002-of-00002.safetensors");
  ASSERT_TRUE(RemoveFile(path).ok());
  std::filesystem::create_directory(path);
  ASSERT_EQ(reset.Commit(2).code(), StatusCode::kTainted);  // One shard is the new one.
  ASSERT_TRUE(RemoveTree(path).ok());
  ASSERT_TRUE(RemoveFile(JoinPath(local_, "stray.safetensors")).ok());
  std::filesystem::copy(
      trainer_.Directory(0), local_,
      std::filesystem::copy_options::recursive | std::filesystem::copy_options::overwrite_existing);
  ASSERT_TRUE(WriteDiskState(local_, 0).ok());
  EXPECT_TRUE(Checkpoint::Open(local_).ok());
  ASSERT_TRUE(CheckpointReset(local_).Resume().ok());
  EXPECT_TRUE(test::SameWeights(local_, trainer_.Directory(0)));
  EXPECT_EQ(ReadDiskState(local_).value(), 0u);
  EXPECT_EQ(ListDirectory(WeightSyncFolder(local_)).value(),
            std::vector<std::string>{"state.json"});
}

TEST_F(CheckpointResetTest, NobodyReadsItInBetween) {
  test::WriteFile(JoinPath(local_, kResetRecordName), "x");
  EXPECT_TRUE(Checkpoint::Open(local_).ok());
  ASSERT_TRUE(RemoveDiskState(local_).ok());
  EXPECT_EQ(Checkpoint::Open(local_).status().code(), StatusCode::kTainted);
  EXPECT_EQ(CheckpointReset(local_).Resume().code(), StatusCode::kTainted);
}

TEST_F(CheckpointResetTest, RecordsThatLie) {
  ASSERT_TRUE(RemoveDiskState(local_).ok());
  for (const char* const files : {"", "/", "../x", "a//b", ".weight_sync"}) {
    test::WriteFile(JoinPath(local_, kResetRecordName),
                    std::string(R"({"format": "segue-weight-reset", "format_version": 1,)") +
                        R"("version": 2, "files": ")" + files + "\"}");
    EXPECT_EQ(CheckpointReset(local_).Resume().code(), StatusCode::kTainted) << files;
  }
}

TEST_F(CheckpointResetTest, LyingDeltaBuildsNothing) {
  CheckpointReset reset(local_);
  std::filesystem::rename(trainer_.DeltaPath(1), folder_.File("away"));
  EXPECT_EQ(Build(reset, 0).code(), StatusCode::kNotFound);
  EXPECT_EQ(ReadDiskState(local_).value(), 0u);
}

}  // namespace
}  // namespace segue
