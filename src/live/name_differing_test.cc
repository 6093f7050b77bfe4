// SPDX-License-Identifier: Apache-2.0
//
// Which tensors are named where weights are no version: those that differ from the nearest version
// around the oldest and the newest delta, and nothing where a store cannot tell.
#include "live/name_differing.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "live/live_lineage.h"
#include "live/testing.h"

namespace segue {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;

class NameDifferingTest : public test::BoundFixture {
 protected:
  NameDifferingTest() {
    model_.close_gate = [](std::chrono::milliseconds) { return Status(); };
    model_.open_gate = [] { return Status(); };
  }

  // What is said of the buffers as they are.
  std::string Said() {
    LiveLineage lineage(options_, SystemLiveEnvironment());
    const Status refused = lineage.HoldBound(model_);
    EXPECT_EQ(refused.code(), StatusCode::kVersionMismatch) << refused.ToString();
    return refused.message();
  }

  void Load(std::uint64_t version) {
    const Checkpoint checkpoint = Checkpoint::Open(trainer_.Directory(version)).value();
    for (std::size_t i = 0; i < buffers_.size(); ++i) {
      std::ranges::copy(checkpoint.TensorBytes(i), buffers_[i].begin());
    }
  }

  std::byte& Byte(const std::string& name, std::size_t at) {
    for (std::size_t i = 0; i < buffers_.size(); ++i) {
      if (model_.tensors[i].name == name) return buffers_[i][at];
    }
    SEGUE_CHECK(false);
    return buffers_[0][0];
  }
};

TEST_F(NameDifferingTest, OneTensor) {
  Byte("b.weight", 69'999) ^= std::byte{4};
  EXPECT_THAT(Said(), EndsWith("; of 4 tensors that version 1 changes, these differ from version "
                               "0: 'b.weight'"));
}

TEST_F(NameDifferingTest, TheNearestOfOldestAndNewest) {
  for (std::uint64_t seed = 2; seed <= 4; ++seed) Advance(seed);
  for (const std::uint64_t version : {0u, 1u, 3u, 4u}) {
    Load(version);
    Byte("e.ids", 8) ^= std::byte{1};
    EXPECT_THAT(Said(),
                HasSubstr("these differ from version " + std::to_string(version) + ": 'e.ids'"));
  }
}

// Found by a user: after a version in which nothing had changed, all tensors were named.
TEST_F(NameDifferingTest, VersionsThatChangeNothingTellNothing) {
  Advance(2);
  trainer_.Write();
  const std::string newest = trainer_.Directory(trainer_.version());
  for (const std::uint64_t version : {3, 4}) {
    auto publish = test::PublishOf(store_, newest, newest);
    publish.version = version;
    ASSERT_TRUE(Publish(publish).ok());
  }
  Load(trainer_.version());
  Byte("e.ids", 8) ^= std::byte{1};
  EXPECT_THAT(Said(), HasSubstr("these differ from version 2: 'e.ids'"));
}

TEST_F(NameDifferingTest, OtherWeights) {
  for (ByteVector& buffer : buffers_) {
    for (std::byte& byte : buffer) byte ^= std::byte{0x20};
  }
  EXPECT_THAT(Said(), HasSubstr("version 0: 'a.weight', 'b.weight', 'c.scale', 'e.ids'"));
}

// What a delta does not change it says nothing of.
TEST_F(NameDifferingTest, TensorsThatNoDeltaChanges) {
  options_.store = directory_.File("other");
  auto& tensors = trainer_.tensors();
  const auto before = tensors;
  trainer_.Step(5);
  for (std::size_t i = 1; i < tensors.size(); ++i) tensors[i] = before[i];
  trainer_.Write();
  const std::string base = trainer_.Directory(1);
  ASSERT_TRUE(Publish(test::PublishOf(options_.store, base, trainer_.Directory(2))).ok());
  Load(1);
  Byte("b.weight", 0) ^= std::byte{1};
  EXPECT_THAT(Said(),
              EndsWith("; 1 tensor that version 1 changes is as in version 0, so that it is "
                       "others that differ: of 'b.weight', 'c.scale', 'd.empty', 'e.ids'"));
  Byte("a.weight", 0) ^= std::byte{1};
  EXPECT_THAT(Said(), HasSubstr("these differ from version 0: 'a.weight'"));
}

TEST_F(NameDifferingTest, AStoreThatCannotTell) {
  Byte("b.weight", 0) ^= std::byte{4};
  const std::string payloads = JoinPath(store_, "default/payloads");
  for (const auto& entry : std::filesystem::recursive_directory_iterator(payloads)) {
    if (entry.is_regular_file()) std::filesystem::resize_file(entry.path(), 70);
  }
  EXPECT_THAT(Said(), Not(HasSubstr("differ")));
  std::filesystem::remove_all(payloads);
  EXPECT_THAT(Said(), Not(HasSubstr("differ")));
}

TEST_F(NameDifferingTest, OtherFailuresStayAsTheyAre) {
  LiveLineage lineage(options_, SystemLiveEnvironment());
  ASSERT_TRUE(lineage.HoldBound(model_).ok());
  const Status failure = Unavailable("not now");
  const Status same = NamingDiffering(failure, lineage.store(), "default", lineage.weights());
  EXPECT_EQ(same.ToString(), failure.ToString());
}

}  // namespace
}  // namespace segue
