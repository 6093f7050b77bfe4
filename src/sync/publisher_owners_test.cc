// SPDX-License-Identifier: Apache-2.0
//
// Publishers of several owners: they make one version together or none (case G7).
#include <gmock/gmock.h>

#include <set>
#include <thread>

#include "segue/publisher.h"
#include "sync/lineage.h"
#include "sync/publisher_testing.h"

namespace segue {
namespace {

using test::FileSizeLimit;
using test::PublisherTest;
using test::SourcesOf;
using testing::HasSubstr;
using testing::IsEmpty;

class OwnersOfPublisherTest : public PublisherTest {
 protected:
  static constexpr std::uint32_t kOwners = 3;
  PublisherOptions OwnerOptions(std::uint32_t owner, double timeout_seconds) const {
    PublisherOptions options = Options();
    options.owner = owner;
    options.owner_count = kOwners;
    options.session = "job";
    options.owner_timeout_seconds = timeout_seconds;
    return options;
  }
  void OpenOwners(double timeout_seconds) {
    for (std::uint32_t owner = 0; owner < kOwners; ++owner) {
      auto publisher = Publisher::Open(OwnerOptions(owner, timeout_seconds),
                                       SourcesOf(trainer_, owner, kOwners));
      ASSERT_TRUE(publisher.ok()) << publisher.status().ToString();
      owners_.push_back(std::move(publisher).value());
    }
  }
  // What each owner's call returns; those of `dead` are not made.
  std::vector<Status> PublishAll(std::uint64_t version, const std::set<std::uint32_t>& dead = {}) {
    std::vector<Status> outcome(kOwners);
    std::vector<std::jthread> threads;
    for (std::uint32_t owner = 0; owner < kOwners; ++owner) {
      if (dead.contains(owner)) continue;
      threads.emplace_back([&, owner] {
        outcome[owner] =
            owners_[owner]->Publish(SourcesOf(trainer_, owner, kOwners), version).status();
      });
    }
    threads.clear();
    return outcome;
  }

  std::vector<std::unique_ptr<Publisher>> owners_;
};

TEST_F(OwnersOfPublisherTest, OneVersionOfAll) {
  OpenOwners(30);
  for (std::uint64_t version = 1; version <= 3; ++version) {
    trainer_.Step(version);
    for (const Status& status : PublishAll(version)) {
      ASSERT_TRUE(status.ok()) << status.ToString();
    }
    for (const auto& owner : owners_) EXPECT_EQ(owner->version(), version);
  }
  ExpectReaches(0, 3);
  ExpectReaches(2, 3);
  const auto store = OpenStore(store_, false).value();
  EXPECT_EQ(Lineage::Open(*store, "default")->manifests().at(3).payloads.size(), kOwners);
}

// Owners that agree before they commit: one whose upload fails costs nobody a wait, nothing is
// visible, and the next version has the changes.
TEST_F(OwnersOfPublisherTest, UploadsBeforeTheCommit) {
  OpenOwners(30);
  const auto upload_all = [&](std::uint64_t version) {
    for (std::uint32_t owner = 0; owner < kOwners; ++owner) {
      ASSERT_TRUE(owners_[owner]->Begin(version).ok());
      const auto sources = SourcesOf(trainer_, owner, kOwners);
      EXPECT_THAT(owners_[owner]->Upload().message(), HasSubstr("not put"));
      ASSERT_TRUE(owners_[owner]->Put(std::span<const SourceTensor>(sources)).ok());
    }
  };
  trainer_.Step(1);
  upload_all(1);
  ASSERT_TRUE(owners_[0]->Upload().ok());
  {
    const FileSizeLimit limit(10);
    EXPECT_THAT(owners_[1]->Upload().message(), HasSubstr("the version was discarded"));
  }
  EXPECT_THAT(owners_[1]->Commit().status().message(), HasSubstr("no version is begun"));
  for (const auto& owner : owners_) owner->Discard();

  trainer_.Step(2);
  upload_all(2);
  for (const auto& owner : owners_) ASSERT_TRUE(owner->Upload().ok());
  ASSERT_TRUE(owners_[0]->Upload().ok());  // Once more is nothing.
  const auto store = OpenStore(store_, false).value();
  EXPECT_TRUE(Lineage::ListVersions(*store, "default")->empty());
  std::vector<Status> outcome(kOwners);
  {
    std::vector<std::jthread> threads;
    for (std::uint32_t owner = 0; owner < kOwners; ++owner) {
      threads.emplace_back([&, owner] { outcome[owner] = owners_[owner]->Commit().status(); });
    }
  }
  for (const Status& status : outcome) EXPECT_TRUE(status.ok()) << status.ToString();
  ExpectReaches(0, 2);
}

// case G7: a dead rank gives no version and an error on all; the next attempt has everybody's
// changes.
TEST_F(OwnersOfPublisherTest, DeadRank) {
  OpenOwners(0.2);
  trainer_.Step(1);
  const auto outcome = PublishAll(1, {2});
  EXPECT_EQ(outcome[0].code(), StatusCode::kUnavailable);
  EXPECT_THAT(outcome[0].message(), HasSubstr("owner 2 of 3"));
  EXPECT_EQ(outcome[1].code(), StatusCode::kUnavailable);
  EXPECT_THAT(outcome[1].message(), HasSubstr("not made version 1 visible"));
  const auto store = OpenStore(store_, false).value();
  EXPECT_TRUE(Lineage::ListVersions(*store, "default")->empty());
  for (const auto& owner : owners_) EXPECT_EQ(owner->version(), std::nullopt);
  // The job starts anew from the last durable version, under a session of its own.
  owners_.clear();
  for (std::uint32_t owner = 0; owner < kOwners; ++owner) {
    PublisherOptions options = OwnerOptions(owner, 30);
    options.session = "job-again";
    std::vector<std::string> owned;
    for (const SourceTensor& tensor : SourcesOf(trainer_, owner, kOwners)) {
      if (tensor.data != nullptr) owned.push_back(tensor.name);
    }
    auto publisher = Publisher::Open(options, trainer_.Directory(0), owned);
    ASSERT_TRUE(publisher.ok()) << publisher.status().ToString();
    owners_.push_back(std::move(publisher).value());
  }
  for (const Status& status : PublishAll(1)) EXPECT_TRUE(status.ok()) << status.ToString();
  ExpectReaches(0, 1);
}

// A new job that begins to count anew: an owner whose tensors do not change has the payload of
// every version. It must not take an old one for its own that owner 0 refuses.
TEST_F(OwnersOfPublisherTest, OldNumberAfterARestart) {
  OpenOwners(30);
  for (std::uint64_t version = 1; version <= 3; ++version) {
    trainer_.tensors()[0].bytes[version] ^= std::byte{1};
    for (const Status& status : PublishAll(version)) {
      ASSERT_TRUE(status.ok()) << status.ToString();
    }
  }
  for (const auto& status : PublishAll(2)) {
    EXPECT_THAT(status.message(), HasSubstr("comes before the one that the publisher is at, 3"));
  }
  owners_.clear();
  for (std::uint32_t owner = 0; owner < kOwners; ++owner) {
    PublisherOptions options = OwnerOptions(owner, 0.5);
    options.session = "job-again";
    owners_.push_back(
        std::move(Publisher::Open(options, SourcesOf(trainer_, owner, kOwners))).value());
  }
  for (const std::uint64_t version : {2u, 1u, 2u}) {
    for (const Status& status : PublishAll(version)) EXPECT_FALSE(status.ok());
    for (const auto& owner : owners_) EXPECT_EQ(owner->version(), std::nullopt);
  }
  // The last step again is no other one: all know that it is there.
  for (const Status& status : PublishAll(3)) EXPECT_TRUE(status.ok()) << status.ToString();
  for (const auto& owner : owners_) EXPECT_EQ(owner->version(), 3u);
  trainer_.tensors()[1].bytes[5] ^= std::byte{1};
  for (const Status& status : PublishAll(4)) EXPECT_TRUE(status.ok()) << status.ToString();
  for (const auto& owner : owners_) EXPECT_EQ(owner->version(), 4u);
}

// What owners handed in for a step that came to nothing is in no later version, whoever failed.
TEST_F(OwnersOfPublisherTest, LeftoversNeverMatch) {
  OpenOwners(1);
  std::uint64_t version = 0;
  for (const std::uint32_t dead : {0u, 1u, 0u}) {
    trainer_.Step(10 * ++version);
    for (const Status& status : PublishAll(version, {dead})) {
      EXPECT_TRUE(status.ok() || status.code() == StatusCode::kUnavailable) << status.ToString();
    }
    trainer_.Step(10 * version + 1);
    for (const Status& status : PublishAll(version)) EXPECT_TRUE(status.ok()) << status.ToString();
    ExpectReaches(0, version);
  }
  const auto store = OpenStore(store_, false).value();
  EXPECT_THAT(store->List(object_name::OwnerFolder("default", 1, "job")).value(), IsEmpty());
}

// Versions that one owner begins and discards put it out of step with nobody.
TEST_F(OwnersOfPublisherTest, DiscardedVersionsCountForNothing) {
  OpenOwners(5);
  for (std::uint64_t version = 1; version <= 4; ++version) {
    trainer_.Step(version);
    for (std::uint64_t i = 0; i < version; ++i) {
      ASSERT_TRUE(owners_[version % kOwners]->Begin(version).ok());
      owners_[version % kOwners]->Discard();
    }
    for (const Status& status : PublishAll(version)) {
      ASSERT_TRUE(status.ok()) << status.ToString();
    }
  }
  ExpectReaches(0, 4);
}

// An owner that gave up waiting learns of the version when it begins the next.
TEST_F(OwnersOfPublisherTest, VersionThatAppearedLater) {
  trainer_.Step(1);
  for (std::uint32_t owner = 0; owner < kOwners; ++owner) {
    const auto sources = SourcesOf(trainer_, owner, kOwners);
    owners_.push_back(
        std::move(Publisher::Open(OwnerOptions(owner, owner == 1 ? 0.2 : 30), sources)).value());
  }
  trainer_.Step(2);
  std::jthread collects([&] {
    const auto report = owners_[0]->Publish(SourcesOf(trainer_, 0, kOwners), 1);
    EXPECT_TRUE(report.ok()) << report.status().ToString();
  });
  const auto given_up = owners_[1]->Publish(SourcesOf(trainer_, 1, kOwners), 1);
  EXPECT_EQ(given_up.status().code(), StatusCode::kUnavailable) << given_up.status().ToString();
  EXPECT_EQ(owners_[1]->version(), std::nullopt);
  EXPECT_TRUE(owners_[2]->Publish(SourcesOf(trainer_, 2, kOwners), 1).ok());
  collects.join();
  trainer_.Step(3);
  for (const Status& status : PublishAll(2)) EXPECT_TRUE(status.ok()) << status.ToString();
  for (const auto& owner : owners_) EXPECT_EQ(owner->version(), 2u);
  ExpectReaches(1, 2);
}

TEST_F(OwnersOfPublisherTest, TensorsOfTwoOwnersOrNone) {
  for (const bool twice : {true, false}) {
    owners_.clear();
    store_ = directory_.File(twice ? "twice" : "none");
    for (std::uint32_t owner = 0; owner < 2; ++owner) {
      PublisherOptions options = Options();
      options.owner = owner;
      options.owner_count = 2;
      options.session = "job";
      options.owner_timeout_seconds = 0.3;
      auto sources = SourcesOf(trainer_, owner, 2);
      const auto all = SourcesOf(trainer_);
      if (owner == 1) sources[0].data = twice ? all[0].data : nullptr;
      if (owner == 1 && !twice) sources[1].data = nullptr;
      owners_.push_back(std::move(Publisher::Open(options, sources)).value());
    }
    Status outcome[2];
    {
      std::jthread second([&] {
        auto sources = SourcesOf(trainer_);
        if (twice) {
          for (const int i : {2, 4}) sources[i].data = nullptr;
        } else {
          for (const int i : {0, 1, 2, 4}) sources[i].data = nullptr;
        }
        outcome[1] = owners_[1]->Publish(sources, 1).status();
      });
      outcome[0] = owners_[0]->Publish(SourcesOf(trainer_, 0, 2), 1).status();
    }
    EXPECT_EQ(outcome[0].code(), StatusCode::kInvalidArgument) << outcome[0].ToString();
    EXPECT_THAT(outcome[0].message(), HasSubstr(twice ? "'a.weight'" : "'b.weight'"));
    EXPECT_EQ(outcome[1].code(), StatusCode::kUnavailable) << outcome[1].ToString();
  }
}

}  // namespace
}  // namespace segue
