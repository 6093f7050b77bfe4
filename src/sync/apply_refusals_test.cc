// SPDX-License-Identifier: Apache-2.0
//
// What apply and resolve refuse before they look at weights, and that a refusal leaves nothing
// behind; which of a checkpoint's other files an output gets; and what a change of layout alone
// means.
#include <filesystem>

#include "sync/testing.h"

namespace segue {
namespace {

using test::ApplyOf;
using test::CopyOf;
using test::PublishOf;
using test::SameFiles;

class ApplyRefusalsTest : public testing::Test {
 protected:
  void SetUp() override {
    trainer_.Step(1);
    const auto report = Publish(PublishOf(store_, trainer_.Directory(0), trainer_.Directory(1)));
    ASSERT_TRUE(report.ok()) << report.status().ToString();
  }
  std::string Engine(std::uint64_t version) {
    return CopyOf(trainer_.Directory(version),
                  directory_.File("engine" + std::to_string(engines_++)));
  }
  // The trainer's version 1 as one file, published as version 2.
  std::string PublishMoved() {
    std::string moved = directory_.File("moved");
    EXPECT_TRUE(MakeDirectories(moved).ok());
    test::WriteShardedCheckpoint(moved, {trainer_.tensors()}, {{"step", "2"}});
    const auto report = Publish(PublishOf(store_, trainer_.Directory(1), moved));
    EXPECT_TRUE(report.ok()) << report.status().ToString();
    warnings_ = report.value().warnings;
    return moved;
  }

  test::TemporaryDirectory directory_;
  test::MiniTrainer trainer_{directory_.path()};
  std::string store_ = directory_.File("store");
  std::vector<std::string> warnings_;
  int engines_ = 0;
};

TEST_F(ApplyRefusalsTest, RefusalsLeaveNothing) {
  const std::string empty = directory_.File("empty");
  ASSERT_TRUE(MakeDirectories(empty).ok());
  EXPECT_EQ(Apply(ApplyOf(store_, empty)).status().code(), StatusCode::kNotFound);
  EXPECT_EQ(Resolve(empty).status().code(), StatusCode::kNotFound);
  EXPECT_TRUE(ListDirectory(empty).value().empty());
  trainer_.Step(2);
  const std::string unknown = Engine(2);
  EXPECT_EQ(Apply(ApplyOf(store_, unknown)).status().code(), StatusCode::kVersionMismatch);
  EXPECT_FALSE(FileExists(JoinPath(unknown, ".segue")));
  const std::string known = Engine(0);
  ASSERT_TRUE(Apply(ApplyOf(store_, known)).ok());
  EXPECT_TRUE(FileExists(JoinPath(known, ".segue/state.json")));
}

TEST_F(ApplyRefusalsTest, FileInPlaceOfADirectory) {
  const std::string file = JoinPath(Engine(0), test::ShardName(0, 2));
  for (const Status& status : {Apply(ApplyOf(store_, file)).status(), Resolve(file).status()}) {
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << status.ToString();
    EXPECT_NE(status.message().find("expected a directory"), std::string::npos);
  }
  EXPECT_EQ(Resolve(directory_.File("absent")).status().code(), StatusCode::kNotFound);
}

// A file is the checkpoint by itself; a directory brings its configuration along.
TEST_F(ApplyRefusalsTest, OtherFilesOfAnOutput) {
  const std::string moved = PublishMoved();
  const std::string config = JoinPath(moved, "config.json");
  test::WriteFile(config, std::string_view("{}"));
  std::filesystem::create_symlink("config.json", JoinPath(moved, "link.json"));
  ASSERT_TRUE(MakeDirectories(JoinPath(moved, "onnx")).ok());
  test::WriteFile(JoinPath(moved, ".hidden"), std::string_view("x"));
  ApplyOptions options = ApplyOf(store_, JoinPath(moved, test::ShardName(0, 1)));
  options.output = directory_.File("from-file");
  auto report = Apply(options);
  ASSERT_TRUE(report.ok()) << report.status().ToString();
  EXPECT_FALSE(FileExists(JoinPath(options.output, "config.json")));
  options.checkpoint = moved;
  options.output = directory_.File("from-directory");
  report = Apply(options);
  ASSERT_TRUE(report.ok()) << report.status().ToString();
  for (const char* name : {"config.json", "link.json"}) {
    EXPECT_TRUE(std::filesystem::is_regular_file(JoinPath(options.output, name))) << name;
  }
  ASSERT_EQ(report.value().warnings.size(), 1u);
  EXPECT_NE(report.value().warnings[0].find("'.hidden', 'onnx'"), std::string::npos)
      << report.value().warnings[0];
}

// case C6: a version that only moves tensors follows the rule of one that changes them.
TEST_F(ApplyRefusalsTest, LayoutAlone) {
  const std::string moved = PublishMoved();
  ASSERT_EQ(warnings_.size(), 1u);
  EXPECT_NE(warnings_[0].find("laid out differently"), std::string::npos) << warnings_[0];
  for (std::uint64_t version = 0; version <= 1; ++version) {
    const std::string engine = Engine(version);
    const auto refused = Apply(ApplyOf(store_, engine));
    EXPECT_EQ(refused.status().code(), StatusCode::kInvalidArgument) << version;
    EXPECT_NE(refused.status().message().find("--output"), std::string::npos);
    EXPECT_TRUE(SameFiles(trainer_.Directory(version), engine));
    EXPECT_FALSE(FileExists(JoinPath(engine, ".segue")));
  }
  const std::string engine = CopyOf(moved, directory_.File("laid-out"));
  const auto report = Apply(ApplyOf(store_, engine));
  ASSERT_TRUE(report.ok()) << report.status().ToString();
  EXPECT_EQ(report.value().target_version, 2u);
}

// An engine's own layout is kept as long as the trainer's stays.
TEST_F(ApplyRefusalsTest, OwnLayout) {
  const std::string engine = directory_.File("own");
  ASSERT_TRUE(MakeDirectories(engine).ok());
  test::WriteShardedCheckpoint(engine, {trainer_.tensors()});
  const auto report = Apply(ApplyOf(store_, engine));
  ASSERT_TRUE(report.ok()) << report.status().ToString();
  EXPECT_TRUE(report.value().path.empty());
}

TEST_F(ApplyRefusalsTest, DamagedStateSaysWhatToDo) {
  const std::string engine = Engine(0);
  ASSERT_TRUE(MakeDirectories(JoinPath(engine, ".segue")).ok());
  test::WriteFile(JoinPath(engine, ".segue/state.json"), std::string_view("{"));
  const auto refused = Apply(ApplyOf(store_, engine));
  EXPECT_EQ(refused.status().code(), StatusCode::kCorruption);
  EXPECT_NE(refused.status().message().find("may be deleted"), std::string::npos);
}

TEST_F(ApplyRefusalsTest, UnknownLineageNamesThoseThatAreThere) {
  ApplyOptions options = ApplyOf(store_, Engine(0));
  options.lineage = "nobody";
  const auto refused = Apply(options);
  EXPECT_EQ(refused.status().code(), StatusCode::kNotFound);
  EXPECT_NE(refused.status().message().find("it has 'default'"), std::string::npos)
      << refused.status().message();
}

}  // namespace
}  // namespace segue
