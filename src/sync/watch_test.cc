// SPDX-License-Identifier: Apache-2.0
//
// A watched directory: every complete checkpoint is published once and in order, half-written ones
// are not, and a new watcher goes on where the store says.
#include "segue/watch.h"

#include <gmock/gmock.h>

#include "segue/anchors.h"
#include "sync/lineage.h"
#include "sync/testing.h"

namespace segue {
namespace {

using testing::HasSubstr;

class WatchTest : public testing::Test {
 protected:
  WatchTest() {
    EXPECT_TRUE(MakeDirectories(Watched()).ok());
    Open();
  }
  std::string Watched() const { return directory_.File("watched"); }
  std::string Step(int step) const { return JoinPath(Watched(), "step-" + std::to_string(step)); }
  void Open() {
    WatchOptions options;
    options.publish = test::PublishOf(store_, "", "");
    options.directory = Watched();
    options.settle = std::chrono::milliseconds(0);
    options.publish.anchors = anchors_;
    options.done_file = done_file_;
    watcher_ = CheckpointWatcher::Open(options).value();
  }
  // The trainer's next version under this name.
  void Save(int step) {
    trainer_.Step(static_cast<std::uint64_t>(step));
    test::CopyOf(trainer_.Directory(trainer_.version()), Step(step));
  }
  // Until a look does nothing; what was published. With a settle time of 0 a checkpoint is complete
  // from its second look on.
  std::vector<std::string> LookAll() {
    std::vector<std::string> published;
    for (int idle = 0; idle < 2;) {
      const auto look = watcher_->Look();
      EXPECT_TRUE(look.ok()) << look.status().ToString();
      if (!look.ok()) break;
      warnings_.insert(warnings_.end(), look->warnings.begin(), look->warnings.end());
      if (look->published) published.push_back(look->checkpoint);
      idle = look->published || look->began ? 0 : idle + 1;
    }
    return published;
  }
  std::uint64_t Newest() const {
    const auto store = OpenStore(store_, false);
    if (!store.ok()) return 0;
    const auto versions = Lineage::ListVersions(*store.value(), "default").value();
    return versions.empty() ? 0 : versions.back();
  }

  using Names = std::vector<std::string>;
  test::TemporaryDirectory directory_;
  test::MiniTrainer trainer_{directory_.path()};
  std::string store_ = directory_.File("store");
  std::string done_file_;
  std::vector<AnchorWish> anchors_;
  std::unique_ptr<CheckpointWatcher> watcher_;
  std::vector<std::string> warnings_;
};

TEST_F(WatchTest, InOrderEachAgainstTheOneBefore) {
  EXPECT_EQ(LookAll(), Names());
  for (const int step : {500, 1000, 1500}) Save(step);
  EXPECT_EQ(LookAll(), (Names{"step-1000", "step-1500"}));
  Save(2000);
  EXPECT_EQ(LookAll(), Names{"step-2000"});
  EXPECT_EQ(Newest(), 3u);
  const std::string engine = test::CopyOf(Step(500), directory_.File("engine"));
  ASSERT_TRUE(Apply(test::ApplyOf(store_, engine)).ok());
  EXPECT_TRUE(test::SameFiles(Step(2000), engine));
  EXPECT_TRUE(warnings_.empty());
}

TEST_F(WatchTest, AnchorsWaitForTheirVersions) {
  anchors_ = {{"base", std::nullopt}, {"eval", 2}, {"far", 9}};
  Open();
  for (const int step : {500, 1000, 1500, 2000}) Save(step);
  EXPECT_EQ(LookAll(), (Names{"step-1000", "step-1500", "step-2000"}));
  EXPECT_TRUE(warnings_.empty());
  const auto anchors = [&] {
    AnchorOptions options;
    options.store = store_;
    const std::vector<AnchorReport> found = UpdateAnchors(options).value();
    std::vector<std::pair<std::string, std::uint64_t>> held;
    for (const AnchorReport& anchor : found) {
      EXPECT_EQ(anchor.target_version, Newest());
      held.emplace_back(anchor.name, anchor.version);
    }
    return held;
  };
  using Held = std::vector<std::pair<std::string, std::uint64_t>>;
  EXPECT_EQ(anchors(), (Held{{"base", 0}, {"eval", 2}}));
  // Once set, an anchor is its lineage's: who moves it is not undone.
  AnchorOptions move;
  move.store = store_;
  move.set = {{"eval", 3}};
  ASSERT_TRUE(UpdateAnchors(move).ok());
  Save(2500);
  EXPECT_EQ(LookAll(), Names{"step-2500"});
  EXPECT_EQ(anchors(), (Held{{"base", 0}, {"eval", 3}}));
}

TEST_F(WatchTest, HalfWrittenIsWaitedFor) {
  Save(1);
  Save(2);
  const std::string shard = "model-00002-of-00002.safetensors";
  Save(3);
  const ByteVector whole = ReadFile(JoinPath(Step(3), shard), 1u << 30).value();
  test::WriteFile(JoinPath(Step(3), shard), ByteSpan(whole).first(whole.size() - 1));
  EXPECT_EQ(LookAll(), Names{"step-2"});
  std::filesystem::remove(JoinPath(Step(3), shard));
  EXPECT_EQ(LookAll(), Names());
  ASSERT_EQ(warnings_.size(), 1u) << "told of once";
  EXPECT_THAT(warnings_[0], HasSubstr("'step-3' is waited for, and nothing in it changes: "));
  EXPECT_THAT(warnings_[0], HasSubstr("1 byte"));
  test::WriteFile(JoinPath(Step(3), shard), whole);
  EXPECT_EQ(LookAll(), Names{"step-3"});
}

TEST_F(WatchTest, ABaseThatNobodyFinishesIsToldOf) {
  Save(1);
  std::filesystem::remove(JoinPath(Step(1), "model-00002-of-00002.safetensors"));
  EXPECT_EQ(LookAll(), Names());
  ASSERT_EQ(warnings_.size(), 1u);
  EXPECT_THAT(warnings_[0], HasSubstr("'step-1' is waited for"));
}

TEST_F(WatchTest, WhatNobodyFinishesIsPassedOver) {
  Save(1);
  Save(2);
  Save(3);
  std::filesystem::remove(JoinPath(Step(2), "model-00002-of-00002.safetensors"));
  EXPECT_EQ(LookAll(), Names{"step-3"});
  ASSERT_EQ(warnings_.size(), 1u);
  EXPECT_THAT(warnings_[0], HasSubstr("'step-2' is passed over"));
}

TEST_F(WatchTest, DoneFile) {
  done_file_ = "complete";
  Open();
  for (const int step : {1, 2, 3}) Save(step);
  EXPECT_EQ(LookAll(), Names());
  for (const int step : {1, 2}) test::WriteFile(JoinPath(Step(step), "complete"), "");
  EXPECT_EQ(LookAll(), Names{"step-2"});
}

// A step before the last published one: the trainer went back, which is not ours to follow.
TEST_F(WatchTest, EarlierStepIsLeftAlone) {
  for (const int step : {10, 20}) Save(step);
  EXPECT_EQ(LookAll(), Names{"step-20"});
  Save(15);
  EXPECT_EQ(LookAll(), Names());
  EXPECT_EQ(LookAll(), Names());
  ASSERT_EQ(warnings_.size(), 1u);
  EXPECT_THAT(warnings_[0], HasSubstr("'step-15'"));
}

TEST_F(WatchTest, RestartGoesOnByDigest) {
  for (const int step : {1, 2, 3}) Save(step);
  EXPECT_EQ(LookAll(), (Names{"step-2", "step-3"}));
  for (const int step : {4, 5}) Save(step);
  Open();
  EXPECT_EQ(LookAll(), (Names{"step-4", "step-5"}));
  // The base is gone: nothing may be published against another.
  std::filesystem::remove_all(Step(5));
  Open();
  Result<WatchLook> look = watcher_->Look();
  EXPECT_EQ(look.status().code(), StatusCode::kVersionMismatch) << look.status().ToString();
}

// Steps without a change (case D7) are versions too, and counted over a restart.
TEST_F(WatchTest, RestartAmongEqualSteps) {
  Save(1);
  Save(2);
  test::CopyOf(Step(2), Step(3));
  EXPECT_EQ(LookAll(), (Names{"step-2", "step-3"}));
  test::CopyOf(Step(2), Step(4));
  Open();
  EXPECT_EQ(LookAll(), Names{"step-4"});
  Open();
  EXPECT_EQ(LookAll(), Names());
  EXPECT_EQ(Newest(), 3u);
}

TEST_F(WatchTest, FailureIsTriedAgain) {
  for (const int step : {1, 2}) Save(step);
  ASSERT_TRUE(watcher_->Look().ok());
  const std::string moved = directory_.File("moved");
  ASSERT_EQ(LookAll(), Names{"step-2"});
  Save(3);
  std::filesystem::rename(Step(2), moved);  // The base.
  (void)watcher_->Look();
  EXPECT_EQ(watcher_->Look().status().code(), StatusCode::kNotFound);
  std::filesystem::rename(moved, Step(2));
  EXPECT_EQ(LookAll(), Names{"step-3"});
}

TEST_F(WatchTest, RefusesNoDirectory) {
  WatchOptions options;
  options.publish = test::PublishOf(store_, "", "");
  options.directory = directory_.File("nowhere");
  EXPECT_EQ(CheckpointWatcher::Open(options).status().code(), StatusCode::kNotFound);
}

// What changes between reading and publishing is not published.
TEST(PublishConfirmTest, FailureLeavesNothing) {
  const test::TemporaryDirectory directory;
  test::MiniTrainer trainer(directory.path());
  trainer.Step(1);
  PublishOptions options =
      test::PublishOf(directory.File("store"), trainer.Directory(0), trainer.Directory(1));
  options.confirm = [] { return Unavailable("changed"); };
  EXPECT_EQ(Publish(options).status().code(), StatusCode::kUnavailable);
  const auto store = OpenStore(directory.File("store"), false).value();
  EXPECT_TRUE(Lineage::ListVersions(*store, "default").value().empty());
  EXPECT_TRUE(store->ListFolders("default/payloads").value().empty());
}

}  // namespace
}  // namespace segue
