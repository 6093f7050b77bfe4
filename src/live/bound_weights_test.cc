// SPDX-License-Identifier: Apache-2.0
//
// Live weights in this process's own buffers: what a prepare makes, what is left for the pause, and
// the scrub. The gate is a pair of callbacks that count.
#include "live/bound_weights.h"

#include <gtest/gtest.h>

#include <thread>

#include "live/live_weights.h"
#include "live/prepared_update.h"
#include "live/scrubber.h"
#include "live/takeover.h"
#include "live/testing.h"

namespace segue {
namespace {

class BoundWeightsTest : public test::BoundFixture {
 protected:
  BoundWeightsTest() {
    Advance(2);
    for (ByteVector& buffer : buffers_) std::ranges::fill(buffer, std::byte{0});
    store_object_ = OpenStore(store_, false).value();
    weights_ = BindWeights(*store_object_, options_, model_, gate_, nullptr).value();
  }

  Result<std::unique_ptr<PreparedUpdate>> Make(std::uint64_t version) {
    SEGUE_ASSIGN_OR_RETURN(UpdatePlan plan, PlanUpdate(*store_object_, "default", *weights_,
                                                       version, HeldNumber::kFound));
    const PreparedUpdate::Resources resources = {*store_object_, *weights_,        *device_,
                                                 *device_,       options_.staging, 1};
    auto update = PreparedUpdate::Make(resources, std::move(plan), {});
    if (update.ok()) SEGUE_RETURN_IF_ERROR(update.value()->Preflight(resources));
    return update;
  }

  Status Load() {
    SEGUE_ASSIGN_OR_RETURN(const Checkpoint checkpoint, OpenToLoad(options_, *weights_, {}, {}));
    return LoadFrom(checkpoint, *store_object_, options_, *weights_, {});
  }

  std::unique_ptr<Store> store_object_;
  int closed_ = 0;
  CallbackGate gate_{[this](std::chrono::milliseconds) {
                       ++closed_;
                       return Status();
                     },
                     [] { return Status(); }};
  std::unique_ptr<LiveWeights> weights_;
  std::unique_ptr<Device> device_ = MakeHostDevice(1);
};

TEST_F(BoundWeightsTest, FromCheckpointToTheNewest) {
  EXPECT_EQ(weights_->phase(), Phase::kLoading);
  ASSERT_TRUE(Load().ok());
  EXPECT_EQ(closed_, 1);
  EXPECT_EQ(weights_->phase(), Phase::kServing);
  EXPECT_EQ(weights_->version().version, 0u);
  EXPECT_TRUE(Holds(0));
  const auto update = Make(2);
  ASSERT_TRUE(update.ok()) << update.status().ToString();
  EXPECT_TRUE(Holds(0));
  EXPECT_TRUE(update.value()->changes_bytes());
  EXPECT_EQ(update.value()->report().steps, 2u);
  ASSERT_TRUE(update.value()->Apply().ok());
  EXPECT_TRUE(Holds(2));
  EXPECT_EQ(weights_->version().version, 2u);
  EXPECT_EQ(weights_->version().applied_count, 1u);
  EXPECT_TRUE(ListDirectory(options_.staging).value().empty());
}

TEST_F(BoundWeightsTest, CheckpointThatIsNoVersion) {
  trainer_.tensors()[0].bytes[0] ^= std::byte{1};
  Advance(3);
  trainer_.Step(4);  // Never published.
  options_.checkpoint = trainer_.Directory(4);
  EXPECT_EQ(Load().code(), StatusCode::kVersionMismatch);
  EXPECT_EQ(weights_->phase(), Phase::kLoading);
}

// Bytes that change between preflight and apply are found by the proof after it.
TEST_F(BoundWeightsTest, ChangedAfterThePreflight) {
  ASSERT_TRUE(Load().ok());
  const auto update = Make(1);
  ASSERT_TRUE(update.ok());
  for (ByteVector& buffer : buffers_) {
    for (std::byte& byte : buffer) byte ^= std::byte{0x20};
  }
  EXPECT_EQ(update.value()->Apply().code(), StatusCode::kTainted);
  EXPECT_EQ(weights_->phase(), Phase::kPoisoned);
}

TEST_F(BoundWeightsTest, StoppedPrepareLeavesNothing) {
  ASSERT_TRUE(Load().ok());
  UpdatePlan plan =
      PlanUpdate(*store_object_, "default", *weights_, {}, HeldNumber::kFound).value();
  const PreparedUpdate::Resources resources = {*store_object_, *weights_,        *device_,
                                               *device_,       options_.staging, 1};
  std::stop_source stop;
  stop.request_stop();
  const auto update = PreparedUpdate::Make(resources, std::move(plan), stop.get_token());
  EXPECT_EQ(update.status().code(), StatusCode::kUnavailable);
  EXPECT_TRUE(ListDirectory(options_.staging).value().empty());
  EXPECT_TRUE(Holds(0));
}

TEST_F(BoundWeightsTest, ScrubTellsRightFromWrong) {
  ASSERT_TRUE(Load().ok());
  Scrubber scrubber(*weights_, 8ull << 30);
  EXPECT_TRUE(test::Eventually([&] { return scrubber.passes() >= 2; }));
  EXPECT_EQ(scrubber.faults(), 0u);
  // Another digest is expected from now on; the bytes stay, as the scrub reads them.
  Digest other = weights_->local_digest();
  other.lane[1] += 1;
  weights_->SetLocalDigest(other);
  EXPECT_TRUE(test::Eventually([&] { return scrubber.found_fault(); }));
  weights_->SetPhase(Phase::kApplying);
  const std::uint64_t faults = scrubber.faults();
  scrubber.Forgive();
  EXPECT_FALSE(scrubber.found_fault());
  std::this_thread::sleep_for(std::chrono::milliseconds(30));
  EXPECT_FALSE(scrubber.found_fault()) << "bytes in the middle of an apply are nobody's fault";
  EXPECT_GE(scrubber.faults(), faults);
}

}  // namespace
}  // namespace segue
