// SPDX-License-Identifier: Apache-2.0
//
// A fleet without engines that answer: what the store tells, and what cannot be asked for. With
// real engines: tests/e2e/test_top.py.
#include "segue/fleet.h"

#include <gtest/gtest.h>

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
  EXPECT_FALSE(view->engines[0].lag_known);
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

}  // namespace
}  // namespace segue
