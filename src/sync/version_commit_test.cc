// SPDX-License-Identifier: Apache-2.0
//
// The way from a payload to a visible version: what is refused before anything is read, and that
// nothing is visible before the manifest. Whole publishes are in publish_apply_test.cc.
#include "sync/version_commit.h"

#include <gtest/gtest.h>

#include "checkpoint/testing.h"
#include "delta/delta_builder.h"

namespace segue {
namespace {

TEST(VersionCommitTest, OptionsThatNoPublishCanTake) {
  PublishOptions options;
  EXPECT_TRUE(CheckPublishOptions(options).ok());
  options.owner = 1;
  EXPECT_EQ(CheckPublishOptions(options).code(), StatusCode::kInvalidArgument);
  options.owner_count = 2;
  EXPECT_NE(CheckPublishOptions(options).message().find("--version"), std::string::npos);
  options.version = 3;
  EXPECT_NE(CheckPublishOptions(options).message().find("--session"), std::string::npos);
  options.session = "s";
  EXPECT_TRUE(CheckPublishOptions(options).ok());
  options.profile = "zip";
  EXPECT_EQ(CheckPublishOptions(options).code(), StatusCode::kInvalidArgument);
}

class VersionCommitOrderTest : public testing::Test {
 protected:
  Status Commit() {
    PendingVersion pending;
    VersionCommit commit(*store_, nullptr, plan_, options_, report_);
    SEGUE_RETURN_IF_ERROR(commit.ChooseNumbers(pending.identity));
    pending.base_layout = pending.target_layout = &layout_;
    pending.identity.base_layout = pending.identity.target_layout = layout_.digest();
    pending.writer = store_->StartWrite().value();
    const PayloadSummary summary = WriteStagedDelta(plan_, StagedDelta(), 1, [&](ByteSpan bytes) {
                                     return pending.writer->Append(bytes);
                                   }).value();
    pending.SetPayload(0, summary, Digest{{1, 2}}, Digest{{1, 2}});
    return commit.Run(pending);
  }

  test::TemporaryDirectory directory_;
  std::unique_ptr<Store> store_ = OpenStore(directory_.File("store"), true).value();
  Plan plan_ = Plan::Make({{"a", Dtype::kU8, {3}}}).value();
  Layout layout_ = Layout::Generate(plan_, 1000).value();
  PublishOptions options_;
  PublishReport report_;
};

TEST_F(VersionCommitOrderTest, MakesTheVersionVisible) {
  const Status status = Commit();
  ASSERT_TRUE(status.ok()) << status.ToString();
  EXPECT_TRUE(report_.committed);
  const Lineage lineage = Lineage::Open(*store_, "default").value();
  EXPECT_EQ(lineage.newest(), 1u);
  EXPECT_TRUE(lineage.ReadPlan(*store_).ok());
  EXPECT_TRUE(lineage.ReadLayout(*store_, layout_.digest()).ok());
}

// Another publisher has made the lineage meanwhile: refused, and no version is there.
TEST_F(VersionCommitOrderTest, AnotherLineageCameFirst) {
  LineageRecord other;
  other.lineage = "default";
  other.origin_digest = Digest{{9, 9}};
  ASSERT_TRUE(store_->PutIfAbsent(object_name::Lineage("default"), AsBytes(other.ToJson())).ok());
  EXPECT_EQ(Commit().code(), StatusCode::kInvalidArgument);
  EXPECT_FALSE(report_.committed);
  EXPECT_TRUE(Lineage::ListVersions(*store_, "default").value().empty());
}

// A publisher that was slow: its number has been used and pruned before its manifest is put.
TEST_F(VersionCommitOrderTest, TheNumberIsGone) {
  ASSERT_TRUE(store_->PutIfAbsent(object_name::Gone("default", 1), {}).ok());
  const Status status = Commit();
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_NE(status.message().find("pruned meanwhile"), std::string::npos) << status.message();
  EXPECT_FALSE(report_.committed);
  EXPECT_TRUE(Lineage::ListVersions(*store_, "default").value().empty());
  EXPECT_EQ(Commit().code(), StatusCode::kInvalidArgument);  // The same step again.
}

}  // namespace
}  // namespace segue
