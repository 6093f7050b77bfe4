// SPDX-License-Identifier: Apache-2.0
//
// The gate in shared memory, both sides, in real processes that are killed at every point. The
// judge of most tests: many words that the receiver sets to one number while the gate is closed are
// all equal to whoever reads inside. No test depends on how fast anything is.
// Cases E1, E2 and E4 on this level: a pause always ends by rule, whoever dies or is late.
#include "live/shared_gate.h"

#include <gmock/gmock.h>

#include <atomic>
#include <memory>
#include <thread>
#include <vector>

#include "base/random.h"
#include "live/segment.h"
#include "live/testing.h"
#include "segue/engine.h"

namespace segue {
namespace {

using test::Child;
using test::Pipe;
using test::SegmentName;
using ::testing::HasSubstr;
using namespace std::chrono_literals;

// Long enough to never pass in a test that works.
constexpr std::chrono::milliseconds kEver = 120s;
constexpr std::size_t kWordCount = 4096;
constexpr std::uint64_t kLastVersion = 1'000'000;

Plan WordsPlan() { return Plan::Make({{"words", Dtype::kU64, {kWordCount}}}).value(); }

// Volatile: the compiler must neither merge nor leave out what a mix could show in.
void WriteWords(Segment& segment, std::uint64_t value) {
  auto* const words = reinterpret_cast<volatile std::uint64_t*>(segment.view().Tensor(0));
  for (std::size_t i = 0; i < kWordCount; ++i) words[i] = value;
}
bool WordsAreAll(const std::byte* bytes, std::uint64_t value) {
  const auto* const words = reinterpret_cast<const volatile std::uint64_t*>(bytes);
  for (std::size_t i = 0; i < kWordCount; ++i) {
    if (words[i] != value) return false;
  }
  return true;
}

// One update as a receiver does it.
Status Update(Segment& segment, std::uint64_t version) {
  SEGUE_RETURN_IF_ERROR(segment.gate().Close(kEver));
  segment.BeginApply(version);
  WriteWords(segment, version);
  segment.CommitVersion(version, Digest{{version, version}});
  return segment.gate().Open();
}

// Reads until the last version, or for `count` steps. 0 when all was well.
int ReadSteps(EngineWeights& engine, std::uint64_t count) {
  for (std::uint64_t i = 0; i < count; ++i) {
    const auto step = engine.BeginStep(kEver);
    if (!step.ok()) return 1;
    const EngineVersion version = engine.version();
    if (!version.serving) return 2;
    if (version.digest != (Digest{{version.version, version.version}}).ToHex()) return 3;
    if (!WordsAreAll(engine.tensors()[0].data, version.version)) return 4;
    if (version.version == kLastVersion) return 0;
  }
  return 0;
}

// An engine process with `thread_count` reading threads.
Child StartEngine(const std::string& name, int thread_count) {
  return Child([&name, thread_count] {
    EngineWeights engine = EngineWeights::Attach(name, kEver).value();
    std::atomic<int> result{0};
    std::vector<std::jthread> threads;
    threads.reserve(static_cast<std::size_t>(thread_count));
    for (int i = 0; i < thread_count; ++i) {
      threads.emplace_back([&] {
        const int own = ReadSteps(engine, ~0ull);
        if (own != 0) result = own;
      });
    }
    threads.clear();
    return result.load();
  });
}

// An engine process that stays inside until it is killed, or left when `leave` is signalled.
Child StartInside(const std::string& name, Pipe& inside, Pipe* leave = nullptr) {
  Child child([&name, &inside, leave] {
    EngineWeights engine = EngineWeights::Attach(name, kEver).value();
    if (!engine.Enter(kEver).ok()) return 1;
    inside.Signal();
    if (leave == nullptr) return ::pause();
    leave->Await();
    engine.Leave();
    return ::pause();
  });
  inside.Await();
  return child;
}

std::unique_ptr<Segment> Serve(const std::string& name) {
  auto segment = Segment::Create(name, WordsPlan(), "main").value();
  segment->CommitVersion(0, Digest{});
  SEGUE_CHECK(segment->gate().Open().ok());
  return segment;
}

TEST(SharedGate, ClosesAndOpens) {
  const SegmentName name;
  const auto segment = Serve(name);
  EngineWeights engine = EngineWeights::Attach(name, 0ms).value();
  for (int i = 0; i < 3; ++i) {
    EXPECT_TRUE(segment->gate().Close(0ms).ok());
    EXPECT_TRUE(segment->gate().Close(0ms).ok()) << "closing twice";
    const Status late = engine.Enter(3ms);
    EXPECT_EQ(late.code(), StatusCode::kUnavailable);
    EXPECT_THAT(late.message(), HasSubstr("still closed after 3 ms (phase serving)"));
    EXPECT_EQ(engine.Enter(0ms).code(), StatusCode::kUnavailable);
    EXPECT_EQ(engine.Enter(-5ms).code(), StatusCode::kUnavailable);
    EXPECT_TRUE(segment->gate().Open().ok());
    EXPECT_TRUE(segment->gate().Open().ok()) << "opening twice";
    EXPECT_TRUE(engine.Enter(std::chrono::milliseconds::max()).ok());
    engine.Leave();
  }
}

TEST(SharedGate, AnEngineInsideMakesTheCloseFailAndNothingElse) {
  const SegmentName name;
  const auto segment = Serve(name);
  Pipe inside, leave;
  Child engine = StartInside(name, inside, &leave);
  const Status late = segment->gate().Close(20ms);
  EXPECT_EQ(late.code(), StatusCode::kUnavailable);
  EXPECT_THAT(late.message(), HasSubstr("1 engine threads were still inside the gate after 20 ms"));
  EXPECT_FALSE(segment->gate().closed());
  EXPECT_FALSE(segment->gate().Close(0ms).ok());
  leave.Signal();
  EXPECT_TRUE(segment->gate().Close(kEver).ok());
}

TEST(SharedGate, ACloseThatFailsWakesThoseWhoWaited) {
  const SegmentName name;
  const auto segment = Serve(name);
  Pipe inside;
  Child engine = StartInside(name, inside);
  for (int i = 0; i < 10; ++i) {
    // Arrives before, while or after the gate is closed; it must get in each time.
    std::jthread waiter([&name] {
      EngineWeights other = EngineWeights::Attach(name, 0ms).value();
      EXPECT_TRUE(other.Enter(kEver).ok());
      other.Leave();
    });
    EXPECT_FALSE(segment->gate().Close(5ms).ok());
  }
}

TEST(SharedGate, AClosedGateStaysClosedWhenClosingAgainFails) {
  const SegmentName name;
  const auto segment = Serve(name);
  Pipe inside, leave;
  Child engine = StartInside(name, inside, &leave);
  SharedMemory object = SharedMemory::Open(name).value();
  const SharedMapping head =
      SharedMapping::Map(object, 0, kSlotsOffset, SharedMapping::Mode::kReadWrite).value();
  SegmentWords(head.data()).gate().store(kGateClosed);  // As a receiver that died has left it.
  EXPECT_FALSE(segment->gate().Close(5ms).ok());
  EXPECT_TRUE(segment->gate().closed());
  leave.Signal();
  EXPECT_TRUE(segment->gate().Close(kEver).ok());
}

TEST(SharedGate, ADeadEngineIsNotWaitedFor) {
  const SegmentName name;
  const auto segment = Serve(name);
  Pipe inside;
  Child first = StartInside(name, inside);
  Child second = StartInside(name, inside);
  first.Kill();
  EXPECT_FALSE(segment->gate().Close(20ms).ok()) << "the second one lives";
  second.Kill();
  EXPECT_TRUE(segment->gate().Close(0ms).ok());
  EXPECT_EQ(segment->engine_count(), 0u);
}

TEST(SharedGate, AnEngineDiesWhileItIsWaitedFor) {
  const SegmentName name;
  const auto segment = Serve(name);
  Pipe inside;
  Child engine = StartInside(name, inside);
  std::jthread killer([&] {
    while (!segment->gate().closed()) std::this_thread::yield();
    engine.Kill();
  });
  EXPECT_TRUE(segment->gate().Close(kEver).ok());
}

TEST(SharedGate, EnginesAreKilledAnywhere) {
  const SegmentName name;
  const auto segment = Serve(name);
  Random random(7);
  std::uint64_t version = 0;
  for (int i = 0; i < 30; ++i) {
    Child victim = StartEngine(name, 2);
    while (segment->engine_count() == 0) std::this_thread::yield();
    const std::uint64_t update_count = random.Below(4);
    for (std::uint64_t n = 0; n < update_count; ++n) {
      ASSERT_TRUE(Update(*segment, ++version).ok());
    }
    victim.Kill();
    ASSERT_TRUE(Update(*segment, ++version).ok());
    EXPECT_EQ(segment->engine_count(), 0u);
  }
}

// Readers without a pause do not starve the writer, and none ever sees a mix.
TEST(SharedGate, NobodySeesAMix) {
  const SegmentName name;
  const auto segment = Serve(name);
  std::vector<Child> engines;
  engines.reserve(3);
  for (int i = 0; i < 3; ++i) engines.push_back(StartEngine(name, 2));
  while (segment->engine_count() != 3) std::this_thread::yield();
  for (std::uint64_t version = 1; version <= 500; ++version) {
    ASSERT_TRUE(Update(*segment, version).ok());
  }
  ASSERT_TRUE(Update(*segment, kLastVersion).ok());
  for (Child& engine : engines) EXPECT_EQ(engine.Join(), 0);
}

TEST(SharedGate, ADeadReceiverLeavesTheGateClosed) {
  const SegmentName name;
  Pipe closed;
  Child receiver([&] {
    const auto segment = Serve(name);
    SEGUE_CHECK(segment->gate().Close(kEver).ok());
    segment->BeginApply(9);
    closed.Signal();
    return ::pause();
  });
  closed.Await();
  receiver.Kill();
  EngineWeights engine = EngineWeights::Attach(name, 0ms).value();
  EXPECT_THAT(engine.Enter(5ms).message(), HasSubstr("(phase applying; no receiver lives)"));
  const auto next = Segment::Open(name).value();
  EXPECT_EQ(next->phase(), Phase::kApplying);
  EXPECT_EQ(next->version().target_version, 9u);
  ASSERT_TRUE(Update(*next, 9).ok());
  EXPECT_EQ(ReadSteps(engine, 1), 0);
}

// The receiver is killed anywhere in its updates. Engines read on before and after, never a mix;
// the next receiver finds a closed gate unless the words are whole.
TEST(SharedGate, ReceiversAreKilledAnywhere) {
  const SegmentName name;
  { const auto segment = Serve(name); }
  std::vector<Child> engines;
  engines.reserve(2);
  for (int i = 0; i < 2; ++i) engines.push_back(StartEngine(name, 1));
  Random random(8);
  for (std::uint64_t i = 0; i < 30; ++i) {
    Pipe begun;
    Child receiver([&] {
      const auto segment = Segment::Open(name).value();
      for (std::uint64_t version = i * 1000;; ++version) {
        if (version == i * 1000 + 1) begun.Signal();
        SEGUE_CHECK(Update(*segment, version % kLastVersion).ok());
      }
      return 0;
    });
    begun.Await();
    std::this_thread::sleep_for(std::chrono::microseconds(random.Below(500)));
    receiver.Kill();
    const auto next = Segment::Open(name).value();
    const LiveVersion found = next->version();
    const std::byte* const words = next->view().Tensor(0);
    if (next->phase() == Phase::kServing) {
      EXPECT_TRUE(WordsAreAll(words, found.version));
      EXPECT_EQ(found.digest, (Digest{{found.version, found.version}}));
    } else {
      EXPECT_TRUE(next->gate().closed());
      const bool proven = found.version == found.target_version;
      EXPECT_TRUE(!proven || WordsAreAll(words, found.target_version));
    }
    ASSERT_TRUE(Update(*next, i * 1000).ok());
  }
  ASSERT_TRUE(Update(*Segment::Open(name).value(), kLastVersion).ok());
  for (Child& engine : engines) EXPECT_EQ(engine.Join(), 0);
}

// Found by a user: engines of a removed segment went on with its old weights for ever.
TEST(SharedGate, ARemovedSegmentIsNotEnteredAnyMore) {
  const SegmentName name;
  auto segment = Segment::Create(name, WordsPlan(), "main").value();
  ASSERT_TRUE(segment->gate().Open().ok());
  EngineWeights engine = EngineWeights::Attach(name, 0ms).value();
  ASSERT_TRUE(engine.Enter(0ms).ok());
  ASSERT_TRUE(Segment::Remove(name).ok());
  engine.Leave();  // The step that ran ends as any.
  EXPECT_EQ(engine.Enter(1h).code(), StatusCode::kNotFound);
  EXPECT_FALSE(engine.TryEnter());
  EXPECT_EQ(segment->gate().Open().code(), StatusCode::kNotFound);
  EXPECT_EQ(segment->gate().Close(1h).code(), StatusCode::kNotFound);
  EXPECT_TRUE(segment->gate().closed());
  EXPECT_EQ(engine.Enter(1h).code(), StatusCode::kNotFound) << "nobody opened it";
  segment = Segment::Create(name, WordsPlan(), "main").value();
  ASSERT_TRUE(segment->gate().Open().ok());
  engine = EngineWeights::Attach(name, 0ms).value();
  ASSERT_TRUE(engine.Enter(0ms).ok());
  engine.Leave();
}

TEST(SharedGate, WhoWaitsAtARemovedSegmentIsWoken) {
  const SegmentName name;
  const auto segment = Segment::Create(name, WordsPlan(), "main").value();
  Pipe attached;
  Child engine([&] {
    EngineWeights weights = EngineWeights::Attach(name, kEver).value();
    attached.Signal();
    return weights.Enter(kEver).code() == StatusCode::kNotFound ? 0 : 1;
  });
  attached.Await();
  std::this_thread::sleep_for(3ms);  // Either order is right.
  ASSERT_TRUE(Segment::Remove(name).ok());
  EXPECT_EQ(engine.Join(), 0);
}

// Whoever removed it was killed when the gate was closed for good and the name still there.
TEST(SharedGate, ARemovalThatWasCutOffIsFinished) {
  const SegmentName name;
  {
    const auto segment = Segment::Create(name, WordsPlan(), "main").value();
    const SharedMemory object = SharedMemory::Open(name).value();
    const auto head =
        SharedMapping::Map(object, 0, kSlotsOffset, SharedMapping::Mode::kReadWrite).value();
    SharedGate::CloseForGood(SegmentWords(head.data()));
  }
  EXPECT_EQ(EngineWeights::Attach(name, 5ms).status().code(), StatusCode::kNotFound);
  EXPECT_EQ(Segment::Open(name).status().code(), StatusCode::kNotFound);
  EXPECT_TRUE(Segment::Create(name, WordsPlan(), "main").ok());
}

// By somebody who does not know of gates: told at the deadline.
TEST(SharedGate, ASegmentWithoutItsNameIsNotWaitedFor) {
  const SegmentName name;
  auto segment = Segment::Create(name, WordsPlan(), "main").value();
  EngineWeights engine = EngineWeights::Attach(name, 0ms).value();
  ASSERT_TRUE(SharedMemory::Remove(name).ok());
  segment.reset();
  EXPECT_EQ(engine.Enter(5ms).code(), StatusCode::kNotFound);
}

}  // namespace
}  // namespace segue
