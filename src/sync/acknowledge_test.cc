// SPDX-License-Identifier: Apache-2.0
//
// Waiting for engines: each is asked until it has answered as it should, and no longer.
#include "sync/acknowledge.h"

#include <gmock/gmock.h>

#include <map>

namespace segue {
namespace {

using testing::HasSubstr;

TEST(AcknowledgeTest, AsksUntilAllHaveIt) {
  std::map<std::string, int> asked;
  Cohort cohort;
  cohort.engines = {"quick", "slow"};
  cohort.interval = std::chrono::milliseconds(1);
  cohort.probe = [&asked](const std::string& engine) -> Result<EngineHolds> {
    const int times = ++asked[engine];
    return EngineHolds{"run", engine == "quick" || times > 3 ? 7u : 6u, true};
  };
  ASSERT_TRUE(WaitForCohort(cohort, "run", 7).ok());
  EXPECT_EQ(asked["quick"], 1);
  EXPECT_EQ(asked["slow"], 4);
}

TEST(AcknowledgeTest, SaysWhatEachEngineLacks) {
  Cohort cohort;
  cohort.engines = {"a", "b", "c", "d"};
  cohort.timeout = std::chrono::milliseconds(0);
  cohort.probe = [](const std::string& engine) -> Result<EngineHolds> {
    if (engine == "a") return EngineHolds{"other", 9, true};
    if (engine == "b") return EngineHolds{"run", 7, false};
    if (engine == "c") return Unavailable("connection refused");
    return EngineHolds{"run", 8, true};
  };
  const Status status = WaitForCohort(cohort, "run", 7);
  EXPECT_EQ(status.code(), StatusCode::kUnavailable);
  EXPECT_THAT(status.message(), HasSubstr("3 of 4"));
  EXPECT_THAT(status.message(), HasSubstr("'a': serves lineage 'other'"));
  EXPECT_THAT(status.message(), HasSubstr("'b': is not ready"));
  EXPECT_THAT(status.message(), HasSubstr("'c': connection refused"));
}

TEST(AcknowledgeTest, CountsTheFurtherLineagesOfAnEngine) {
  Cohort cohort;
  cohort.engines = {"a"};
  cohort.timeout = std::chrono::milliseconds(0);
  std::uint64_t draft = 6;
  cohort.probe = [&](const std::string&) -> Result<EngineHolds> {
    return EngineHolds{"policy", 9, true, {{"draft", draft}}};
  };
  EXPECT_THAT(WaitForCohort(cohort, "draft", 7).message(), HasSubstr("serves version 6"));
  draft = 7;
  EXPECT_TRUE(WaitForCohort(cohort, "draft", 7).ok());
  EXPECT_TRUE(WaitForCohort(cohort, "policy", 9).ok());
  EXPECT_FALSE(WaitForCohort(cohort, "critic", 1).ok());
}

TEST(AcknowledgeTest, NobodyToAsk) {
  EXPECT_EQ(WaitForCohort({}, "run", 7).code(), StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace segue
