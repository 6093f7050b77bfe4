// SPDX-License-Identifier: Apache-2.0
//
// Engine weights: attaching, slots, tensors, steps; the gate itself is tested in shared_gate_test.
// Case E7: what an engine may believe of the version before and during an update.
#include "segue/engine.h"

#include <gmock/gmock.h>

#include <cstring>
#include <thread>
#include <utility>
#include <vector>

#include "live/segment.h"
#include "live/testing.h"

namespace segue {
namespace {

using test::Child;
using test::Pipe;
using test::SegmentName;
using test::SmallPlan;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using namespace std::chrono_literals;

// Long enough to never pass in a test that works.
constexpr std::chrono::milliseconds kEver = 120s;

TEST(Engine, ReadsWhatTheReceiverWrites) {
  const SegmentName name;
  const auto segment = Segment::Create(name, SmallPlan(), "main").value();
  const EngineWeights engine = EngineWeights::Attach(name, 0ms).value();
  ASSERT_EQ(engine.tensors().size(), 4u);
  const EngineTensor* const tensor = engine.Find("c.weight");
  ASSERT_NE(tensor, nullptr);
  EXPECT_EQ(tensor->dtype, "F32");
  EXPECT_THAT(tensor->shape, ElementsAre(1000));
  EXPECT_EQ(tensor->size, 4000u);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(tensor->data) % 256, 0u);
  EXPECT_EQ(engine.Find("b.empty")->size, 0u);
  for (const char* const absent : {"", "a", "c.weights", "z"}) {
    EXPECT_EQ(engine.Find(absent), nullptr);
  }
  std::memset(segment->view().Tensor(2), 0x5a, 4000);
  EXPECT_EQ(std::memcmp(tensor->data, segment->view().Tensor(2), 4000), 0);
}

TEST(Engine, CannotWriteWeights) {
  const SegmentName name;
  const auto segment = Segment::Create(name, SmallPlan(), "main").value();
  Child engine([&] {
    ::close(STDERR_FILENO);  // A sanitizer would tell at length what is wanted here.
    const EngineWeights weights = EngineWeights::Attach(name, 0ms).value();
    *const_cast<std::byte*>(weights.tensors()[0].data) = std::byte{1};
    return 0;
  });
  EXPECT_NE(engine.Join(), 0);
  EXPECT_EQ(*segment->view().Tensor(0), std::byte{0});
}

TEST(Engine, SaysWhatIsNotThere) {
  const SegmentName name;
  EXPECT_EQ(EngineWeights::Attach(name, 0ms).status().code(), StatusCode::kNotFound);
  EXPECT_EQ(EngineWeights::Attach(name, -1h).status().code(), StatusCode::kNotFound);
  const Status status = EngineWeights::Attach(name, 5ms).status();
  EXPECT_THAT(status.message(), HasSubstr("there was no segment"));
  ASSERT_TRUE(SharedMemory::Create(name).ok());
  const Status unfinished = EngineWeights::Attach(name, 5ms).status();
  EXPECT_EQ(unfinished.code(), StatusCode::kNotFound);
  EXPECT_THAT(unfinished.message(), HasSubstr("had not finished its header"));
}

TEST(Engine, WaitsForTheSegment) {
  const SegmentName name;
  Pipe attached;
  Child engine([&] { return EngineWeights::Attach(name, kEver).ok() ? 0 : 1; });
  std::this_thread::sleep_for(3ms);  // Either order is right.
  { const SharedMemory unfinished = SharedMemory::Create(name).value(); }
  std::this_thread::sleep_for(3ms);
  ASSERT_TRUE(Segment::Remove(name).ok());
  const auto segment = Segment::Create(name, SmallPlan(), "main").value();
  EXPECT_EQ(engine.Join(), 0);
}

TEST(Engine, SlotsAreCountedAndUsedAgain) {
  const SegmentName name;
  const auto segment = Segment::Create(name, SmallPlan(), "main", 2).value();
  EngineWeights first = EngineWeights::Attach(name, 0ms).value();
  {
    const EngineWeights second = EngineWeights::Attach(name, 0ms).value();
    EXPECT_EQ(segment->engine_count(), 2u);
    const Status status = EngineWeights::Attach(name, kEver).status();
    EXPECT_EQ(status.code(), StatusCode::kResourceExhausted);
    EXPECT_THAT(status.message(), HasSubstr("all 2 engine slots"));
  }
  EXPECT_EQ(segment->engine_count(), 1u);
  EngineWeights third = EngineWeights::Attach(name, 0ms).value();
  const EngineWeights moved = std::move(third);
  EXPECT_EQ(segment->engine_count(), 2u);
}

TEST(Engine, KilledEnginesGiveTheirSlotsBack) {
  const SegmentName name;
  const auto segment = Segment::Create(name, SmallPlan(), "main", 1).value();
  ASSERT_TRUE(segment->gate().Open().ok());
  for (int i = 0; i < 5; ++i) {
    Pipe inside;
    Child engine([&] {
      EngineWeights weights = EngineWeights::Attach(name, 0ms).value();
      if (!weights.Enter(0ms).ok()) return 1;
      inside.Signal();
      return ::pause();
    });
    inside.Await();
    EXPECT_EQ(segment->engine_count(), 1u);
    engine.Kill();
    EXPECT_EQ(segment->engine_count(), 0u);
    // Every second time the next engine comes before the receiver has buried this one.
    if (i % 2 == 1) {
      EXPECT_TRUE(segment->gate().Close(0ms).ok());
      EXPECT_TRUE(segment->gate().Open().ok());
    }
  }
  // The last one's count must not be taken over with its slot.
  const EngineWeights engine = EngineWeights::Attach(name, 0ms).value();
  EXPECT_TRUE(segment->gate().Close(0ms).ok());
}

TEST(Engine, ForkSharesTheSlotUntilBothAreGone) {
  const SegmentName name;
  const auto segment = Segment::Create(name, SmallPlan(), "main").value();
  Pipe forked, ended, end;
  Child engine([&] {
    const EngineWeights weights = EngineWeights::Attach(name, 0ms).value();
    if (::fork() == 0) {
      end.Await();
      return 0;
    }
    forked.Signal();
    return ::pause();
  });
  forked.Await();
  engine.Kill();
  EXPECT_EQ(segment->engine_count(), 1u);
  end.Signal();
  while (segment->engine_count() != 0) std::this_thread::yield();
}

TEST(Engine, StepsEndWithTheirScope) {
  const SegmentName name;
  const auto segment = Segment::Create(name, SmallPlan(), "main").value();
  EngineWeights engine = EngineWeights::Attach(name, 0ms).value();
  EXPECT_EQ(engine.BeginStep(0ms).status().code(), StatusCode::kUnavailable);
  ASSERT_TRUE(segment->gate().Open().ok());
  {
    auto step = engine.BeginStep(0ms);
    ASSERT_TRUE(step.ok());
    const EngineWeights::Step moved = std::move(step).value();
    EXPECT_FALSE(segment->gate().Close(0ms).ok());
    EXPECT_TRUE(engine.BeginStep(0ms).ok()) << "the failed close has opened the gate again";
  }
  EXPECT_TRUE(segment->gate().Close(0ms).ok());
}

// The step is its parent's to end; the child has steps of its own.
TEST(Engine, AChildThatUnwindsOutOfAStepLeavesItsParentInside) {
  const SegmentName name;
  const auto segment = Segment::Create(name, SmallPlan(), "main").value();
  ASSERT_TRUE(segment->gate().Open().ok());
  EngineWeights engine = EngineWeights::Attach(name, 0ms).value();
  const std::uint32_t forks = EngineWeights::fork_count();
  auto step = engine.BeginStep(0ms);
  ASSERT_TRUE(step.ok());
  Child child([&] {
    if (EngineWeights::fork_count() == forks) return 1;
    { const EngineWeights::Step taken = std::move(step).value(); }
    return engine.BeginStep(0ms).ok() ? 0 : 2;
  });
  EXPECT_EQ(child.Join(), 0);
  EXPECT_EQ(EngineWeights::fork_count(), forks);
  EXPECT_FALSE(segment->gate().Close(0ms).ok());
  { const EngineWeights::Step taken = std::move(step).value(); }
  EXPECT_TRUE(segment->gate().Close(0ms).ok());
}

TEST(Engine, KnowsTheVersion) {
  const SegmentName name;
  const auto segment = Segment::Create(name, SmallPlan(), "main").value();
  const EngineWeights engine = EngineWeights::Attach(name, 0ms).value();
  EXPECT_FALSE(engine.version().serving);
  EXPECT_EQ(engine.version().lineage, "main");
  segment->CommitVersion(4, Digest{{7, 8}});
  EXPECT_TRUE(engine.version().serving);
  EXPECT_EQ(engine.version().version, 4u);
  segment->BeginApply(5);
  EXPECT_FALSE(engine.version().serving);
  EXPECT_EQ(engine.version().version, 4u);
  EXPECT_EQ(engine.version().digest, (Digest{{7, 8}}).ToHex());
  segment->CommitVersion(5, Digest{{9, 9}});
  EXPECT_EQ(engine.version().version, 5u);
  EXPECT_TRUE(engine.version().serving);
}

// A version and its digest are read as one, while the receiver writes as fast as it can.
TEST(Engine, VersionsAreNeverTorn) {
  const SegmentName name;
  const auto segment = Segment::Create(name, SmallPlan(), "main").value();
  segment->CommitVersion(1, Digest{{1, 1}});
  const EngineWeights engine = EngineWeights::Attach(name, 0ms).value();
  std::jthread writer([&](const std::stop_token& stop) {
    for (std::uint64_t i = 1; !stop.stop_requested(); i = i % limits::kVersionMax + 1) {
      segment->CommitVersion(i, Digest{{i, i}});
    }
  });
  for (int i = 0; i < 100'000; ++i) {
    const EngineVersion version = engine.version();
    if (version.digest.empty()) continue;  // The writer was put to sleep in the middle of it.
    ASSERT_EQ(version.digest, (Digest{{version.version, version.version}}).ToHex());
  }
}

TEST(Engine, LeavingTooOftenEndsTheProgram) {
  const SegmentName name;
  const auto segment = Segment::Create(name, SmallPlan(), "main").value();
  Child child([&] {
    ::close(STDERR_FILENO);
    EngineWeights::Attach(name, 0ms).value().Leave();
    return 0;
  });
  EXPECT_EQ(child.Join(), -SIGABRT);
}

}  // namespace
}  // namespace segue
