// SPDX-License-Identifier: Apache-2.0
//
// Anchors: one delta from a named version to the newest, whatever was pruned in between; what it
// costs, how it is moved, and that a failure never costs a version.
#include "sync/anchors.h"

#include <gmock/gmock.h>

#include <charconv>
#include <numeric>

#include "segue/anchors.h"
#include "segue/inspect.h"
#include "sync/testing.h"

namespace segue {
namespace {

using test::ApplyOf;
using test::CopyOf;
using test::SameFiles;
using testing::HasSubstr;

class AnchorsTest : public testing::Test {
 protected:
  // Publishes the trainer's next version.
  PublishReport Advance(std::uint64_t every = 500) {
    trainer_.Step(trainer_.version() + 1, every);
    options_.store = store_;
    options_.base = trainer_.Directory(trainer_.version() - 1);
    options_.target = trainer_.Directory(trainer_.version());
    options_.chunk_size = 65536;
    options_.threads = 2;
    const auto report = Publish(options_);
    EXPECT_TRUE(report.ok()) << report.status().ToString();
    if (!report.ok()) return {};
    EXPECT_THAT(report->warnings, testing::IsEmpty());
    singles_.push_back(report->payload_bytes);
    return report.value();
  }
  Lineage OpenLineage() {
    const auto store = OpenStore(store_, false).value();
    return Lineage::Open(*store, "default").value();
  }
  // A checkpoint at `from` comes to the newest version in place.
  Result<ApplyReport> Reach(std::uint64_t from) {
    const std::string engine =
        CopyOf(trainer_.Directory(from), directory_.File("engine" + std::to_string(engines_++)));
    Result<ApplyReport> report = Apply(ApplyOf(store_, engine));
    if (report.ok()) {
      EXPECT_TRUE(SameFiles(trainer_.Directory(trainer_.version()), engine));
    } else {
      EXPECT_TRUE(SameFiles(trainer_.Directory(from), engine));
    }
    return report;
  }
  // Chunks of a payload that are sent dense.
  static int PlanesIn(const std::string& payload) {
    const std::string text = Inspect(payload).value();
    const std::size_t place = text.find("\"planes\":");
    int count = 0;
    if (place != std::string::npos) {
      (void)std::from_chars(text.data() + place + 9, text.data() + text.size(), count);
    }
    return count;
  }
  std::vector<std::string> ObjectsBelow(const std::string& folder) {
    std::vector<std::string> objects;
    const std::string root = JoinPath(store_, folder);
    if (!FileExists(root)) return objects;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(root)) {
      if (entry.is_regular_file()) objects.push_back(entry.path().string());
    }
    return objects;
  }

  test::TemporaryDirectory directory_;
  test::MiniTrainer trainer_{directory_.path()};
  std::string store_ = directory_.File("store");
  PublishOptions options_;
  std::vector<std::uint64_t> singles_;
  int engines_ = 0;
};

// 32 versions of which two stay: a fresh engine reaches the newest with one fetch, for less than
// the single deltas together.
TEST_F(AnchorsTest, BaseReachesTheNewestInOneFetch) {
  options_.retain = 2;
  options_.anchors = {{"base", std::nullopt}};
  PublishReport last;
  for (int i = 0; i < 32; ++i) last = Advance();
  EXPECT_EQ(OpenLineage().manifests().size(), 2u);
  const auto report = Reach(0);
  ASSERT_TRUE(report.ok()) << report.status().ToString();
  EXPECT_EQ(report->path, std::vector<std::uint64_t>{32});
  ASSERT_EQ(last.anchors.size(), 1u);
  EXPECT_EQ(report->payload_bytes, last.anchors[0].payload_bytes);
  EXPECT_LT(report->payload_bytes,
            std::accumulate(singles_.begin(), singles_.end(), std::uint64_t{0}));
  // Records and payloads to 32 and, for who may be fetching it, to 31; older ones are gone.
  EXPECT_EQ(ObjectsBelow("default/anchors").size(), 4u);
  // Whoever is between two anchors has no way: said before anything is fetched (case D3).
  const auto between = Reach(5);
  EXPECT_EQ(between.status().code(), StatusCode::kVersionMismatch) << between.status().ToString();
  EXPECT_TRUE(Reach(31).ok());
}

TEST_F(AnchorsTest, SeveralAnchorsAndTheCheapestWay) {
  options_.anchors = {{"base", std::nullopt}};
  Advance();
  options_.anchors = {{"eval", 2}};  // The version that is being published.
  Advance();
  options_.anchors.clear();  // Anchors stay with the lineage.
  for (int i = 0; i < 6; ++i) Advance();
  const auto anchors = OpenLineage().CurrentAnchors();
  ASSERT_EQ(anchors.size(), 2u);
  EXPECT_EQ(anchors.at("eval").manifest.identity.base_version, 2u);
  EXPECT_EQ(anchors.at("eval").manifest.identity.target_version, 8u);
  EXPECT_EQ(Reach(0)->path, std::vector<std::uint64_t>{8});
  EXPECT_EQ(Reach(2)->path, std::vector<std::uint64_t>{8});
  EXPECT_EQ(Reach(1)->path, (std::vector<std::uint64_t>{2, 8}));
  EXPECT_EQ(Reach(7)->path, std::vector<std::uint64_t>{8});
  // To a version before the newest there is the chain.
  ApplyOptions older = ApplyOf(store_, trainer_.Directory(0));
  older.to = 3;
  older.output = directory_.File("older");
  EXPECT_EQ(Apply(older)->path, (std::vector<std::uint64_t>{1, 2, 3}));
}

TEST_F(AnchorsTest, PrunedVersionsBeforeAnEvaluationAnchor) {
  options_.retain = 1;
  options_.anchors = {{"eval", 1}};
  for (int i = 0; i < 5; ++i) {
    Advance();
    options_.anchors.clear();
  }
  EXPECT_EQ(OpenLineage().manifests().size(), 1u);
  // Version 1's digest is known by the anchor alone.
  const auto report = Reach(1);
  ASSERT_TRUE(report.ok()) << report.status().ToString();
  EXPECT_EQ(report->base_version, 1u);
  EXPECT_FALSE(Reach(0).ok());
  VerifyOptions verify;
  verify.store = store_;
  verify.checkpoint = trainer_.Directory(1);
  EXPECT_EQ(Verify(verify)->version, 1u);
}

// As changes add up, chunks turn dense, and an anchor costs at most what changed.
TEST_F(AnchorsTest, DenseWhereItFills) {
  options_.anchors = {{"base", std::nullopt}};
  PublishReport first = Advance(100);
  PublishReport last;
  for (int i = 0; i < 24; ++i) last = Advance(100);
  ASSERT_EQ(last.anchors.size(), 1u);
  const AnchorRecord record = OpenLineage().CurrentAnchors().at("base");
  const std::string path = JoinPath(store_, record.manifest.payloads[0].object);
  EXPECT_GT(PlanesIn(path), 5);
  EXPECT_LT(PlanesIn(JoinPath(store_, OpenLineage().manifests().at(1).payloads[0].object)), 3);
  EXPECT_LT(last.anchors[0].payload_bytes, last.model_bytes + last.model_bytes / 100);
  EXPECT_LT(last.anchors[0].payload_bytes, 20 * first.payload_bytes);
  EXPECT_TRUE(Reach(0).ok());
}

TEST_F(AnchorsTest, RefusedBeforeAnythingIsPublished) {
  Advance();
  trainer_.Step(9);
  options_.base = trainer_.Directory(1);
  options_.target = trainer_.Directory(2);
  options_.anchors = {{"eval", std::nullopt}};
  EXPECT_EQ(Publish(options_).status().code(), StatusCode::kInvalidArgument);
  options_.anchors = {{"eval", 7}};
  EXPECT_FALSE(Publish(options_).ok());
  options_.anchors = {{"../x", 0}};
  EXPECT_EQ(Publish(options_).status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(OpenLineage().newest(), 1u);
  EXPECT_TRUE(OpenLineage().anchors().empty());
}

TEST_F(AnchorsTest, SetMovedAndRemovedBetweenVersions) {
  for (int i = 0; i < 4; ++i) Advance();
  AnchorOptions anchors;
  anchors.store = store_;
  anchors.set = {{"eval", 1}, {"base", std::nullopt}};
  auto found = UpdateAnchors(anchors);
  ASSERT_TRUE(found.ok()) << found.status().ToString();
  ASSERT_EQ(found->size(), 2u);
  EXPECT_EQ(found.value()[1].name, "eval");
  EXPECT_EQ(found.value()[1].target_version, 4u);
  EXPECT_EQ(Reach(1)->path, std::vector<std::uint64_t>{4});
  anchors.set = {{"base", std::nullopt}, {"eval", 3}};
  EXPECT_EQ(UpdateAnchors(anchors).value()[1].version, 3u);
  EXPECT_EQ(Reach(1)->path, (std::vector<std::uint64_t>{2, 3, 4}));
  anchors.set = {{"eval", 4}};  // At its target itself.
  EXPECT_EQ(UpdateAnchors(anchors).value()[1].payload_bytes, 0u);
  anchors.set.clear();
  anchors.remove = {"eval", "base"};
  EXPECT_TRUE(UpdateAnchors(anchors).value().empty());
  EXPECT_TRUE(ObjectsBelow("default/anchors").empty());
  EXPECT_EQ(UpdateAnchors(anchors).status().code(), StatusCode::kNotFound);
}

// The way of one anchor may go over what another had before it was moved.
TEST_F(AnchorsTest, MovedTogether) {
  for (int i = 0; i < 4; ++i) Advance();
  AnchorOptions anchors;
  anchors.store = store_;
  anchors.set = {{"aa", 1}};
  ASSERT_TRUE(UpdateAnchors(anchors).ok());
  anchors.set = {{"aa", 2}, {"zz", 0}};  // The cheapest way of the second: 0, 1, and then aa's.
  const auto moved = UpdateAnchors(anchors);
  ASSERT_TRUE(moved.ok()) << moved.status().ToString();
  EXPECT_EQ(moved.value()[1].version, 0u);
  EXPECT_EQ(Reach(0)->path, std::vector<std::uint64_t>{4});
  EXPECT_EQ(ObjectsBelow("default/anchors").size(), 4u);
}

// A retry of a publish that died before the anchors were renewed renews them.
TEST_F(AnchorsTest, RetryRenews) {
  options_.anchors = {{"base", std::nullopt}};
  Advance();
  const auto store = OpenStore(store_, false).value();
  const AnchorRecord first = OpenLineage().CurrentAnchors().at("base");
  Advance();
  // As if the publisher had died after the version: the anchor is the old one.
  for (const std::string& object : ObjectsBelow("default/anchors")) {
    std::filesystem::remove(object);
  }
  ASSERT_TRUE(
      store->PutIfAbsent(object_name::Anchor("default", "base", 0, 1), AsBytes(first.ToJson()))
          .ok());
  options_.anchors.clear();
  const auto retry = Publish(options_);
  ASSERT_TRUE(retry.ok()) << retry.status().ToString();
  EXPECT_TRUE(retry->already_published);
  EXPECT_EQ(OpenLineage().CurrentAnchors().at("base").manifest.identity.target_version, 2u);
}

// What an anchor still goes through is not pruned, however few versions are to stay.
TEST_F(AnchorsTest, PruningNeverCutsAnAnchorsWay) {
  options_.anchors = {{"base", std::nullopt}};
  for (int i = 0; i < 2; ++i) Advance();
  // The anchor's payload is damaged: it cannot be renewed.
  const AnchorRecord record = OpenLineage().CurrentAnchors().at("base");
  const std::string payload = JoinPath(store_, record.manifest.payloads[0].object);
  const ByteVector whole = ReadFile(payload, 1u << 30).value();
  std::filesystem::remove(payload);
  options_.retain = 1;
  options_.anchors.clear();
  for (int i = 0; i < 3; ++i) {
    trainer_.Step(trainer_.version() + 1);
    options_.base = trainer_.Directory(trainer_.version() - 1);
    options_.target = trainer_.Directory(trainer_.version());
    const auto report = Publish(options_);
    ASSERT_TRUE(report.ok()) << report.status().ToString();
    ASSERT_FALSE(report->warnings.empty());
    EXPECT_THAT(report->warnings[0], HasSubstr("anchor 'base' could not be brought to version"));
  }
  EXPECT_EQ(OpenLineage().manifests().size(), 3u);  // 3, 4 and 5: what comes after the anchor.
  test::WriteFile(payload, whole);
  EXPECT_TRUE(Reach(0).ok());
  trainer_.Step(99);
  options_.base = trainer_.Directory(5);
  options_.target = trainer_.Directory(6);
  ASSERT_TRUE(Publish(options_).ok());
  EXPECT_EQ(OpenLineage().manifests().size(), 1u);
  EXPECT_TRUE(Reach(0).ok());
}

TEST_F(AnchorsTest, AnchorOfAnotherNameOrPlaceIsCorrupt) {
  options_.anchors = {{"base", std::nullopt}};
  Advance();
  const auto store = OpenStore(store_, false).value();
  AnchorRecord record = OpenLineage().CurrentAnchors().at("base");
  record.anchor = "other";
  ASSERT_TRUE(
      store->PutIfAbsent(object_name::Anchor("default", "wrong", 0, 1), AsBytes(record.ToJson()))
          .ok());
  EXPECT_EQ(Lineage::Open(*store, "default").status().code(), StatusCode::kCorruption);
}

// An anchor that contradicts the versions is seen before anything is fetched.
TEST_F(AnchorsTest, ContradictingDigest) {
  options_.anchors = {{"base", std::nullopt}};
  Advance();
  Advance();
  const auto store = OpenStore(store_, false).value();
  AnchorRecord record = OpenLineage().CurrentAnchors().at("base");
  record.anchor = "liar";
  record.manifest.identity.target_digest += Digest{{1, 0}};
  ASSERT_TRUE(
      store->PutIfAbsent(object_name::Anchor("default", "liar", 0, 2), AsBytes(record.ToJson()))
          .ok());
  const Status status = Lineage::Open(*store, "default").status();
  EXPECT_EQ(status.code(), StatusCode::kCorruption);
  EXPECT_THAT(status.message(), HasSubstr("contradicts itself"));
}

}  // namespace
}  // namespace segue
