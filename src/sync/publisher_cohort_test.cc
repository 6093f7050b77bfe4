// SPDX-License-Identifier: Apache-2.0
//
// A publisher that waits for its engines: by their digests, and the baseline moves with them.
#include <gmock/gmock.h>

#include <map>

#include "segue/publisher.h"
#include "sync/lineage.h"
#include "sync/publisher_testing.h"

namespace segue {
namespace {

using test::PublisherTest;
using test::SourcesOf;
using testing::HasSubstr;

class CohortTest : public PublisherTest {
 protected:
  CohortTest() {
    cohort_.engines = {"a", "b"};
    cohort_.timeout = std::chrono::milliseconds(30);
    cohort_.interval = std::chrono::milliseconds(5);
    cohort_.probe = [this](const std::string& engine) -> Result<EngineHolds> {
      if (!holds_.contains(engine)) return Unavailable("no answer");
      const std::uint64_t version = holds_[engine];
      return EngineHolds{true, {{"default", {version, DigestOf(version)}}}};
    };
  }

  // As the store says it.
  std::string DigestOf(std::uint64_t version) const {
    if (other_run_) return std::string(32, 'a');
    const auto store = OpenStore(store_, /*create=*/false).value();
    const auto facts = Lineage::Open(*store, "default")->Version(version);
    return facts ? facts->digest.ToHex() : "";
  }

  bool other_run_ = false;
  std::map<std::string, std::uint64_t> holds_;
  Cohort cohort_;
};

TEST_F(CohortTest, WaitsForEachEngine) {
  const auto publisher = Open(Options());
  EXPECT_EQ(publisher->WaitForAcknowledgement(cohort_).code(), StatusCode::kInvalidArgument);
  PublishStep(*publisher, 1);
  holds_ = {{"a", 1}};
  const Status behind = publisher->WaitForAcknowledgement(cohort_);
  EXPECT_EQ(behind.code(), StatusCode::kUnavailable);
  EXPECT_THAT(behind.message(), HasSubstr("engine 'b': no answer"));
  holds_ = {{"a", 1}, {"b", 0}};
  EXPECT_THAT(publisher->WaitForAcknowledgement(cohort_).message(), HasSubstr("serves version 0"));
  holds_ = {{"a", 1}, {"b", 5}};
  EXPECT_THAT(publisher->WaitForAcknowledgement(cohort_).message(), HasSubstr("not known to have"));
  holds_ = {{"a", 1}, {"b", 1}};
  EXPECT_TRUE(publisher->WaitForAcknowledgement(cohort_).ok());
  other_run_ = true;
  EXPECT_THAT(publisher->WaitForAcknowledgement(cohort_).message(), HasSubstr("another run's"));
}

// The version is published all the same, and the baseline waits; the chain has no branch.
TEST_F(CohortTest, BaselineMovesOnlyWithTheCohort) {
  PublisherOptions options = Options();
  options.cohort = cohort_;
  const auto publisher = Open(options);
  holds_ = {{"a", 1}, {"b", 0}};
  trainer_.Step(1);
  const auto waiting = publisher->Publish(SourcesOf(trainer_));
  EXPECT_EQ(waiting.status().code(), StatusCode::kUnavailable);
  EXPECT_THAT(waiting.status().message(), HasSubstr("is published"));
  EXPECT_EQ(publisher->version(), std::nullopt);
  ExpectReaches(0, 1);
  EXPECT_EQ(publisher->Begin().code(), StatusCode::kUnavailable);
  holds_ = {{"a", 1}, {"b", 1}};
  ASSERT_TRUE(publisher->Begin().ok());
  EXPECT_EQ(publisher->version(), 1u);
  publisher->Discard();
  trainer_.Step(2);
  ASSERT_FALSE(publisher->Publish(SourcesOf(trainer_)).ok());
  ASSERT_TRUE(publisher->MoveBaseline().ok());  // The caller gives up on them.
  EXPECT_EQ(publisher->version(), 2u);
  holds_ = {{"a", 3}, {"b", 3}};
  EXPECT_EQ(PublishStep(*publisher, 3).base_version, 2u);
  ExpectReaches(0, 3);
}

}  // namespace
}  // namespace segue
