// SPDX-License-Identifier: Apache-2.0
//
// Waiting for engines: each is asked until it has answered as it should, and no longer.
#include "sync/acknowledge.h"

#include <gmock/gmock.h>

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "sync/testing.h"

namespace segue {
namespace {

using testing::HasSubstr;

// The lineage of these tests has versions up to 9, whose digests are "d0" to "d9".
Result<std::optional<std::string>> DigestOf(std::uint64_t version) {
  return version <= 9 ? std::optional("d" + std::to_string(version)) : std::nullopt;
}

EngineHolds Holds(const std::string& lineage, std::uint64_t version, const std::string& digest,
                  bool ready = true) {
  return {ready, {{lineage, {version, digest}}}};
}

// One look at one engine.
Status Ask(const EngineHolds& holds, const std::string& lineage, std::uint64_t version,
           const DigestOfVersion& digest_of = DigestOf) {
  Cohort cohort;
  cohort.engines = {"a"};
  cohort.timeout = std::chrono::milliseconds(0);
  cohort.probe = [&](const std::string&) -> Result<EngineHolds> { return holds; };
  return WaitForCohort(cohort, lineage, version, digest_of);
}

TEST(AcknowledgeTest, AsksUntilAllHaveIt) {
  std::map<std::string, int> asked;
  Cohort cohort;
  cohort.engines = {"quick", "slow"};
  cohort.interval = std::chrono::milliseconds(1);
  cohort.probe = [&asked](const std::string& engine) -> Result<EngineHolds> {
    const int times = ++asked[engine];
    return engine == "quick" || times > 3 ? Holds("run", 7, "d7") : Holds("run", 6, "d6");
  };
  ASSERT_TRUE(WaitForCohort(cohort, "run", 7, DigestOf).ok());
  EXPECT_EQ(asked["quick"], 1);
  EXPECT_EQ(asked["slow"], 4);
}

TEST(AcknowledgeTest, SaysWhatEachEngineLacks) {
  Cohort cohort;
  cohort.engines = {"a", "b", "c", "d"};
  cohort.timeout = std::chrono::milliseconds(0);
  cohort.probe = [](const std::string& engine) -> Result<EngineHolds> {
    if (engine == "a") return Holds("other", 9, "d9");
    if (engine == "b") return Holds("run", 7, "d7", false);
    if (engine == "c") return Unavailable("connection refused");
    return Holds("run", 8, "d8");
  };
  const Status status = WaitForCohort(cohort, "run", 7, DigestOf);
  EXPECT_EQ(status.code(), StatusCode::kUnavailable);
  EXPECT_THAT(status.message(), HasSubstr("3 of 4"));
  EXPECT_THAT(status.message(), HasSubstr("'a': serves lineage 'other'"));
  EXPECT_THAT(status.message(), HasSubstr("'b': is not ready"));
  EXPECT_THAT(status.message(), HasSubstr("'c': connection refused"));
}

TEST(AcknowledgeTest, CountsTheFurtherLineagesOfAnEngine) {
  EngineHolds holds{true, {{"policy", {9, "d9"}}, {"draft", {6, "d6"}}}};
  EXPECT_THAT(Ask(holds, "draft", 7).message(), HasSubstr("serves version 6"));
  holds.lineages["draft"] = {7, "d7"};
  EXPECT_TRUE(Ask(holds, "draft", 7).ok());
  EXPECT_TRUE(Ask(holds, "policy", 9).ok());
  EXPECT_FALSE(Ask(holds, "critic", 1).ok());
}

// Two runs under one name have the same numbers, and other weights.
TEST(AcknowledgeTest, AnotherRunOfTheSameNameIsBehind) {
  const Status same = Ask(Holds("run", 7, "x7"), "run", 7);
  EXPECT_EQ(same.code(), StatusCode::kUnavailable);
  for (const char* const part : {"engine 'a'", "x7", "d7", "another run's"}) {
    EXPECT_THAT(same.message(), HasSubstr(part));
  }
  EXPECT_THAT(Ask(Holds("run", 8, "x8"), "run", 7).message(), HasSubstr("another run's"));
  EXPECT_THAT(Ask(Holds("run", 8, "d7"), "run", 7).message(), HasSubstr("another run's"));
  EXPECT_THAT(Ask(Holds("run", 12, "x12"), "run", 7).message(), HasSubstr("not known to have"));
  EXPECT_THAT(Ask(Holds("run", 7, ""), "run", 7).message(), HasSubstr("no digest"));
  EXPECT_TRUE(Ask(Holds("run", 8, "d8"), "run", 7).ok());
}

TEST(AcknowledgeTest, AStoreThatCannotBeReadAcknowledgesNothing) {
  const auto fails = [](std::uint64_t) -> Result<std::optional<std::string>> {
    return Unavailable("no store");
  };
  EXPECT_THAT(Ask(Holds("run", 8, "d8"), "run", 7, fails).message(), HasSubstr("no store"));
}

// A later version may come up in the store after the engine was first seen with it.
TEST(AcknowledgeTest, WhatWasNotKnownIsAskedAgain) {
  int asked = 0;
  Cohort cohort;
  cohort.engines = {"a", "b"};
  cohort.interval = std::chrono::milliseconds(1);
  cohort.probe = [](const std::string&) -> Result<EngineHolds> { return Holds("run", 8, "d8"); };
  const auto later = [&](std::uint64_t version) -> Result<std::optional<std::string>> {
    return ++asked < 3 ? std::optional<std::string>() : *DigestOf(version);
  };
  ASSERT_TRUE(WaitForCohort(cohort, "run", 7, later).ok());
  EXPECT_EQ(asked, 3);  // Once a look, for both.
}

TEST(AcknowledgeTest, DigestsAsTheStoreSaysThem) {
  const test::TemporaryDirectory directory;
  test::MiniTrainer trainer(directory.path());
  const std::string url = directory.File("store");
  std::vector<std::string> digests;
  for (std::uint64_t version = 1; version <= 4; ++version) {
    trainer.Step(version);
    PublishOptions options =
        test::PublishOf(url, trainer.Directory(version - 1), trainer.Directory(version));
    if (version == 4) options.retain = 2;
    const auto report = Publish(options);
    ASSERT_TRUE(report.ok()) << report.status().ToString();
    if (version == 1) digests.push_back(report->base_digest);
    digests.push_back(report->target_digest);
  }
  const auto store = OpenStore(url, /*create=*/false).value();
  const auto digest = [&](std::uint64_t version) {
    return FindDigest(*store, "default", version).value().value_or("unknown");
  };
  EXPECT_EQ(digest(0), digests[0]);
  EXPECT_EQ(digest(1), "unknown");   // Pruned, and no base of what is left.
  EXPECT_EQ(digest(2), digests[2]);  // Pruned: the base of version 3.
  EXPECT_EQ(digest(3), digests[3]);
  EXPECT_EQ(digest(4), digests[4]);
  EXPECT_EQ(digest(5), "unknown");
  EXPECT_EQ(FindDigest(*store, "nothing", 1).value(), std::nullopt);
}

TEST(AcknowledgeTest, NobodyToAsk) {
  EXPECT_EQ(WaitForCohort({}, "run", 7, DigestOf).code(), StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace segue
