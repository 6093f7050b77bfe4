// SPDX-License-Identifier: Apache-2.0
//
// case D1: an in-place apply is stopped at every stage that a crash can leave behind, chunk by
// chunk and in the middle of a chunk; resolve must end at exactly base or exactly target, and a
// second resolve must change nothing. The states are made by the same pieces that apply uses.
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <utility>

#include "delta/changes.h"
#include "segue/inspect.h"
#include "sync/fetch.h"
#include "sync/journal.h"
#include "sync/lineage.h"
#include "sync/live_files.h"
#include "sync/testing.h"

namespace segue {
namespace {

using test::ApplyOf;
using test::CopyOf;
using test::PublishOf;
using test::SameFiles;

class ResolveTest : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    trainer_.Step(1, 40);
    PublishOptions options = PublishOf(store_, trainer_.Directory(0), trainer_.Directory(1));
    options.profile = GetParam();
    ASSERT_TRUE(Publish(options).ok());
    url_store_ = OpenStore(store_, false).value();
    lineage_ = Lineage::Open(*url_store_, "default").value();
    plan_ = lineage_.ReadPlan(*url_store_).value();
  }

  // Begins an apply on a fresh engine and leaves it where `chunks` chunks are done and `elements`
  // of the next one are changed.
  std::string Interrupt(std::size_t chunks, std::size_t elements) {
    std::string engine =
        CopyOf(trainer_.Directory(0), directory_.File("engine" + std::to_string(engines_++)));
    Journal journal(engine);
    EXPECT_TRUE(journal.Prepare().ok());
    const auto path = lineage_.Path(0, 1).value();
    FetchedDelta fetched = FetchChain(*url_store_, plan_, path, journal.folder(), 1, {}).value();
    std::vector<std::string> copied;
    LiveFiles live = OpenLiveFiles(engine, copied).value();
    const auto device = MakeHostDevice(1);
    Applier applier(plan_, fetched.staged, live.view, *device);
    EXPECT_TRUE(applier.Preflight().ok());
    JournalRecord record;
    record.base = {"default", 0, path[0].identity.base_digest, plan_.digest()};
    record.target = {"default", 1, path[0].identity.target_digest, plan_.digest()};
    record.payload = fetched.path.substr(journal.folder().size() + 1);
    record.payload_size = fetched.size;
    record.payload_sha256 = fetched.sha256;
    EXPECT_TRUE(journal.Begin(plan_, applier.work(), record).ok());
    const auto work = applier.work();
    chunk_count_ = work.size();
    EXPECT_FALSE(device->Apply(work.first(std::min(chunks, work.size()))).has_value());
    if (chunks < work.size()) ApplyPart(work[chunks], elements);
    return engine;
  }

  // Changes the first `elements` changed elements of a chunk only.
  void ApplyPart(const ChunkWork& work, std::size_t elements) {
    ChangeReader changes(plan_.chunk_size());
    const auto found = changes.ReadPositions(work).value();
    const std::vector<std::uint32_t> positions(found.begin(), found.end());
    ByteVector target(work.live, work.live + work.size);
    ChunkWork whole = work;
    whole.live = target.data();
    const auto device = MakeHostDevice(1);
    device->Reserve(plan_.chunk_size());
    ASSERT_FALSE(device->Apply(std::span(&whole, 1)).has_value());
    for (std::size_t i = 0; i < std::min(elements, positions.size()); ++i) {
      const std::uint64_t offset = std::uint64_t{positions[i]} * work.width;
      std::copy_n(target.data() + offset, work.width, work.live + offset);
    }
  }

  test::TemporaryDirectory directory_;
  test::MiniTrainer trainer_{directory_.path()};
  std::string store_ = directory_.File("store");
  std::unique_ptr<Store> url_store_;
  Lineage lineage_;
  Plan plan_;
  std::size_t chunk_count_ = 0;
  int engines_ = 0;
};

TEST_P(ResolveTest, EveryChunkAndMiddle) {
  (void)Interrupt(0, 0);
  for (std::size_t chunks = 0; chunks <= chunk_count_; ++chunks) {
    for (const std::size_t elements : {0u, 1u, 7u}) {
      const std::string engine = Interrupt(chunks, elements);
      const auto report = Resolve(engine, 1);
      ASSERT_TRUE(report.ok()) << report.status().ToString();
      EXPECT_EQ(report.value().outcome, ResolveOutcome::kFinishedTarget);
      EXPECT_EQ(report.value().version, 1u);
      EXPECT_TRUE(SameFiles(trainer_.Directory(1), engine)) << chunks << " " << elements;
      EXPECT_EQ(Resolve(engine, 1).value().outcome, ResolveOutcome::kNothingToDo);
    }
  }
}

// The next apply resolves by itself, and never applies the same delta twice.
TEST_P(ResolveTest, ApplyResolvesFirst) {
  const std::string engine = Interrupt(2, 3);
  const auto report = Apply(ApplyOf(store_, engine));
  ASSERT_TRUE(report.ok()) << report.status().ToString();
  EXPECT_TRUE(report.value().resolved_first);
  EXPECT_TRUE(report.value().path.empty());
  EXPECT_TRUE(SameFiles(trainer_.Directory(1), engine));
}

// Before the record is in place nothing was begun: the base stays.
TEST_P(ResolveTest, NotBegunKeepsBase) {
  const std::string engine = CopyOf(trainer_.Directory(0), directory_.File("early"));
  ASSERT_TRUE(Journal(engine).Prepare().ok());
  test::WriteFile(JoinPath(Journal(engine).folder(), "part-0"), "half a payload");
  const auto report = Resolve(engine, 1);
  ASSERT_TRUE(report.ok());
  EXPECT_EQ(report.value().outcome, ResolveOutcome::kKeptBase);
  EXPECT_FALSE(report.value().version) << "no state file says which version it is";
  EXPECT_TRUE(SameFiles(trainer_.Directory(0), engine));
}

// A chunk that somebody else has changed meanwhile is neither base nor target: tainted, named.
TEST_P(ResolveTest, ForeignBytesAreReported) {
  const std::string engine = Interrupt(0, 0);
  {
    // A tensor's last byte; the change lies outside what the delta touches with near certainty.
    MappedFile file =
        MappedFile::Open(JoinPath(engine, test::ShardName(1, 2)), MappedFile::Mode::kReadWrite)
            .value();
    for (std::size_t i = 2000; i < 2100; ++i) file.mutable_bytes()[i] ^= std::byte{255};
  }
  const auto report = Resolve(engine, 1);
  EXPECT_EQ(report.status().code(), StatusCode::kTainted);
  EXPECT_NE(report.status().message().find("b.weight"), std::string::npos)
      << report.status().message();
}

// Between the crash and the resolve nobody takes the weights for whole: neither as base nor as
// target, nor with the record damaged. Inspect shows what is open.
TEST_P(ResolveTest, EveryReaderRefuses) {
  const std::string engine = Interrupt(1, 2);
  const std::string good = trainer_.Directory(0);
  const std::string record = JoinPath(engine, kJournalRecordName);
  for (int damaged = 0; damaged < 2; ++damaged) {
    if (damaged == 1) test::WriteFile(record, std::string_view("{"));
    const std::string shard = JoinPath(engine, test::ShardName(0, 2));
    ApplyOptions apply = ApplyOf(store_, engine);
    apply.output = directory_.File("never");
    DiffOptions diffs[2];
    diffs[0].base = diffs[1].target = engine;
    diffs[0].target = diffs[1].base = good;
    VerifyOptions verifies[2];
    verifies[0].checkpoint = verifies[1].against = engine;
    verifies[1].checkpoint = good;
    const Status refusals[] = {
        Publish(PublishOf(store_, engine, good)).status(),
        Publish(PublishOf(store_, good, engine)).status(),
        Publish(PublishOf(directory_.File("new"), good, engine)).status(),
        Diff(diffs[0]).status(),
        Diff(diffs[1]).status(),
        Verify(verifies[0]).status(),
        Verify(verifies[1]).status(),
        Apply(apply).status(),
        Checkpoint::Open(shard).status(),
    };
    for (const Status& refusal : refusals) {
      EXPECT_EQ(refusal.code(), StatusCode::kTainted) << refusal.ToString();
      EXPECT_NE(refusal.message().find("segue resolve"), std::string::npos) << refusal.message();
    }
    const auto shown = Inspect(engine);
    ASSERT_TRUE(shown.ok()) << shown.status().ToString();
    EXPECT_NE(shown.value().find("interrupted_apply"), std::string::npos) << shown.value();
  }
}

// A damaged journal is tainted too, never silently dropped.
TEST_P(ResolveTest, DamagedJournal) {
  const std::string engine = Interrupt(1, 2);
  test::WriteFile(JoinPath(Journal(engine).folder(), "undo"), "short");
  EXPECT_EQ(Resolve(engine, 1).status().code(), StatusCode::kTainted);
  EXPECT_EQ(Apply(ApplyOf(store_, engine)).status().code(), StatusCode::kTainted);
}

// Whoever follows the advice and copies another whole version over the files: not a byte of it may
// change, whichever chunks happen to look like the base, the target, or a mix.
TEST_P(ResolveTest, RestoredCopyOfAnotherVersionIsLeftAlone) {
  trainer_.Step(2, 40);
  // Elements that the first step has changed change again, to a third value.
  for (test::TestTensor& tensor : trainer_.tensors()) {
    for (std::byte& byte : tensor.bytes) byte ^= std::byte{2};
  }
  trainer_.Write();
  const std::string engine = Interrupt(2, 3);
  const auto restore = [&](std::uint64_t version, int shards) {
    for (int shard = 0; shard < shards; ++shard) {
      const std::string name = test::ShardName(shard, 2);
      std::filesystem::copy_file(JoinPath(trainer_.Directory(version), name),
                                 JoinPath(engine, name),
                                 std::filesystem::copy_options::overwrite_existing);
    }
  };
  for (const int shards : {2, 1}) {
    restore(0, 2);
    restore(2, shards);
    const std::string before = CopyOf(engine, directory_.File("seen" + std::to_string(shards)));
    const auto report = Resolve(engine, 1);
    EXPECT_EQ(report.status().code(), StatusCode::kTainted);
    EXPECT_NE(report.status().message().find("remove '" + Journal(engine).folder()),
              std::string::npos)
        << report.status().message();
    EXPECT_EQ(Apply(ApplyOf(store_, engine)).status().code(), StatusCode::kTainted);
    EXPECT_TRUE(SameFiles(before, engine)) << shards;
  }
  // The advice leads on.
  restore(0, 2);
  ASSERT_TRUE(RemoveTree(Journal(engine).folder()).ok());
  ASSERT_TRUE(Apply(ApplyOf(store_, engine)).ok());
  EXPECT_TRUE(SameFiles(trainer_.Directory(1), engine));
}

// One wrong chunk is enough: the mixed chunks beside it are not touched either.
TEST_P(ResolveTest, NothingIsWrittenBeforeAllIsProven) {
  const std::string engine = Interrupt(2, 3);
  {
    MappedFile file =
        MappedFile::Open(JoinPath(engine, test::ShardName(1, 2)), MappedFile::Mode::kReadWrite)
            .value();
    file.mutable_bytes()[file.bytes().size() - 1] ^= std::byte{255};
  }
  const std::string before = CopyOf(engine, directory_.File("before"));
  EXPECT_EQ(Resolve(engine, 1).status().code(), StatusCode::kTainted);
  EXPECT_TRUE(SameFiles(before, engine));
}

// The record's own digests contradict its delta: its version and lineage are not believed.
TEST_P(ResolveTest, RecordThatContradictsItsDeltaIsTainted) {
  for (const char* field : {"base_digest", "target_digest"}) {
    const std::string engine = Interrupt(1, 2);
    const std::string before = CopyOf(engine, engine + "-before");
    const std::string path = JoinPath(engine, kJournalRecordName);
    std::string text(AsText(ReadFile(path, 1 << 20).value()));
    char& digit = text[text.find(':', text.find(field)) + 3];
    digit = digit == '0' ? '1' : '0';
    test::WriteFile(path, std::string_view(text));
    const auto report = Resolve(engine, 1);
    EXPECT_EQ(report.status().code(), StatusCode::kTainted) << field;
    EXPECT_NE(report.status().message().find("digest"), std::string::npos);
    EXPECT_TRUE(SameFiles(before, engine));
    EXPECT_FALSE(ReadState(engine).value().has_value());
  }
}

// Whatever is wrong with a record that is there, the weights may be half changed.
TEST_P(ResolveTest, UnreadableRecordIsTainted) {
  const std::string engine = Interrupt(1, 2);
  const std::string path = JoinPath(engine, kJournalRecordName);
  const std::string text(AsText(ReadFile(path, 1 << 20).value()));
  std::vector<std::string> texts = {"", "{", "[]", text.substr(0, text.size() / 2)};
  for (const auto& [found, replaced] :
       {std::pair("segue-apply", "segue-state"),
        std::pair("\"format_version\": 1", "\"format_version\": 2"),
        std::pair("\"lineage\": \"", "\"lineage\": \"../"), std::pair("undo_size", "undo_sise")}) {
    std::string changed = text;
    texts.push_back(changed.replace(changed.find(found), std::string_view(found).size(), replaced));
  }
  const auto expect_tainted = [&](const std::string& what) {
    EXPECT_EQ(Resolve(engine, 1).status().code(), StatusCode::kTainted) << what;
    EXPECT_EQ(Apply(ApplyOf(store_, engine)).status().code(), StatusCode::kTainted) << what;
  };
  for (const std::string& changed : texts) {
    test::WriteFile(path, std::string_view(changed));
    expect_tainted(changed);
  }
  ASSERT_TRUE(RemoveFile(path).ok());
  ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);
  expect_tainted("a pipe");
  ASSERT_TRUE(RemoveFile(path).ok());
  ASSERT_EQ(::symlink("/dev/zero", path.c_str()), 0);
  expect_tainted("a symlink");
}

INSTANTIATE_TEST_SUITE_P(Profiles, ResolveTest,
                         testing::Values("sparse-zstd", "snappy-zstd", "lz4-zstd", "zstd"));

}  // namespace
}  // namespace segue
