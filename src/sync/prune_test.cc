// SPDX-License-Identifier: Apache-2.0
//
// case G2: pruning keeps what kept versions need, removes the rest, and two pruners do not disturb
// each other.
#include "sync/prune.h"

#include <chrono>
#include <filesystem>
#include <thread>

#include "store/store.h"
#include "sync/lineage.h"
#include "sync/testing.h"

namespace segue {
namespace {

class PruneTest : public testing::Test {
 protected:
  void SetUp() override {
    for (std::uint64_t version = 1; version <= 6; ++version) {
      trainer_.Step(version);
      ASSERT_TRUE(Publish(test::PublishOf(path_, trainer_.Directory(version - 1),
                                          trainer_.Directory(version)))
                      .ok());
    }
    store_ = OpenStore(path_, false).value();
    record_ = Lineage::Open(*store_, "default").value().record();
  }

  test::TemporaryDirectory directory_;
  test::MiniTrainer trainer_{directory_.path()};
  std::string path_ = directory_.File("store");
  std::unique_ptr<Store> store_;
  LineageRecord record_;
};

TEST_F(PruneTest, KeepsTheNewest) {
  const PruneReport report = PruneVersions(*store_, record_, 2);
  EXPECT_TRUE(report.warnings.empty());
  EXPECT_EQ(report.pruned, (std::vector<std::uint64_t>{1, 2, 3, 4}));
  for (std::uint64_t version = 1; version <= 6; ++version) {
    const auto payloads = store_->List(object_name::PayloadFolder("default", version)).value();
    EXPECT_EQ(payloads.empty(), version <= 4) << version;
  }
  EXPECT_TRUE(PruneVersions(*store_, record_, 2).pruned.empty());
  EXPECT_TRUE(PruneVersions(*store_, record_, 0).pruned.empty());
}

// A put that was under way before the number was pruned (found by the simulator): what it brings is
// no version, and the next pruner removes it.
TEST_F(PruneTest, NumbersAreNotUsedAgain) {
  const std::string name = object_name::Version("default", 2);
  const ByteVector manifest = store_->Get(name, limits::kManifestSizeMax).value();
  ASSERT_EQ(PruneVersions(*store_, record_, 2).pruned.size(), 4u);
  ASSERT_EQ(store_->PutIfAbsent(name, manifest).value(), PutOutcome::kCreated);
  const Lineage lineage = Lineage::Open(*store_, "default").value();
  EXPECT_FALSE(lineage.manifests().contains(2));
  EXPECT_EQ(Lineage::ListVersions(*store_, "default").value(), (std::vector<std::uint64_t>{5, 6}));
  EXPECT_EQ(ListNumbers(*store_, "default").value().ghosts, std::vector<std::uint64_t>{2});
  EXPECT_TRUE(PruneVersions(*store_, record_, 2).pruned.empty());
  EXPECT_EQ(store_->Size(name).status().code(), StatusCode::kNotFound);
}

TEST_F(PruneTest, OldMarksGo) {
  for (std::uint64_t version = 1; version <= 4; ++version) {
    ASSERT_TRUE(store_->Delete(object_name::Version("default", version)).ok());
  }
  const auto number = [](std::uint64_t i) { return limits::kVersionMax - i; };
  for (std::uint64_t i = 0; i < limits::kGoneMarksMax + 3; ++i) {
    ASSERT_TRUE(store_->PutIfAbsent(object_name::Gone("default", number(i)), {}).ok());
  }
  EXPECT_TRUE(PruneVersions(*store_, record_, 2).warnings.empty());
  const std::vector<std::uint64_t> gone = ListNumbers(*store_, "default").value().gone;
  EXPECT_EQ(gone.size(), limits::kGoneMarksMax);
  EXPECT_EQ(gone.front(), number(limits::kGoneMarksMax - 1));
}

// A kept manifest that names an object in an older version's folder keeps that object.
TEST_F(PruneTest, NeededObjectsStay) {
  Manifest manifest = ReadManifest(*store_, record_, 6).value();
  const Manifest first = ReadManifest(*store_, record_, 1).value();
  manifest.payloads = first.payloads;
  ASSERT_TRUE(store_->Delete(object_name::Version("default", 6)).ok());
  ASSERT_TRUE(
      store_->PutIfAbsent(object_name::Version("default", 6), AsBytes(manifest.ToJson())).ok());
  (void)PruneVersions(*store_, record_, 1);
  EXPECT_TRUE(store_->Size(first.payloads[0].object).ok());
}

TEST_F(PruneTest, TwoPruners) {
  std::vector<std::jthread> pruners;
  pruners.reserve(2);
  for (int i = 0; i < 2; ++i) {
    pruners.emplace_back(
        [this] { EXPECT_TRUE(PruneVersions(*store_, record_, 1).warnings.empty()); });
  }
  pruners.clear();
  EXPECT_EQ(Lineage::ListVersions(*store_, "default").value(), std::vector<std::uint64_t>{6});
}

// A pruner that was killed between manifest and payload, and owners whose publish never came: later
// prunes find what they left, although no manifest names it any more.
TEST_F(PruneTest, LeftoversOfVersionsThatAreGoneAreRemoved) {
  ASSERT_TRUE(store_->Delete(object_name::Version("default", 2)).ok());
  const auto stale = object_name::Owner("default", 2, "run1", 1, 2);
  const auto live = object_name::Owner("default", 7, "run1", 1, 2);
  const auto coming = object_name::PayloadFolder("default", 7) + "/coming";
  for (const std::string& name : {stale, live, coming}) {
    ASSERT_TRUE(store_->PutIfAbsent(name, AsBytes("x")).ok());
  }
  const auto left = [&](std::uint64_t version) {
    return store_->List(object_name::PayloadFolder("default", version)).value().size();
  };
  // Nothing to prune by count; version 1 is kept, and 2 is not older than it.
  EXPECT_TRUE(PruneVersions(*store_, record_, 5).pruned.empty());
  EXPECT_EQ(left(2), 1u);
  // Version 3 starts from 2, so nobody publishes 2 any more.
  const PruneReport report = PruneVersions(*store_, record_, 4);
  EXPECT_TRUE(report.warnings.empty());
  EXPECT_EQ(report.pruned, std::vector<std::uint64_t>{1});
  EXPECT_EQ(left(1) + left(2), 0u);
  EXPECT_EQ(left(3), 1u);
  EXPECT_EQ(store_->ListFolders(object_name::PayloadFolders("default")).value().size(), 5u);
  EXPECT_EQ(store_->Size(stale).status().code(), StatusCode::kNotFound);
  EXPECT_TRUE(store_->Size(live).ok());
  EXPECT_TRUE(store_->Size(coming).ok());
}

// With or without versions to prune.
TEST_F(PruneTest, EveryPublishRemovesStaleTemporaries) {
  const std::string folder = JoinPath(path_, ".tmp");
  ASSERT_TRUE(MakeDirectories(folder).ok());
  for (const char* name : {"stale", "fresh"}) {
    test::WriteFile(JoinPath(folder, name), std::string_view("x"));
  }
  const auto old = std::filesystem::file_time_type::clock::now() - std::chrono::hours(25);
  std::filesystem::last_write_time(JoinPath(folder, "stale"), old);
  trainer_.Step(7);
  const auto report = Publish(test::PublishOf(path_, trainer_.Directory(6), trainer_.Directory(7)));
  ASSERT_TRUE(report.ok());
  EXPECT_TRUE(report.value().warnings.empty());
  EXPECT_FALSE(FileExists(JoinPath(folder, "stale")));
  EXPECT_TRUE(FileExists(JoinPath(folder, "fresh")));
}

}  // namespace
}  // namespace segue
