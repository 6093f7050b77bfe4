// SPDX-License-Identifier: Apache-2.0
//
// case G2: pruning keeps what kept versions need, removes the rest, and two pruners do not disturb
// each other.
#include "sync/prune.h"

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
  for (int i = 0; i < 2; ++i) {
    pruners.emplace_back(
        [this] { EXPECT_TRUE(PruneVersions(*store_, record_, 1).warnings.empty()); });
  }
  pruners.clear();
  EXPECT_EQ(store_->List(object_name::VersionFolder("default")).value().size(), 1u);
}

}  // namespace
}  // namespace segue
