// SPDX-License-Identifier: Apache-2.0
//
// Segment: life cycle, names, who may have it when, and what a crash leaves. Cases E7 (not ready
// before the version is proven) and E9 (names, another segment) on this level.
#include "live/segment.h"

#include <gmock/gmock.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/statvfs.h>

#include <algorithm>
#include <cstring>
#include <string>

#include "base/file.h"
#include "live/testing.h"
#include "segue/engine.h"

namespace segue {
namespace {

using test::Child;
using test::Pipe;
using test::SegmentName;
using test::SmallPlan;
using ::testing::HasSubstr;
using namespace std::chrono_literals;

TEST(Segment, BeginsLoadingWithTheGateClosed) {
  const SegmentName name;
  const auto segment = Segment::Create(name, SmallPlan(), "main").value();
  EXPECT_EQ(segment->phase(), Phase::kLoading);
  EXPECT_TRUE(segment->gate().closed());
  EXPECT_EQ(segment->engine_count(), 0u);
  const LiveVersion version = segment->version();
  EXPECT_EQ(version.lineage, "main");
  EXPECT_EQ(version.version, 0u);
  EXPECT_EQ(version.applied_count, 0u);
}

TEST(Segment, RefusesNames) {
  const std::string bad[] = {"",    ".",    "..",      ".a",
                             "a/b", "/a",   "a b",     std::string("a\0b", 3),
                             "a\n", "\xc3", "../../x", std::string(65, 'a')};
  for (const std::string& name : bad) {
    EXPECT_EQ(Segment::Create(name, SmallPlan(), "main").status().code(),
              StatusCode::kInvalidArgument);
    EXPECT_EQ(Segment::Open(name).status().code(), StatusCode::kInvalidArgument);
    EXPECT_EQ(Segment::Remove(name).code(), StatusCode::kInvalidArgument);
    EXPECT_EQ(EngineWeights::Attach(name, 0ms).status().code(), StatusCode::kInvalidArgument);
  }
}

TEST(Segment, TakesEveryAllowedName) {
  const SegmentName label;
  std::string longest = label;
  longest += "._-AZaz09";
  longest.resize(64, 'x');
  ASSERT_TRUE(Segment::Create(longest, SmallPlan(), "main").ok());
  EXPECT_TRUE(Segment::Remove(longest).ok());
  EXPECT_EQ(Segment::Open(longest).status().code(), StatusCode::kNotFound);
}

TEST(Segment, RefusesSlotCountsAndLineages) {
  const SegmentName name;
  for (const unsigned count : {0u, 1025u, ~0u}) {
    EXPECT_EQ(Segment::Create(name, SmallPlan(), "main", count).status().code(),
              StatusCode::kInvalidArgument);
  }
  EXPECT_FALSE(Segment::Create(name, SmallPlan(), "").ok());
  EXPECT_FALSE(Segment::Create(name, SmallPlan(), "a/b").ok());
  EXPECT_EQ(Segment::Open(name).status().code(), StatusCode::kNotFound);
  EXPECT_TRUE(Segment::Create(name, SmallPlan(), "main", 1024).ok());
}

TEST(Segment, HasOneReceiver) {
  const SegmentName name;
  auto segment = Segment::Create(name, SmallPlan(), "main").value();
  EXPECT_EQ(Segment::Create(name, SmallPlan(), "main").status().code(), StatusCode::kUnavailable);
  EXPECT_EQ(Segment::Open(name).status().code(), StatusCode::kUnavailable);
  segment.reset();
  const Status taken = Segment::Create(name, SmallPlan(), "main").status();
  EXPECT_EQ(taken.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(taken.message(), HasSubstr("open it to go on with its weights, or remove it first"));
  EXPECT_TRUE(Segment::Open(name).ok());
}

TEST(Segment, TensorsAreAlignedApartAndLast) {
  const SegmentName name;
  const Plan plan = SmallPlan();
  auto segment = Segment::Create(name, plan, "main").value();
  MutableModelView view = segment->view();
  ASSERT_EQ(view.tensor_count(), plan.tensors().size());
  for (std::size_t i = 0; i < view.tensor_count(); ++i) {
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(view.Tensor(i)) % 256, 0u);
    std::memset(view.Tensor(i), static_cast<int>(i + 1), plan.tensors()[i].size);
  }
  segment->CollapseToHugePages();
  segment.reset();
  segment = Segment::Open(name).value();
  EXPECT_EQ(segment->plan().digest(), plan.digest());
  view = segment->view();
  for (std::size_t i = 0; i < view.tensor_count(); ++i) {
    const std::byte* const begin = view.Tensor(i);
    EXPECT_TRUE(std::all_of(begin, begin + plan.tensors()[i].size,
                            [i](std::byte byte) { return byte == std::byte(i + 1); }));
  }
}

TEST(Segment, PlanWithoutBytes) {
  const SegmentName name;
  auto segment = Segment::Create(name, Plan::Make({}).value(), "main").value();
  EXPECT_EQ(segment->view().tensor_count(), 0u);
  EXPECT_TRUE(EngineWeights::Attach(name, 0ms).value().tensors().empty());
}

TEST(Segment, KeepsVersionAndPhase) {
  const SegmentName name;
  auto segment = Segment::Create(name, SmallPlan(), "main").value();
  segment->CommitVersion(3, Digest{{1, 2}});
  EXPECT_EQ(segment->phase(), Phase::kServing);
  EXPECT_EQ(segment->version().applied_count, 0u) << "loading is not an apply";
  segment->BeginApply(7);
  EXPECT_EQ(segment->phase(), Phase::kApplying);
  EXPECT_EQ(segment->version().version, 3u);
  EXPECT_EQ(segment->version().digest, (Digest{{1, 2}}));
  segment.reset();

  segment = Segment::Open(name).value();
  EXPECT_EQ(segment->phase(), Phase::kApplying);
  EXPECT_EQ(segment->version().target_version, 7u);
  segment->CommitVersion(7, Digest{{5, 6}});
  segment->SetPhase(Phase::kPoisoned);
  segment.reset();

  segment = Segment::Open(name).value();
  EXPECT_EQ(segment->phase(), Phase::kPoisoned);
  const LiveVersion version = segment->version();
  EXPECT_EQ(version.version, 7u);
  EXPECT_EQ(version.target_version, 7u);
  EXPECT_EQ(version.digest, (Digest{{5, 6}}));
  EXPECT_EQ(version.applied_count, 1u);
}

TEST(Segment, OpensAfterItsReceiverWasKilled) {
  const SegmentName name;
  Pipe ready;
  Child receiver([&] {
    const auto segment = Segment::Create(name, SmallPlan(), "main").value();
    ready.Signal();
    return ::pause();
  });
  ready.Await();
  EXPECT_EQ(Segment::Open(name).status().code(), StatusCode::kUnavailable);
  receiver.Kill();
  EXPECT_TRUE(Segment::Open(name).value()->gate().closed());
}

TEST(Segment, UnfinishedOneIsRefusedUntilRemoved) {
  const SegmentName name;
  ASSERT_TRUE(SharedMemory::Create(name).ok());
  const Status status = Segment::Open(name).status();
  EXPECT_EQ(status.code(), StatusCode::kCorruption);
  EXPECT_THAT(status.message(), HasSubstr("remove it"));
  ASSERT_TRUE(Segment::Remove(name).ok());
  EXPECT_TRUE(Segment::Create(name, SmallPlan(), "main").ok());
}

TEST(Segment, RemoveTwice) {
  const SegmentName name;
  const auto segment = Segment::Create(name, SmallPlan(), "main").value();
  EXPECT_TRUE(Segment::Remove(name).ok());
  EXPECT_TRUE(Segment::Remove(name).ok());
  EXPECT_TRUE(Segment::Create(name, SmallPlan(), "main").ok()) << "the old one is another object";
}

Plan PlanOfBytes(std::uint64_t size) { return Plan::Make({{"a", Dtype::kU8, {size}}}).value(); }

TEST(Segment, LargerThanSharedMemory) {
  struct statvfs info {};
  if (::statvfs("/dev/shm", &info) != 0 || info.f_blocks == 0 ||
      info.f_blocks > (limits::kTensorSizeMax >> 1) / info.f_frsize) {
    GTEST_SKIP() << "shared memory has no limit here";
  }
  const SegmentName name;
  const Status status = Segment::Create(name, PlanOfBytes(limits::kTensorSizeMax), "main").status();
  EXPECT_EQ(status.code(), StatusCode::kResourceExhausted) << status.ToString();
  EXPECT_EQ(Segment::Open(name).status().code(), StatusCode::kNotFound);
}

// In mount namespaces of their own: shared memory of 8 MiB, of which a part is taken.
constexpr int kSkipped = 77;
int CreateInSmallMemory(const std::string& name) {
  const bool alone = ::unshare(CLONE_NEWNS) == 0 || ::unshare(CLONE_NEWUSER | CLONE_NEWNS) == 0;
  if (!alone || ::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
      ::mount("tmpfs", "/dev/shm", "tmpfs", 0, "size=8m") != 0) {
    return kSkipped;
  }
  const auto first = Segment::Create(name + "-1", PlanOfBytes(1 << 20), "main");
  if (!first.ok()) return 1;
  const auto second = Segment::Create(name + "-2", PlanOfBytes(5 << 20), "main");
  if (second.status().code() != StatusCode::kResourceExhausted) return 2;
  if (Segment::Open(name + "-2").status().code() != StatusCode::kNotFound) return 3;
  const auto third = Segment::Create(name + "-3", PlanOfBytes(2 << 20), "main");
  if (!third.ok()) return 4;
  std::memset(third.value()->view().Tensor(0), 1, 2 << 20);
  return 0;
}

TEST(Segment, SharedMemoryThatIsPartlyTaken) {
  const SegmentName name;
  Child child([&] { return CreateInSmallMemory(name); });
  const int result = child.Join();
  if (result == kSkipped) GTEST_SKIP() << "no mount namespaces here";
  EXPECT_EQ(result, 0);
}

std::size_t MappingCount() {
  const ByteVector maps = ReadFile("/proc/self/maps", 64 << 20).value();
  return static_cast<std::size_t>(std::count(maps.begin(), maps.end(), std::byte('\n')));
}

TEST(Segment, LeavesNoDescriptorsAndMappings) {
  const SegmentName name;
  const auto cycle = [&] {
    {
      const auto segment = Segment::Create(name, SmallPlan(), "main").value();
      EXPECT_FALSE(Segment::Create(name, SmallPlan(), "main").ok());
      EXPECT_FALSE(Segment::Open(name).ok());
      const EngineWeights engine = EngineWeights::Attach(name, 0ms).value();
      EngineWeights other = EngineWeights::Attach(name, 0ms).value();
      other = EngineWeights::Attach(name, 0ms).value();
    }
    EXPECT_TRUE(Segment::Open(name).ok());
    EXPECT_TRUE(Segment::Remove(name).ok());
    EXPECT_FALSE(Segment::Open(name).ok());
    EXPECT_FALSE(EngineWeights::Attach(name, 0ms).ok());
  };
  cycle();
  const auto descriptors = ListDirectory("/proc/self/fd").value().size();
  const std::size_t mappings = MappingCount();
  constexpr int kCycleCount = 40;
  for (int i = 0; i < kCycleCount; ++i) cycle();
  EXPECT_EQ(ListDirectory("/proc/self/fd").value().size(), descriptors);
  EXPECT_LT(MappingCount(), mappings + kCycleCount / 2);
}

}  // namespace
}  // namespace segue
