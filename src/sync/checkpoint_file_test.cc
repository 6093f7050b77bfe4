// SPDX-License-Identifier: Apache-2.0
//
// Delta checkpoints: every profile, with layouts that move on the way, and chains that are broken.
#include "segue/checkpoint_file.h"

#include "delta/manifest.h"
#include "sync/testing.h"

namespace segue {
namespace {

using test::ApplyOf;
using test::PublishOf;
using test::SameFiles;

class CheckpointFileTest : public testing::Test {
 protected:
  void SetUp() override {
    for (std::uint64_t version = 1; version <= 4; ++version) {
      trainer_.Step(version, version == 3 ? 2 : 300);
      ASSERT_TRUE(
          Publish(PublishOf(store_, trainer_.Directory(version - 1), trainer_.Directory(version)))
              .ok());
    }
    options_.store = store_;
    options_.output = directory_.File("file");
    options_.threads = 2;
  }

  test::TemporaryDirectory directory_;
  test::MiniTrainer trainer_{directory_.path()};
  std::string store_ = directory_.File("store");
  CheckpointFileOptions options_;
};

TEST_F(CheckpointFileTest, EveryProfile) {
  for (const char* profile : {"lz4-zstd", "sparse-zstd", "snappy-zstd", "zstd"}) {
    options_.profile = profile;
    options_.output = directory_.File(profile);
    const auto report = WriteCheckpointFile(options_);
    ASSERT_TRUE(report.ok()) << report.status().ToString();
    EXPECT_EQ(report->steps, 4u);
    EXPECT_EQ(report->file_bytes, FileSize(options_.output).value());
    ApplyOptions restore = ApplyOf("file:" + options_.output, trainer_.Directory(0));
    restore.output = options_.output + "-full";
    const auto restored = Apply(restore);
    ASSERT_TRUE(restored.ok()) << restored.status().ToString();
    EXPECT_TRUE(SameFiles(trainer_.Directory(4), restore.output));
  }
}

TEST_F(CheckpointFileTest, OlderVersionAndTheOrigin) {
  options_.version = 1;
  ASSERT_TRUE(WriteCheckpointFile(options_).ok());
  options_.output = directory_.File("origin");
  options_.version = 0;
  EXPECT_EQ(WriteCheckpointFile(options_).status().code(), StatusCode::kInvalidArgument);
  options_.version = 9;
  EXPECT_EQ(WriteCheckpointFile(options_).status().code(), StatusCode::kNotFound);
  EXPECT_FALSE(FileExists(options_.output));
}

// Nothing is left of one that fails, and none is made of a chain with a hole.
TEST_F(CheckpointFileTest, BrokenChain) {
  ASSERT_TRUE(RemoveTree(JoinPath(store_, object_name::PayloadFolder("default", 2))).ok());
  const std::size_t before = ListDirectory(directory_.path()).value().size();
  EXPECT_EQ(WriteCheckpointFile(options_).status().code(), StatusCode::kNotFound);
  EXPECT_EQ(ListDirectory(directory_.path()).value().size(), before);
  options_.profile = "best";
  EXPECT_EQ(WriteCheckpointFile(options_).status().code(), StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace segue
