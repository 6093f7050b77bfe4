// SPDX-License-Identifier: Apache-2.0
//
// Publish and apply on real files: chains, retention, wrong bases, links and layouts. Every test
// ends by comparing files with the trainer's.
#include <sys/stat.h>
#include <unistd.h>

#include <thread>

#include "base/file.h"
#include "delta/manifest.h"
#include "segue/inspect.h"
#include "store/store.h"
#include "sync/testing.h"

namespace segue {
namespace {

using test::ApplyOf;
using test::CopyOf;
using test::PublishOf;
using test::SameFiles;

class PublishApplyTest : public testing::Test {
 protected:
  // Publishes the trainer's next version.
  PublishReport Advance(std::uint64_t seed, std::uint64_t every = 500) {
    trainer_.Step(seed, every);
    return PublishLast();
  }
  PublishReport PublishLast() {
    auto report = Publish(Options());
    EXPECT_TRUE(report.ok()) << report.status().ToString();
    return report.ok() ? report.value() : PublishReport();
  }
  PublishOptions Options() const {
    return PublishOf(store_, trainer_.Directory(trainer_.version() - 1),
                     trainer_.Directory(trainer_.version()));
  }
  std::string Engine(std::uint64_t version) {
    return CopyOf(trainer_.Directory(version),
                  directory_.File("engine" + std::to_string(engines_++)));
  }

  test::TemporaryDirectory directory_;
  test::MiniTrainer trainer_{directory_.path()};
  std::string store_ = directory_.File("store");
  int engines_ = 0;
};

TEST_F(PublishApplyTest, EveryProfileInPlaceAndToOutput) {
  for (const char* profile : {"sparse-zstd", "snappy-zstd", "lz4-zstd", "zstd"}) {
    trainer_.Step(7);
    PublishOptions options = Options();
    options.profile = profile;
    ASSERT_TRUE(Publish(options).ok());
  }
  const std::string engine = Engine(0);
  for (std::uint64_t version = 1; version <= 4; ++version) {
    ApplyOptions options = ApplyOf(store_, engine);
    options.to = version;
    const auto report = Apply(options);
    ASSERT_TRUE(report.ok()) << report.status().ToString();
    EXPECT_EQ(report.value().path, std::vector<std::uint64_t>{version});
    EXPECT_TRUE(SameFiles(trainer_.Directory(version), engine));
  }
  ApplyOptions options = ApplyOf(store_, trainer_.Directory(0));
  options.output = directory_.File("output");
  ASSERT_TRUE(Apply(options).ok());
  EXPECT_TRUE(SameFiles(trainer_.Directory(4), options.output));
  EXPECT_FALSE(FileExists(options.output + ".segue-part"));
}

// One combined step from wherever the checkpoint stands.
TEST_F(PublishApplyTest, CombinedStep) {
  for (std::uint64_t seed = 1; seed <= 5; ++seed) Advance(seed, seed == 3 ? 3 : 500);
  for (std::uint64_t from = 0; from < 5; ++from) {
    const std::string engine = Engine(from);
    const auto report = Apply(ApplyOf(store_, engine));
    ASSERT_TRUE(report.ok()) << report.status().ToString();
    EXPECT_EQ(report.value().path.size(), 5 - from);
    EXPECT_TRUE(SameFiles(trainer_.Directory(5), engine)) << from;
  }
}

// case D7: nothing changed is a version like any other.
TEST_F(PublishApplyTest, EmptyVersion) {
  Advance(1);
  const std::string same = CopyOf(trainer_.Directory(1), directory_.File("same"));
  const auto empty = Publish(PublishOf(store_, trainer_.Directory(1), same));
  ASSERT_TRUE(empty.ok()) << empty.status().ToString();
  EXPECT_EQ(empty.value().target_version, 2u);
  EXPECT_EQ(empty.value().changed_elements, 0u);
  const std::string engine = Engine(1);
  const auto report = Apply(ApplyOf(store_, engine));
  ASSERT_TRUE(report.ok()) << report.status().ToString();
  EXPECT_EQ(report.value().target_version, 2u);
  trainer_.Step(9, 1u << 30);
  const auto third = Publish(PublishOf(store_, same, trainer_.Directory(2)));
  ASSERT_TRUE(third.ok()) << third.status().ToString();
  EXPECT_EQ(third.value().base_version, 2u);
  ASSERT_TRUE(Apply(ApplyOf(store_, engine)).ok());
  EXPECT_TRUE(SameFiles(trainer_.Directory(2), engine));
}

// case D2: a base that was never published is refused, and nothing is left that a reader could see.
TEST_F(PublishApplyTest, UnpublishedBase) {
  Advance(1);
  trainer_.Step(2);  // Never published.
  trainer_.Step(3);
  const auto refused = Publish(Options());
  ASSERT_EQ(refused.status().code(), StatusCode::kVersionMismatch);
  const auto caught_up = Publish(PublishOf(store_, trainer_.Directory(1), trainer_.Directory(3)));
  ASSERT_TRUE(caught_up.ok());
  EXPECT_EQ(caught_up.value().base_version, 1u);
  EXPECT_EQ(caught_up.value().target_version, 2u);
}

// case D5: a number is never used twice for other content; the same content again is a success.
TEST_F(PublishApplyTest, NumberReused) {
  Advance(1);
  Advance(2);
  PublishOptions again = Options();
  again.version = 2;
  const auto same = Publish(again);
  ASSERT_TRUE(same.ok()) << same.status().ToString();
  EXPECT_TRUE(same.value().already_published);
  trainer_.Step(3);
  PublishOptions other = PublishOf(store_, trainer_.Directory(1), trainer_.Directory(3));
  other.version = 2;
  EXPECT_EQ(Publish(other).status().code(), StatusCode::kInvalidArgument);
  other = PublishOf(store_, trainer_.Directory(0), trainer_.Directory(3));
  other.version = 1;
  EXPECT_EQ(Publish(other).status().code(), StatusCode::kInvalidArgument);
}

// The newest step once more, without a number: it keeps the one that it has.
TEST_F(PublishApplyTest, NewestStepPublishedAgain) {
  Advance(1);
  Advance(2);
  const auto again = Publish(Options());
  ASSERT_TRUE(again.ok()) << again.status().ToString();
  EXPECT_TRUE(again.value().already_published);
  EXPECT_EQ(again.value().target_version, 2u);
  EXPECT_EQ(again.value().base_version, 1u);
  EXPECT_TRUE(again.value().warnings.empty());
  EXPECT_EQ(Advance(3).target_version, 3u);
}

// case D5: a trainer that went back says so, publishes under the next number, and is told what that
// means.
TEST_F(PublishApplyTest, TrainerWentBack) {
  Advance(1);
  Advance(2);
  const std::string ahead = Engine(2);
  const std::string behind = Engine(1);
  trainer_.Step(9);
  PublishOptions options = PublishOf(store_, trainer_.Directory(1), trainer_.Directory(3));
  EXPECT_EQ(Publish(options).status().code(), StatusCode::kInvalidArgument);
  options.allow_branch = true;
  const auto branch = Publish(options);
  ASSERT_TRUE(branch.ok()) << branch.status().ToString();
  EXPECT_EQ(branch.value().target_version, 3u);
  EXPECT_EQ(branch.value().base_version, 1u);
  ASSERT_EQ(branch.value().warnings.size(), 1u);
  EXPECT_NE(branch.value().warnings[0].find("not from the newest, 2"), std::string::npos);
  const auto refused = Apply(ApplyOf(store_, ahead));
  EXPECT_EQ(refused.status().code(), StatusCode::kVersionMismatch) << refused.status().ToString();
  EXPECT_TRUE(SameFiles(trainer_.Directory(2), ahead));
  ASSERT_TRUE(Apply(ApplyOf(store_, behind)).ok());
  EXPECT_TRUE(SameFiles(trainer_.Directory(3), behind));
}

// case D3: retention and restart meet.
TEST_F(PublishApplyTest, PrunedChain) {
  for (std::uint64_t version = 1; version <= 12; ++version) {
    trainer_.Step(version);
    PublishOptions options = Options();
    options.retain = 5;
    ASSERT_TRUE(Publish(options).ok());
  }
  const std::string fresh = Engine(0);
  const auto refused = Apply(ApplyOf(store_, fresh));
  EXPECT_EQ(refused.status().code(), StatusCode::kNotFound);
  EXPECT_NE(refused.status().message().find("version 7 "), std::string::npos)
      << refused.status().message();
  EXPECT_TRUE(SameFiles(trainer_.Directory(0), fresh));
  const std::string late = Engine(7);
  ASSERT_TRUE(Apply(ApplyOf(store_, late)).ok());
  EXPECT_TRUE(SameFiles(trainer_.Directory(12), late));
  ASSERT_TRUE(RemoveFile(JoinPath(store_, object_name::Version("default", 11))).ok());
  const std::string broken = Engine(9);
  const auto gap = Apply(ApplyOf(store_, broken));
  EXPECT_EQ(gap.status().code(), StatusCode::kNotFound);
  EXPECT_NE(gap.status().message().find("version 11 "), std::string::npos);
  EXPECT_TRUE(SameFiles(trainer_.Directory(9), broken));
}

// case D9: one bit of the base differs, in a touched and in an untouched place.
TEST_F(PublishApplyTest, WrongBase) {
  Advance(1);
  for (const std::uint64_t offset : {std::uint64_t{5000}, std::uint64_t{500000}}) {
    const std::string engine = Engine(0);
    const std::string shard = JoinPath(engine, test::ShardName(0, 2));
    {
      MappedFile file = MappedFile::Open(shard, MappedFile::Mode::kReadWrite).value();
      file.mutable_bytes()[offset] ^= std::byte{4};
    }
    const std::string before = CopyOf(engine, engine + "-before");
    EXPECT_EQ(Apply(ApplyOf(store_, engine)).status().code(), StatusCode::kVersionMismatch);
    EXPECT_TRUE(SameFiles(before, engine));
    EXPECT_FALSE(FileExists(JoinPath(engine, ".segue/apply")));
  }
}

// case D9, with the state believed: what changes is still proven.
TEST_F(PublishApplyTest, TrustedStateStillProvesWhatChanges) {
  Advance(1);
  Advance(2, 2);
  const std::string engine = Engine(0);
  ApplyOptions options = ApplyOf(store_, engine);
  options.to = 1;
  ASSERT_TRUE(Apply(options).ok());
  {
    MappedFile file =
        MappedFile::Open(JoinPath(engine, test::ShardName(0, 2)), MappedFile::Mode::kReadWrite)
            .value();
    for (std::uint64_t i = 4000; i < 4100; ++i) file.mutable_bytes()[i] ^= std::byte{64};
  }
  const std::string before = CopyOf(engine, engine + "-before");
  options.to = 2;
  options.trust_state = true;
  const auto refused = Apply(options);
  EXPECT_EQ(refused.status().code(), StatusCode::kVersionMismatch) << refused.status().ToString();
  EXPECT_NE(refused.status().message().find("a.weight"), std::string::npos);
  EXPECT_TRUE(SameFiles(before, engine));
}

// case C4: another dtype, shape or name is refused and nothing becomes visible.
TEST_F(PublishApplyTest, OtherPlan) {
  Advance(1);
  trainer_.tensors()[0].spec.shape = {1000, 300};
  trainer_.Step(2);
  const auto refused = Publish(Options());
  EXPECT_EQ(refused.status().code(), StatusCode::kInvalidArgument);
  EXPECT_NE(refused.status().message().find("a.weight"), std::string::npos);
}

// case E9: a checkpoint of another model is refused before any write.
TEST_F(PublishApplyTest, OtherModel) {
  Advance(1);
  const std::string other = directory_.File("other");
  ASSERT_TRUE(MakeDirectories(other).ok());
  test::WriteSafetensors(JoinPath(other, "model.safetensors"),
                         {test::RandomTensor({"a.weight", Dtype::kBF16, {600, 1000}}, 1)});
  EXPECT_EQ(Apply(ApplyOf(store_, other)).status().code(), StatusCode::kInvalidArgument);
}

// case C6: the same tensors laid out in other files.
TEST_F(PublishApplyTest, LayoutMoves) {
  Advance(1);
  const std::string moved = directory_.File("moved");
  ASSERT_TRUE(MakeDirectories(moved).ok());
  const auto& t = trainer_.tensors();
  test::WriteShardedCheckpoint(moved, {{t[4]}, {t[2], t[1]}, {t[0], t[3]}}, {{"step", "2"}});
  const auto report = Publish(PublishOf(store_, trainer_.Directory(1), moved));
  ASSERT_TRUE(report.ok()) << report.status().ToString();
  EXPECT_EQ(report.value().changed_elements, 0u);
  const std::string engine = Engine(0);
  EXPECT_EQ(Apply(ApplyOf(store_, engine)).status().code(), StatusCode::kInvalidArgument);
  EXPECT_TRUE(SameFiles(trainer_.Directory(0), engine));
  ApplyOptions options = ApplyOf(store_, engine);
  options.output = directory_.File("output");
  ASSERT_TRUE(Apply(options).ok());
  EXPECT_TRUE(SameFiles(moved, options.output));
}

// A version whose own manifest is pruned is still known as the base of the next, layout included.
TEST_F(PublishApplyTest, LayoutOfPrunedBase) {
  Advance(1);
  const std::string moved = directory_.File("moved");
  ASSERT_TRUE(MakeDirectories(moved).ok());
  test::WriteShardedCheckpoint(moved, {trainer_.tensors()}, {{"step", "2"}});
  ASSERT_TRUE(Publish(PublishOf(store_, trainer_.Directory(1), moved)).ok());
  trainer_.Step(3);
  PublishOptions last = PublishOf(store_, moved, trainer_.Directory(2));
  last.retain = 1;
  ASSERT_TRUE(Publish(last).ok());
  ApplyOptions options = ApplyOf(store_, moved);
  options.to = 2;
  options.output = directory_.File("output");
  const auto report = Apply(options);
  ASSERT_TRUE(report.ok()) << report.status().ToString();
  EXPECT_TRUE(SameFiles(moved, options.output));
}

// Hard links and the symlinked snapshots of a Hugging Face cache keep their bytes.
TEST_F(PublishApplyTest, SharedFiles) {
  Advance(1);
  const std::string blobs = CopyOf(trainer_.Directory(0), directory_.File("blobs"));
  const std::string engine = directory_.File("snapshot");
  ASSERT_TRUE(MakeDirectories(engine).ok());
  ASSERT_EQ(::link(JoinPath(blobs, test::ShardName(0, 2)).c_str(),
                   JoinPath(engine, test::ShardName(0, 2)).c_str()),
            0);
  ASSERT_EQ(::symlink(("../blobs/" + test::ShardName(1, 2)).c_str(),
                      JoinPath(engine, test::ShardName(1, 2)).c_str()),
            0);
  ASSERT_EQ(::symlink((std::string("../blobs/") + kIndexFileName).c_str(),
                      JoinPath(engine, kIndexFileName).c_str()),
            0);
  const auto report = Apply(ApplyOf(store_, engine));
  ASSERT_TRUE(report.ok()) << report.status().ToString();
  EXPECT_TRUE(SameFiles(trainer_.Directory(1), engine));
  EXPECT_TRUE(SameFiles(trainer_.Directory(0), blobs));
}

// case G7: several owners; the version appears once, after all are done.
TEST_F(PublishApplyTest, SeveralOwners) {
  trainer_.Step(1);
  std::vector<std::jthread> owners;
  for (std::uint32_t owner = 0; owner < 4; ++owner) {
    owners.emplace_back([this, owner] {
      PublishOptions options = Options();
      options.version = 1;
      options.owner = owner;
      options.owner_count = 4;
      options.session = "run1";
      const auto report = Publish(options);
      EXPECT_TRUE(report.ok()) << report.status().ToString();
      EXPECT_TRUE(report.ok() && report.value().committed);
    });
  }
  owners.clear();
  const std::string engine = Engine(0);
  ASSERT_TRUE(Apply(ApplyOf(store_, engine)).ok());
  EXPECT_TRUE(SameFiles(trainer_.Directory(1), engine));
}

// case G7: a dead owner gives no version and a clear error.
TEST_F(PublishApplyTest, DeadOwner) {
  trainer_.Step(1);
  PublishOptions options = Options();
  options.version = 1;
  options.owner_count = 2;
  options.session = "run1";
  options.owner_timeout_seconds = 0.2;
  const auto report = Publish(options);
  EXPECT_EQ(report.status().code(), StatusCode::kUnavailable);
  EXPECT_NE(report.status().message().find("owner 1 of 2"), std::string::npos);
  EXPECT_EQ(Apply(ApplyOf(store_, Engine(0))).status().code(), StatusCode::kNotFound);
}

// case G7: a session name that is used again, for another training step. What owners of the first
// attempt left, whoever of them came that far, is in no version of the second.
class SessionUsedAgainTest : public PublishApplyTest {
 protected:
  SessionUsedAgainTest() {
    trainer_.Step(1, 3);
    trainer_.Step(2, 3);
  }
  Status Owner(std::uint32_t owner, std::uint64_t step, double timeout) {
    PublishOptions options = PublishOf(store_, trainer_.Directory(0), trainer_.Directory(step));
    options.version = 1;
    options.owner = owner;
    options.owner_count = 2;
    options.session = "run1";
    options.owner_timeout_seconds = timeout;
    return Publish(options).status();
  }
  // As owner 0 leaves it that is killed.
  void LeaveRound() {
    const std::string mark =
        object_name::Round("default", 1, "run1", object_name::RoundName(std::uint64_t{1}));
    ASSERT_TRUE(OpenStore(store_, true).value()->PutIfAbsent(mark, {}).ok());
  }
};

TEST_F(SessionUsedAgainTest, NothingOfTheFirstIsInTheSecond) {
  ASSERT_EQ(Owner(1, 1, 0.1).code(), StatusCode::kUnavailable);
  ASSERT_EQ(Owner(0, 1, 0.1).code(), StatusCode::kUnavailable);
  LeaveRound();
  Status second;
  std::jthread other([&] { second = Owner(1, 2, 30); });
  const Status first = Owner(0, 2, 30);
  other.join();
  ASSERT_TRUE(first.ok() && second.ok()) << first.ToString() << second.ToString();
  const std::string engine = Engine(0);
  ASSERT_TRUE(Apply(ApplyOf(store_, engine)).ok());
  EXPECT_TRUE(SameFiles(trainer_.Directory(2), engine));
}

// Nobody can tell whose round it is: refused, with the advice to take another name.
TEST_F(SessionUsedAgainTest, ARecordThatIsInTheWay) {
  LeaveRound();
  ASSERT_EQ(Owner(1, 1, 0.1).code(), StatusCode::kUnavailable);
  Status second;
  std::jthread other([&] { second = Owner(1, 2, 30); });
  EXPECT_EQ(Owner(0, 2, 1).code(), StatusCode::kUnavailable);
  other.join();
  EXPECT_EQ(second.code(), StatusCode::kInvalidArgument) << second.ToString();
  EXPECT_NE(second.message().find("--session"), std::string::npos) << second.ToString();
  EXPECT_EQ(Apply(ApplyOf(store_, Engine(0))).status().code(), StatusCode::kNotFound);
}

// A payload that was changed in the store is refused, nothing is written.
TEST_F(PublishApplyTest, DamagedPayload) {
  Advance(1);
  const std::string folder = JoinPath(store_, object_name::PayloadFolder("default", 1));
  const std::string path = JoinPath(folder, ListDirectory(folder).value().front());
  ByteVector bytes = ReadFile(path, 1u << 30).value();
  bytes[bytes.size() / 2] ^= std::byte{1};
  test::WriteFile(path, bytes);
  const std::string engine = Engine(0);
  EXPECT_EQ(Apply(ApplyOf(store_, engine)).status().code(), StatusCode::kCorruption);
  bytes.resize(bytes.size() / 2);
  test::WriteFile(path, bytes);
  EXPECT_EQ(Apply(ApplyOf(store_, engine)).status().code(), StatusCode::kCorruption);
  EXPECT_TRUE(SameFiles(trainer_.Directory(0), engine));
}

// A store that says two things of one version is refused, whichever is right.
TEST_F(PublishApplyTest, LineageThatContradictsItself) {
  Advance(1);
  Advance(2);
  const std::string path = JoinPath(store_, object_name::Lineage("default"));
  const LineageRecord good = LineageRecord::Parse(ReadFile(path, 1u << 20).value(), path).value();
  for (int lie = 0; lie < 3; ++lie) {
    LineageRecord record = good;
    if (lie == 0) record.origin_version = 1;
    if (lie == 1) record.origin_digest.lane[0] ^= 1;
    if (lie == 2) record.origin_version = 9;
    test::WriteFile(path, record.ToJson());
    for (std::uint64_t version = 0; version <= 1; ++version) {
      ApplyOptions options = ApplyOf(store_, Engine(version));
      EXPECT_EQ(Apply(options).status().code(), StatusCode::kCorruption) << lie;
      EXPECT_TRUE(SameFiles(trainer_.Directory(version), options.checkpoint));
    }
  }
}

// A manifest that counts wrongly is refused, whatever its digests say.
TEST_F(PublishApplyTest, ManifestThatMiscounts) {
  Advance(1);
  const std::string path = JoinPath(store_, object_name::Version("default", 1));
  const ByteVector json = ReadFile(path, 1u << 20).value();
  const Manifest good = Manifest::Parse(json, path).value();
  const std::string engine = Engine(0);
  for (int lie = 0; lie < 4; ++lie) {
    Manifest manifest = good;
    if (lie == 0) ++manifest.payloads[0].rows;
    if (lie == 1) ++manifest.identity.changed_chunks;
    if (lie == 2) --manifest.identity.changed_elements;
    if (lie == 3) manifest.model_bytes += 2;
    test::WriteFile(path, manifest.ToJson());
    const auto report = Apply(ApplyOf(store_, engine));
    EXPECT_EQ(report.status().code(), StatusCode::kCorruption) << lie;
    EXPECT_TRUE(SameFiles(trainer_.Directory(0), engine));
  }
}

// case G2: the version is pruned between listing and reading its payload.
TEST_F(PublishApplyTest, PayloadGone) {
  Advance(1);
  const std::string folder = JoinPath(store_, object_name::PayloadFolder("default", 1));
  ASSERT_TRUE(RemoveTree(folder).ok());
  const std::string engine = Engine(0);
  const auto report = Apply(ApplyOf(store_, engine));
  EXPECT_EQ(report.status().code(), StatusCode::kNotFound) << report.status().ToString();
  EXPECT_TRUE(SameFiles(trainer_.Directory(0), engine));
}

TEST_F(PublishApplyTest, VerifyAndInspect) {
  Advance(1);
  VerifyOptions options;
  options.checkpoint = trainer_.Directory(1);
  options.store = store_;
  const auto report = Verify(options);
  ASSERT_TRUE(report.ok()) << report.status().ToString();
  EXPECT_EQ(report.value().version, 1u);
  EXPECT_TRUE(report.value().layout_matches);
  options.version = 0;
  EXPECT_EQ(Verify(options).status().code(), StatusCode::kVersionMismatch);
  options.against = trainer_.Directory(0);
  options.version.reset();
  EXPECT_EQ(Verify(options).status().code(), StatusCode::kVersionMismatch);
  for (const std::string& path : {store_, trainer_.Directory(0)}) {
    const auto json = Inspect(path);
    ASSERT_TRUE(json.ok()) << json.status().ToString();
    EXPECT_EQ(json.value().front(), '{');
  }
  EXPECT_EQ(Inspect(directory_.File("nothing")).status().code(), StatusCode::kNotFound);
  const std::string deep(1 << 20, '[');
  for (const std::string& text : {deep, std::string(R"({"format": 7})"), std::string("{")}) {
    test::WriteFile(directory_.File("odd.json"), text);
    EXPECT_EQ(Inspect(directory_.File("odd.json")).status().code(), StatusCode::kUnsupported);
  }
}

}  // namespace
}  // namespace segue
