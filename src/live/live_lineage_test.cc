// SPDX-License-Identifier: Apache-2.0
//
// The weights of one lineage, step by step: what is refused before anything is read, what is known
// of wrong bytes, and gates that open again only where they may. The order across the steps and
// lineages: live_engine_test.cc, receiver_group_test.cc.
#include "live/live_lineage.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "live/testing.h"

namespace segue {
namespace {

using std::chrono::milliseconds;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class LiveLineageTest : public test::BoundFixture {
 protected:
  LiveLineageTest() {
    model_.close_gate = [this](milliseconds deadline) {
      calls_.push_back("close in " + std::to_string(deadline.count()));
      return Status();
    };
    model_.open_gate = [this] {
      calls_.push_back("open");
      return Status();
    };
  }

  LiveLineage& Lineage() {
    if (!lineage_) lineage_ = std::make_unique<LiveLineage>(options_, SystemLiveEnvironment());
    return *lineage_;
  }
  Status Hold() { return Lineage().HoldBound(model_); }

  static PrepareRequest To(std::optional<std::uint64_t> version) {
    PrepareRequest request;
    request.target_version = version;
    return request;
  }

  std::vector<std::string> calls_;
  std::unique_ptr<LiveLineage> lineage_;
};

TEST_F(LiveLineageTest, MovesStepByStep) {
  ASSERT_TRUE(Hold().ok());
  EXPECT_EQ(Lineage().VersionLabel(), "default/0");
  EXPECT_THAT(Lineage().Versions().value(), ElementsAre(1u));
  const auto update = Lineage().MakeUpdate(To({}), {});
  ASSERT_TRUE(update.ok()) << update.status().ToString();
  ASSERT_TRUE(Lineage().CloseGates(1, milliseconds(7), /*reopen=*/true).ok());
  ASSERT_TRUE(Lineage().Apply(*update.value()).ok());
  ASSERT_TRUE(Lineage().OpenGate().ok());
  EXPECT_THAT(calls_, ElementsAre("close in 7", "open"));
  EXPECT_EQ(Lineage().VersionLabel(), "default/1");
  EXPECT_TRUE(Holds(1));
}

TEST_F(LiveLineageTest, ADifferentPlanOrManifestIsRefused) {
  ASSERT_TRUE(Hold().ok());
  PrepareRequest request;
  request.plan_digest = std::string(32, '0');
  EXPECT_EQ(Lineage().MakeUpdate(request, {}).status().code(), StatusCode::kVersionMismatch);
  request.plan_digest = Lineage().weights().plan().digest().ToHex();
  request.manifest_sha256 = std::string(64, '0');
  EXPECT_EQ(Lineage().MakeUpdate(request, {}).status().code(), StatusCode::kCorruption);
  EXPECT_TRUE(Holds(0));
}

TEST_F(LiveLineageTest, ARebuildThatLeadsNowhereIsFoundOutFirst) {
  Advance(2);
  ASSERT_TRUE(Hold().ok());
  trainer_.Step(3);  // Never published.
  const std::string lost = trainer_.Directory(3);
  ASSERT_TRUE(Lineage().CheckRebuild({}).ok());
  std::filesystem::remove_all(options_.checkpoint);
  std::filesystem::copy(lost, options_.checkpoint);
  EXPECT_EQ(Lineage().CheckRebuild({}).code(), StatusCode::kVersionMismatch);
}

// A wrong bit that a delta meets: known from then on, nothing more is applied, nothing is written.
TEST_F(LiveLineageTest, BytesThatAreNoLongerTheVersionAreKnownToBeWrong) {
  ASSERT_TRUE(Hold().ok());
  for (ByteVector& buffer : buffers_) {
    for (std::byte& byte : buffer) byte ^= std::byte{0x20};
  }
  const std::vector<ByteVector> before = buffers_;
  const auto update = Lineage().MakeUpdate(To({}), {});
  EXPECT_EQ(update.status().code(), StatusCode::kCorruption);
  EXPECT_THAT(update.status().message(), HasSubstr("tensor '"));
  EXPECT_EQ(Lineage().CheckHealth().code(), StatusCode::kCorruption);
  EXPECT_EQ(Lineage().MakeUpdate(To({}), {}).status().code(), StatusCode::kCorruption);
  for (const bool reopen : {true, false}) {
    calls_.clear();
    EXPECT_EQ(Lineage().CloseGates(1, milliseconds(7), reopen).code(), StatusCode::kCorruption);
    EXPECT_EQ(calls_.back(), reopen ? "open" : "close in 7");
  }
  EXPECT_EQ(buffers_, before);
  ASSERT_TRUE(Lineage().OpenToLoad({}).ok());
  ASSERT_TRUE(Lineage().Load().ok());
  EXPECT_TRUE(Lineage().CheckHealth().ok());
  EXPECT_TRUE(Holds(0));
}

TEST_F(LiveLineageTest, ALoadThatIsGivenUpOpensTheGateOfWhatServes) {
  ASSERT_TRUE(Hold().ok());
  ASSERT_TRUE(Lineage().OpenToLoad({}).ok());
  ASSERT_TRUE(Lineage().GiveUpLoad().ok());
  EXPECT_EQ(calls_.back(), "open");
  EXPECT_EQ(Lineage().OpenToLoad(Unavailable("not now")).code(), StatusCode::kUnavailable);
  EXPECT_TRUE(Holds(0));
}

TEST_F(LiveLineageTest, WeightsOfNoVersionOfALineageThatAppearsLaterAreStrange) {
  options_.lineage = "later";
  ASSERT_TRUE(Hold().ok());
  EXPECT_TRUE(Lineage().CheckHealth().ok());
  PublishOptions publish = test::PublishOf(store_, trainer_.Directory(1), trainer_.Directory(1));
  publish.lineage = "later";
  ASSERT_TRUE(Publish(publish).ok());
  const Status refused = Lineage().MakeUpdate(To({}), {}).status();
  EXPECT_EQ(refused.code(), StatusCode::kVersionMismatch);
  EXPECT_EQ(Lineage().CheckHealth().ToString(), refused.ToString());
  EXPECT_THAT(refused.message(), HasSubstr("which has appeared since they were loaded"));
}

// They are a version, though not one that leads to what is asked for.
TEST_F(LiveLineageTest, WeightsOfALaterVersionOfALineageThatAppearsAreNotStrange) {
  Advance(2);
  const Checkpoint newest = Checkpoint::Open(trainer_.Directory(2)).value();
  for (std::size_t i = 0; i < buffers_.size(); ++i) {
    std::ranges::copy(newest.TensorBytes(i), buffers_[i].begin());
  }
  options_.lineage = "later";
  ASSERT_TRUE(Hold().ok());
  for (std::uint64_t version = 1; version <= 2; ++version) {
    PublishOptions publish =
        test::PublishOf(store_, trainer_.Directory(version - 1), trainer_.Directory(version));
    publish.lineage = "later";
    ASSERT_TRUE(Publish(publish).ok());
    if (version == 2) break;
    // So far they are none of its versions.
    EXPECT_FALSE(Lineage().MakeUpdate(To(1), {}).ok());
    EXPECT_FALSE(Lineage().CheckHealth().ok());
  }
  const Status refused = Lineage().MakeUpdate(To(1), {}).status();
  EXPECT_THAT(refused.message(), HasSubstr("does not lead back to 1"));
  EXPECT_TRUE(Lineage().CheckHealth().ok());
  EXPECT_TRUE(Lineage().MakeUpdate(To({}), {}).ok());
}

}  // namespace
}  // namespace segue
