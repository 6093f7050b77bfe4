// SPDX-License-Identifier: Apache-2.0
//
// A fleet without engines that answer: what the store tells, and what cannot be asked for. And a
// cohort of real receivers behind their endpoints. The view of real engines: tests/e2e/test_top.py.
#include "segue/fleet.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "segue/publisher.h"
#include "segue/server.h"
#include "sync/testing.h"

namespace segue {
namespace {

TEST(FleetTest, StoreAndUnreachableEngine) {
  const test::TemporaryDirectory directory;
  test::MiniTrainer trainer(directory.path());
  FleetOptions options;
  options.store = directory.File("store");
  EXPECT_FALSE(ReadFleet(options)->store_error.empty());
  for (std::uint64_t version = 1; version <= 2; ++version) {
    trainer.Step(version);
    ASSERT_TRUE(Publish(test::PublishOf(options.store, trainer.Directory(version - 1),
                                        trainer.Directory(version)))
                    .ok());
  }
  options.engines = {"http://127.0.0.1:1"};
  const auto view = ReadFleet(options);
  ASSERT_TRUE(view.ok()) << view.status().ToString();
  EXPECT_EQ(view->store_error, "");
  ASSERT_EQ(view->lineages.size(), 1u);
  EXPECT_EQ(view->lineages[0].lineage, "default");
  EXPECT_EQ(view->lineages[0].newest, 2u);
  EXPECT_EQ(view->lineages[0].versions, (std::vector<std::uint64_t>{1, 2}));
  EXPECT_GT(view->lineages[0].payload_bytes, 0u);
  ASSERT_EQ(view->engines.size(), 1u);
  EXPECT_FALSE(view->engines[0].reachable);
  EXPECT_TRUE(view->engines[0].lineages.empty());
  options.lineages = {"other"};
  EXPECT_NE(ReadFleet(options)->lineages[0].error, "");
}

TEST(FleetTest, Refusals) {
  FleetOptions options;
  options.engines = {"127.0.0.1:7000"};
  EXPECT_EQ(ReadFleet(options).status().code(), StatusCode::kInvalidArgument);
  options.engines.assign(5000, "http://a");
  EXPECT_EQ(ReadFleet(options).status().code(), StatusCode::kResourceExhausted);
}

class CohortTest : public testing::Test {
 protected:
  CohortTest() {
    trainer_.Step(1);
    SEGUE_CHECK(
        Publish(test::PublishOf(store_, trainer_.Directory(0), trainer_.Directory(1))).ok());
  }
  ~CohortTest() override {
    if (!server_) return;
    server_->Stop();
    EXPECT_TRUE(RemoveSegment(name_).ok());
    for (const std::string& name : further_) EXPECT_TRUE(RemoveSegment(name).ok());
  }

  void Serve(std::optional<std::chrono::milliseconds> follow,
             const std::vector<std::string>& further = {}) {
    ServeOptions options;
    options.receiver.store = store_;
    options.receiver.checkpoint = trainer_.Directory(0);
    options.receiver.name = name_;
    options.receiver.staging = directory_.path();
    options.follow = follow;
    for (const std::string& lineage : further) {
      options.further.push_back(options.receiver);
      options.further.back().lineage = lineage;
      options.further.back().name = name_ + "." + lineage;
      further_.push_back(options.further.back().name);
    }
    server_ = Server::Start(options).value();
    SEGUE_CHECK(server_->WaitReady().ok());
  }

  std::unique_ptr<Publisher> OpenPublisher(std::chrono::milliseconds timeout) {
    PublisherOptions options;
    options.store = store_;
    options.cohort = {{server_->url()}, HttpEngineProbe(""), timeout, timeout / 100};
    return Publisher::Open(options, trainer_.Directory(1)).value();
  }

  // The trainer's next step.
  Result<PublishReport> Commit(Publisher& publisher) {
    trainer_.Step(trainer_.version() + 1);
    SEGUE_RETURN_IF_ERROR(publisher.Begin());
    for (const test::TestTensor& tensor : trainer_.tensors()) {
      SEGUE_RETURN_IF_ERROR(
          publisher.Put(tensor.spec.name, tensor.bytes.data(), tensor.bytes.size()));
    }
    return publisher.Commit();
  }

  test::TemporaryDirectory directory_;
  test::MiniTrainer trainer_{directory_.path()};
  std::string store_ = directory_.File("store");
  std::string name_ = "cohort-" + std::to_string(::getpid());
  std::vector<std::string> further_;
  std::unique_ptr<Server> server_;
};

TEST_F(CohortTest, ACommitReturnsOnceTheEngineHasTheVersion) {
  Serve(std::chrono::milliseconds(10));
  const auto publisher = OpenPublisher(std::chrono::seconds(60));
  for (std::uint64_t version = 2; version <= 4; ++version) {
    const auto report = Commit(*publisher);
    ASSERT_TRUE(report.ok()) << report.status().ToString();
    EXPECT_GE(server_->status().version, version);
    EXPECT_EQ(publisher->version(), version);
  }
}

TEST_F(CohortTest, AnEngineThatStaysBehindIsNamedAndWaitedFor) {
  Serve({});
  const auto publisher = OpenPublisher(std::chrono::milliseconds(300));
  const Status behind = Commit(*publisher).status();
  EXPECT_EQ(behind.code(), StatusCode::kUnavailable);
  EXPECT_THAT(behind.message(), testing::HasSubstr(server_->url()));
  EXPECT_EQ(publisher->Begin().code(), StatusCode::kUnavailable);
  EXPECT_EQ(publisher->version(), 1u);
  ASSERT_TRUE(publisher->MoveBaseline().ok());
  EXPECT_EQ(publisher->version(), 2u);
}

// The engine's store is one run's, the publisher's another's; both call their lineage "default".
TEST_F(CohortTest, AnEngineOfAnotherRunOfTheSameNameIsNamed) {
  Serve({});
  const std::string digest = server_->status().digest;
  test::MiniTrainer other(directory_.File("other"));
  other.Step(77);
  const std::string store = directory_.File("other-store");
  const auto report = Publish(test::PublishOf(store, other.Directory(0), other.Directory(1)));
  ASSERT_TRUE(report.ok());
  const Cohort cohort{{server_->url()}, HttpEngineProbe(""), std::chrono::milliseconds(0)};
  const auto wait = [&](std::uint64_t version, const std::string& wanted, const std::string& url) {
    return WaitForEngines(cohort, {"default", version, wanted, url, {}});
  };
  const Status status = wait(1, report->target_digest, store);
  EXPECT_EQ(status.code(), StatusCode::kUnavailable);
  for (const std::string& part : {server_->url(), digest, report->target_digest}) {
    EXPECT_THAT(status.message(), testing::HasSubstr(part));
  }
  // Version 0 is asked for, version 1 held: of this store's lineage, or of the other's.
  EXPECT_FALSE(wait(0, report->base_digest, store).ok());
  EXPECT_TRUE(wait(0, report->base_digest, store_).ok());
  EXPECT_TRUE(wait(1, digest, store_).ok());

  const auto look = ReadFleet({.store = store, .engines = {server_->url()}});
  ASSERT_TRUE(look.ok()) << look.status().ToString();
  ASSERT_EQ(look->engines[0].lineages.size(), 1u);
  EXPECT_TRUE(look->engines[0].lineages[0].is_other);
  EXPECT_FALSE(look->engines[0].lineages[0].lag_known);
  const auto own = ReadFleet({.store = store_, .engines = {server_->url()}});
  EXPECT_FALSE(own->engines[0].lineages[0].is_other);
  EXPECT_TRUE(own->engines[0].lineages[0].lag_known);
  EXPECT_EQ(own->engines[0].lineages[0].lag, 0u);
}

// Versions that are no longer on offer count too.
TEST_F(CohortTest, LagIsADistanceOfNumbers) {
  Serve({});
  for (std::uint64_t version = 2; version <= 6; ++version) {
    trainer_.Step(version);
    PublishOptions options =
        test::PublishOf(store_, trainer_.Directory(version - 1), trainer_.Directory(version));
    options.retain = 1;
    ASSERT_TRUE(Publish(options).ok());
  }
  const auto view = ReadFleet({.store = store_, .engines = {server_->url()}});
  ASSERT_TRUE(view.ok());
  EXPECT_EQ(view->lineages[0].versions, std::vector<std::uint64_t>{6});
  ASSERT_EQ(view->engines[0].lineages.size(), 1u);
  EXPECT_EQ(view->engines[0].lineages[0].version, 1u);
  EXPECT_TRUE(view->engines[0].lineages[0].lag_known);
  EXPECT_EQ(view->engines[0].lineages[0].lag, 5u);
}

// A row for each lineage of a receiver of several.
TEST_F(CohortTest, EveryLineageOfAnEngineHasALagOfItsOwn) {
  PublishOptions draft = test::PublishOf(store_, trainer_.Directory(0), trainer_.Directory(1));
  draft.lineage = "draft";
  ASSERT_TRUE(Publish(draft).ok());
  Serve({}, {"draft"});
  trainer_.Step(2);
  draft.base = trainer_.Directory(1);
  draft.target = trainer_.Directory(2);
  ASSERT_TRUE(Publish(draft).ok());
  const auto view = ReadFleet({.store = store_, .engines = {server_->url()}});
  ASSERT_TRUE(view.ok());
  const auto& held = view->engines[0].lineages;
  ASSERT_EQ(held.size(), 2u);
  EXPECT_EQ(held[0].lineage, "default");
  EXPECT_EQ(held[0].lag, 0u);
  EXPECT_EQ(held[1].lineage, "draft");
  EXPECT_EQ(held[1].version, 1u);
  EXPECT_EQ(held[1].lag, 1u);
}

}  // namespace
}  // namespace segue
