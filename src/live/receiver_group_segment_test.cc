// SPDX-License-Identifier: Apache-2.0
//
// A group of receivers over segments, killed (SIGKILL) before each thing that it writes into their
// records, in an update and in the takeover after it: whoever takes over brings all lineages to the
// versions of one update, and until then no gate opens (docs/protocol.md, section 15; case D1).
#include <gtest/gtest.h>

#include <csignal>
#include <cstring>
#include <functional>
#include <optional>
#include <thread>

#include "live/forwarding_environment.h"
#include "live/group_testing.h"
#include "live/segment.h"
#include "live/testing.h"
#include "segue/engine.h"
#include "segue/enter_all.h"
#include "segue/receiver_group.h"

namespace segue {
namespace {

using std::chrono::milliseconds;

// Kills this process before the call that `left` counts down to; 0: never.
class Fuse {
 public:
  explicit Fuse(int left) : left_(left) {}
  void Burn() {
    if (left_ != 0 && --left_ == 0) (void)::raise(SIGKILL);
  }

 private:
  int left_;
};

// The weights of a segment, in a process whose days are counted.
class MortalWeights final : public LiveWeights {
 public:
  MortalWeights(std::unique_ptr<LiveWeights> inner, Fuse& fuse)
      : inner_(std::move(inner)), fuse_(fuse) {}

  const Plan& plan() const override { return inner_->plan(); }
  void AdoptPlan(Plan plan) override { inner_->AdoptPlan(std::move(plan)); }
  const LiveMap& map() const override { return inner_->map(); }
  Gate& gate() override { return inner_->gate(); }
  Phase phase() const override { return inner_->phase(); }
  LiveVersion version() const override { return inner_->version(); }
  unsigned engine_count() const override { return inner_->engine_count(); }
  std::vector<std::string> mates() const override { return inner_->mates(); }
  void Announce(std::uint64_t target, const std::vector<std::string>& mates) override {
    fuse_.Burn();
    inner_->Announce(target, mates);
  }
  void BeginApply(std::uint64_t target) override {
    fuse_.Burn();
    inner_->BeginApply(target);
    fuse_.Burn();
  }
  void Commit(std::uint64_t version, const Digest& digest) override {
    fuse_.Burn();
    inner_->Commit(version, digest);
  }
  void SetPhase(Phase phase) override {
    fuse_.Burn();
    inner_->SetPhase(phase);
  }

 private:
  std::unique_ptr<LiveWeights> inner_;
  Fuse& fuse_;
};

class MortalEnvironment final : public ForwardingEnvironment {
 public:
  explicit MortalEnvironment(int left)
      : ForwardingEnvironment(SystemLiveEnvironment()), fuse_(left) {}

  std::unique_ptr<Device> MakeDevice(unsigned threads) override {
    return SystemLiveEnvironment().MakeDevice(threads);
  }
  Result<std::unique_ptr<LiveWeights>> OpenWeights(const std::string& name) override {
    SEGUE_ASSIGN_OR_RETURN(auto weights, SystemLiveEnvironment().OpenWeights(name));
    return Wrap(std::move(weights));
  }
  Result<std::unique_ptr<LiveWeights>> CreateWeights(const std::string& name, const Plan& plan,
                                                     const std::string& lineage) override {
    SEGUE_ASSIGN_OR_RETURN(auto weights,
                           SystemLiveEnvironment().CreateWeights(name, plan, lineage));
    return Wrap(std::move(weights));
  }

 private:
  std::unique_ptr<LiveWeights> Wrap(std::unique_ptr<LiveWeights> weights) {
    return std::make_unique<MortalWeights>(std::move(weights), fuse_);
  }
  Fuse fuse_;
};

class GroupSegmentTest : public test::GroupFixture {
 protected:
  GroupSegmentTest() {
    policy_.options.name = policy_name_;
    draft_.options.name = draft_name_;
    for (test::GroupLineage* const lineage : {&policy_, &draft_}) {
      lineage->Advance(1);
      lineage->Advance(2);
    }
    options_.lineages = {policy_.options, draft_.options};
    for (ReceiverOptions& lineage : options_.lineages) lineage.catch_up = false;
  }

  // Fresh segments at version 1 of each.
  void StartAnew() {
    ASSERT_TRUE(RemoveSegment(policy_name_).ok());
    ASSERT_TRUE(RemoveSegment(draft_name_).ok());
    auto group = ReceiverGroup::Open(options_);
    ASSERT_TRUE(group.ok()) << group.status().ToString();
    const Status updated = group.value()->Update({"s", {}, 1});
    ASSERT_TRUE(updated.ok()) << updated.ToString();
  }

  // A process that takes the segments over and goes to version 2, if it lives that long.
  static int RunInChild(const GroupOptions& options, int left, bool update) {
    return RunInChild(options, left, [update](ReceiverGroup& group) {
      return update ? group.Update({"s", {}, 2}) : Status();
    });
  }
  static int RunInChild(const GroupOptions& options, int left,
                        const std::function<Status(ReceiverGroup&)>& work) {
    return test::Child([&] {
             MortalEnvironment environment(left);
             const auto group = ReceiverInternals::Open(options, environment);
             if (!group.ok()) return 2;
             return work(*group.value()).ok() ? 0 : 3;
           })
        .Join();
  }

  static std::vector<ByteVector> BytesOf(const EngineWeights& weights) {
    std::vector<ByteVector> tensors;
    for (const EngineTensor& tensor : weights.tensors()) {
      tensors.emplace_back(tensor.data, tensor.data + tensor.size);
    }
    return tensors;
  }

  // What an engine reads that enters both gates. Both open, or it may not read.
  struct Seen {
    std::uint64_t policy = test::GroupLineage::kNone;
    std::uint64_t draft = test::GroupLineage::kNone;
  };
  std::optional<Seen> Read() {
    auto policy = EngineWeights::Attach(policy_name_, milliseconds(1000)).value();
    auto draft = EngineWeights::Attach(draft_name_, milliseconds(1000)).value();
    EngineWeights* const gates[] = {&policy, &draft};
    if (!EnterAll<EngineWeights>(gates, milliseconds(0)).ok()) return std::nullopt;
    Seen seen;
    for (std::uint64_t version = 0; version <= 2; ++version) {
      if (BytesOf(policy) == policy_.versions[version]) seen.policy = version;
      if (BytesOf(draft) == draft_.versions[version]) seen.draft = version;
    }
    EXPECT_EQ(policy.version().version, seen.policy);
    EXPECT_EQ(draft.version().version, seen.draft);
    LeaveAll<EngineWeights>(gates);
    return seen;
  }

  // Nobody reads, or both are of one update.
  void ExpectNoMix() {
    const auto seen = Read();
    if (!seen) return;
    EXPECT_EQ(seen->policy, seen->draft);
    EXPECT_TRUE(seen->policy == 1 || seen->policy == 2) << seen->policy;
  }

  test::SegmentName policy_name_{"policy"};
  test::SegmentName draft_name_{"draft"};
};

TEST_F(GroupSegmentTest, KilledBeforeEachThingThatItWrites) {
  int kills = 0;
  int ends[3] = {};
  for (int left = 1;; ++left) {
    SCOPED_TRACE("killed at " + std::to_string(left));
    StartAnew();
    const int exit = RunInChild(options_, left, /*update=*/true);
    if (exit == 0) break;
    ASSERT_EQ(exit, -SIGKILL);
    ++kills;
    ExpectNoMix();
    auto group = ReceiverGroup::Open(options_);
    ASSERT_TRUE(group.ok()) << group.status().ToString();
    const auto seen = Read();
    ASSERT_TRUE(seen) << "the gates are closed";
    EXPECT_EQ(seen->policy, seen->draft);
    ASSERT_TRUE(seen->policy == 1 || seen->policy == 2) << seen->policy;
    ++ends[seen->policy];
    // And it goes on from there.
    ASSERT_TRUE(group.value()->Update({"t", {}, 2}).ok());
    EXPECT_EQ(Read()->draft, 2u);
  }
  // Two announcements, two dues, and for each a begin (twice) and a commit.
  EXPECT_EQ(kills, 10);
  EXPECT_EQ(ends[1], 3) << "before any is due";
  EXPECT_EQ(ends[2], 7);
}

TEST_F(GroupSegmentTest, KilledAgainInTheTakeover) {
  int kills = 0;
  for (int first = 1; first <= 10; ++first) {
    for (int second = 1;; ++second) {
      SCOPED_TRACE("killed at " + std::to_string(first) + ", then at " + std::to_string(second));
      StartAnew();
      ASSERT_EQ(RunInChild(options_, first, /*update=*/true), -SIGKILL);
      const int exit = RunInChild(options_, second, /*update=*/false);
      ExpectNoMix();
      if (exit == 0) break;
      ASSERT_EQ(exit, -SIGKILL);
      ++kills;
      auto group = ReceiverGroup::Open(options_);
      ASSERT_TRUE(group.ok()) << group.status().ToString();
      const auto seen = Read();
      ASSERT_TRUE(seen);
      EXPECT_EQ(seen->policy, seen->draft);
      // What was due may not be forgotten any more.
      EXPECT_EQ(seen->policy, first <= 3 ? 1u : 2u);
    }
  }
  EXPECT_EQ(kills, 15);
}

// A chunk half written, too.
TEST_F(GroupSegmentTest, KilledInTheMiddleOfTheSecondApply) {
  StartAnew();
  ASSERT_EQ(RunInChild(options_, 9, /*update=*/true), -SIGKILL);
  {
    const auto segment = Segment::Open(draft_name_).value();
    ASSERT_EQ(segment->phase(), Phase::kApplying);
    std::memcpy(segment->view().Tensor(0), draft_.versions[2][0].data(), 2 * 65536 + 30000);
  }
  EXPECT_FALSE(Read()) << "an engine could read a mix";
  const auto group = ReceiverGroup::Open(options_);
  ASSERT_TRUE(group.ok()) << group.status().ToString();
  const auto seen = Read();
  ASSERT_TRUE(seen);
  EXPECT_EQ(seen->policy, 2u);
  EXPECT_EQ(seen->draft, 2u);
}

// Alone nobody can know what became of the others.
TEST_F(GroupSegmentTest, ASegmentInTheMiddleOfAnUpdateIsNotTakenAlone) {
  for (const int left : {2, 4, 5}) {  // The first announced; the first due; both due.
    StartAnew();
    ASSERT_EQ(RunInChild(options_, left, /*update=*/true), -SIGKILL);
    const auto alone = Receiver::Open(options_.lineages[0]);
    EXPECT_EQ(alone.status().code(), StatusCode::kUnavailable);
    EXPECT_NE(alone.status().message().find("'" + static_cast<const std::string&>(draft_name_)),
              std::string::npos)
        << alone.status().message();
    EXPECT_FALSE(Read());
    GroupOptions reversed = options_;
    std::swap(reversed.lineages[0], reversed.lineages[1]);
    ASSERT_TRUE(ReceiverGroup::Open(reversed).ok()) << "the order is not what tells";
    const auto seen = Read();
    ASSERT_TRUE(seen);
    EXPECT_EQ(seen->policy, seen->draft);
  }
}

TEST_F(GroupSegmentTest, AnUpdateOfNobodyKnowsWhomIsRefused) {
  StartAnew();
  {
    const auto segment = Segment::Open(draft_name_).value();
    ASSERT_TRUE(segment->gate().Close(milliseconds(100)).ok());
    segment->Announce(2, {});
  }
  EXPECT_EQ(ReceiverGroup::Open(options_).status().code(), StatusCode::kCorruption);
  EXPECT_FALSE(Read());
}

TEST_F(GroupSegmentTest, WhileTheStoreIsAwayNothingOpens) {
  StartAnew();
  ASSERT_EQ(RunInChild(options_, 8, /*update=*/true), -SIGKILL);  // The draft is due.
  GroupOptions lost = options_;
  for (ReceiverOptions& lineage : lost.lineages) lineage.store = directory_.File("elsewhere");
  EXPECT_FALSE(ReceiverGroup::Open(lost).ok());
  EXPECT_FALSE(Read());
  ASSERT_TRUE(ReceiverGroup::Open(options_).ok());
  EXPECT_EQ(Read()->draft, 2u);
}

TEST_F(GroupSegmentTest, APoisonedLineageLeavesAllClosedUntilARebuild) {
  StartAnew();
  ASSERT_EQ(RunInChild(options_, 9, /*update=*/true), -SIGKILL);
  {
    const auto segment = Segment::Open(draft_name_).value();
    for (int i = 0; i < 1000; ++i) segment->view().Tensor(0)[70000 + i] ^= std::byte{0x11};
  }
  EXPECT_EQ(ReceiverGroup::Open(options_).status().code(), StatusCode::kTainted);
  EXPECT_EQ(ReceiverGroup::Open(options_).status().code(), StatusCode::kTainted);
  EXPECT_FALSE(Read());
  // The other one, which is proven and at its target, does not serve alone either.
  const auto alone = Receiver::Open(options_.lineages[0]);
  EXPECT_EQ(alone.status().code(), StatusCode::kUnavailable) << alone.status().ToString();
  EXPECT_NE(alone.status().message().find("which is poisoned"), std::string::npos);
  {
    const auto policy = Segment::Open(policy_name_).value();
    EXPECT_EQ(policy->phase(), Phase::kServing);
  }
  EXPECT_FALSE(Read());
  GroupOptions rebuild = options_;
  for (ReceiverOptions& lineage : rebuild.lineages) {
    lineage.rebuild = true;
    lineage.version = 2;
    lineage.catch_up = true;
  }
  ASSERT_TRUE(ReceiverGroup::Open(rebuild).ok());
  const auto seen = Read();
  ASSERT_TRUE(seen);
  EXPECT_EQ(seen->policy, 2u);
  EXPECT_EQ(seen->draft, 2u);
}

// Of a rebuild, asked for or at the start: never one that is loaded beside another's old version.
TEST_F(GroupSegmentTest, KilledInARebuild) {
  for (const bool at_start : {false, true}) {
    GroupOptions options = options_;
    for (ReceiverOptions& lineage : options.lineages) lineage.rebuild = at_start;
    const auto rebuild = [at_start](ReceiverGroup& group) {
      return at_start ? group.Update({"s", {}, 2}) : group.Rebuild(2);
    };
    int poisoned = 0;
    for (int left = 1;; ++left) {
      SCOPED_TRACE((at_start ? "at the start, killed at " : "killed at ") + std::to_string(left));
      StartAnew();
      const int exit = RunInChild(options, left, rebuild);
      if (exit == 0) {
        EXPECT_GT(left, 15);
        break;
      }
      ASSERT_EQ(exit, -SIGKILL);
      const auto before = Read();
      EXPECT_TRUE(!before || before->policy == before->draft);
      auto group = ReceiverGroup::Open(options_);
      if (group.ok()) {
        const auto seen = Read();
        ASSERT_TRUE(seen);
        EXPECT_EQ(seen->policy, seen->draft);
        continue;
      }
      EXPECT_EQ(group.status().code(), StatusCode::kTainted);
      EXPECT_FALSE(Read());
      ++poisoned;
      GroupOptions again = options_;
      for (ReceiverOptions& lineage : again.lineages) lineage.rebuild = true;
      ASSERT_TRUE(ReceiverGroup::Open(again).ok());
      EXPECT_EQ(Read()->policy, 0u);
    }
    EXPECT_EQ(poisoned, 3) << "between the first phase poisoned and the last one loading";
  }
}

// An engine inside the first gate needs the second to get out: closing in its order lets it.
TEST_F(GroupSegmentTest, AStepThatHasEnteredTheFirstGateGetsThroughTheSecond) {
  StartAnew();
  const auto group = ReceiverGroup::Open(options_).value();
  auto policy = EngineWeights::Attach(policy_name_, milliseconds(1000)).value();
  auto draft = EngineWeights::Attach(draft_name_, milliseconds(1000)).value();
  ASSERT_TRUE(policy.Enter(milliseconds(0)).ok());
  Status updated = Unavailable("not done");
  std::jthread update([&] { updated = group->Update({"s", {}, 2}); });
  while (policy.TryEnter()) {  // Until its gate is being closed.
    policy.Leave();
    std::this_thread::sleep_for(milliseconds(1));
  }
  EXPECT_TRUE(draft.Enter(milliseconds(0)).ok()) << "closed before the first one was empty";
  EXPECT_EQ(draft.version().version, 1u);
  EXPECT_EQ(policy.version().version, 1u);
  draft.Leave();
  policy.Leave();
  update.join();
  EXPECT_TRUE(updated.ok()) << updated.ToString();
  EXPECT_EQ(Read()->draft, 2u);
}

}  // namespace
}  // namespace segue
