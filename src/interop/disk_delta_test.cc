// SPDX-License-Identifier: Apache-2.0
//
// Import, export and pull through the public header: round trips, and what of them the end-to-end
// tests (tests/e2e/test_disk_delta.py, test_pull_weights.py) do not see.
#include "segue/disk_delta.h"

#include <fcntl.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstdio>
#include <filesystem>
#include <thread>

#include "interop/testing.h"
#include "interop/weight_sync.h"
#include "segue/apply.h"
#include "segue/inspect.h"

namespace segue {
namespace {

using test::DiskTrainer;

class DiskDeltaTest : public ::testing::Test {
 protected:
  DiskDeltaTest() : trainer_(folder_.File("run")) {}

  ImportDeltaOptions ImportOptions() const {
    ImportDeltaOptions options;
    options.source = trainer_.source();
    options.store = folder_.File("store");
    options.base = trainer_.Directory(0);
    options.threads = 2;
    return options;
  }
  ExportDeltaOptions ExportOptions() const {
    ExportDeltaOptions options;
    options.store = folder_.File("store");
    options.base = trainer_.Directory(0);
    options.output = folder_.File("out");
    options.threads = 2;
    return options;
  }
  PullOptions PullTo(std::uint64_t version) const {
    PullOptions options;
    options.local_checkpoint = folder_.File("local");
    options.source = trainer_.source();
    options.base = trainer_.Directory(0);
    options.target_version = version;
    options.threads = 2;
    return options;
  }
  void ExpectLocal(std::uint64_t version) const {
    EXPECT_TRUE(test::SameWeights(folder_.File("local"), trainer_.Directory(version)));
    EXPECT_EQ(ReadDiskState(folder_.File("local")).value(), version);
  }

  test::TemporaryDirectory folder_;
  DiskTrainer trainer_;
};

TEST_F(DiskDeltaTest, ImportThenExportThenPull) {
  trainer_.Step(300, DeltaEncoding::kXor);
  trainer_.Step(0);
  trainer_.StepFull(20);
  trainer_.Step(300, DeltaEncoding::kOverwrite, ChecksumKind::kAdler32);
  const auto imported = ImportDiskDelta(ImportOptions());
  ASSERT_TRUE(imported.ok()) << imported.status().ToString();
  EXPECT_EQ(imported->versions.size(), 4u);
  EXPECT_TRUE(imported->versions[2].full);
  const auto exported = ExportDiskDelta(ExportOptions());
  ASSERT_TRUE(exported.ok()) << exported.status().ToString();
  EXPECT_EQ(exported->versions.size(), 4u);
  PullOptions pull = PullTo(4);
  pull.source = folder_.File("out");
  ASSERT_TRUE(PullWeights(pull).ok());
  ExpectLocal(4);
}

TEST_F(DiskDeltaTest, FailedImportKeepsWhatCameBefore) {
  trainer_.Step();
  trainer_.Step();
  test::WriteFile(JoinPath(trainer_.DeltaPath(2), kIndexFileName), "{");
  EXPECT_FALSE(ImportDiskDelta(ImportOptions()).ok());
  ImportDeltaOptions options = ImportOptions();
  options.to = 1;
  EXPECT_TRUE(ImportDiskDelta(options)->versions[0].already_published);
}

TEST_F(DiskDeltaTest, LongChainsExportWithoutTheVersionsBetween) {
  for (int i = 0; i < 6; ++i) trainer_.Step(50);
  ASSERT_TRUE(ImportDiskDelta(ImportOptions()).ok());
  ExportDeltaOptions options = ExportOptions();
  options.shards = 7;
  options.encoding = "overwrite";
  options.checksum = "blake3";
  ASSERT_TRUE(ExportDiskDelta(options).ok());
  for (std::uint64_t version = 1; version <= 6; ++version) {
    PullOptions pull = PullTo(version);
    pull.source = folder_.File("out");
    const auto pulled = PullWeights(pull);
    ASSERT_TRUE(pulled.ok()) << pulled.status().ToString();
    EXPECT_EQ(pulled->reset, version == 1);
    ExpectLocal(version);
  }
}

TEST_F(DiskDeltaTest, PullWithoutABase) {
  trainer_.Step();
  trainer_.StepFull();
  trainer_.Step();
  PullOptions pull = PullTo(1);
  pull.base = "";
  EXPECT_EQ(PullWeights(pull).status().code(), StatusCode::kNotFound);
  EXPECT_FALSE(FileExists(pull.local_checkpoint));
  pull.target_version = 3;
  ASSERT_TRUE(PullWeights(pull).ok());
  ExpectLocal(3);
}

TEST_F(DiskDeltaTest, PullOfAVersionThatChangesNothing) {
  trainer_.Step();
  trainer_.Step(0);
  ASSERT_TRUE(PullWeights(PullTo(1)).ok());
  const auto pulled = PullWeights(PullTo(2));
  ASSERT_TRUE(pulled.ok());
  EXPECT_EQ(pulled->changed_tensors, 0u);
  ExpectLocal(2);
}

// Others may write diffs that change nothing.
TEST_F(DiskDeltaTest, DiffsThatChangeNothing) {
  const Plan plan = trainer_.MakePlan();
  const Checkpoint base = Checkpoint::Open(trainer_.Directory(0)).value();
  for (const DeltaEncoding encoding : {DeltaEncoding::kXor, DeltaEncoding::kOverwrite}) {
    DeltaIndex index;
    index.version = encoding == DeltaEncoding::kXor ? 1 : 2;
    index.base_version = index.version - 1;
    index.encoding = encoding;
    DeltaWriter writer = DeltaWriter::Start(trainer_.source(), index, 1, plan).value();
    DeltaFrameWriter frames;
    for (std::size_t i = 0; i < plan.tensors().size(); ++i) {
      const ByteSpan bytes = base.TensorBytes(i);
      ByteVector old_bytes(bytes.begin(), bytes.end());
      const ByteSpan frame = frames.Make(encoding, old_bytes, bytes).value();
      ASSERT_TRUE(writer.Add(i, frame, HashTensor(ChecksumKind::kXxh3, bytes)).ok());
    }
    ASSERT_TRUE(writer.Finish().ok());
  }
  ASSERT_TRUE(PullWeights(PullTo(0)).ok());
  for (const std::uint64_t version : {1, 2}) {
    const auto pulled = PullWeights(PullTo(version));
    ASSERT_TRUE(pulled.ok()) << pulled.status().ToString();
    EXPECT_TRUE(test::SameWeights(folder_.File("local"), trainer_.Directory(0)));
    EXPECT_EQ(ReadDiskState(folder_.File("local")).value(), version);
  }
  const auto imported = ImportDiskDelta(ImportOptions());
  ASSERT_TRUE(imported.ok()) << imported.status().ToString();
  EXPECT_EQ(imported->versions[1].changed_elements, 0u);
}

// The bytes of an open mapping of the old files: a reset leaves them alone, as renames do.
TEST_F(DiskDeltaTest, ResetLeavesOldFilesToTheirReaders) {
  trainer_.Step();
  trainer_.StepFull();
  ASSERT_TRUE(PullWeights(PullTo(1)).ok());
  const Checkpoint old_files = Checkpoint::Open(folder_.File("local")).value();
  ASSERT_TRUE(PullWeights(PullTo(2)).ok());
  const Checkpoint expected = Checkpoint::Open(trainer_.Directory(1)).value();
  for (std::size_t i = 0; i < expected.tensors().size(); ++i) {
    const ByteSpan found = old_files.TensorBytes(i);
    EXPECT_TRUE(std::equal(found.begin(), found.end(), expected.TensorBytes(i).begin()));
  }
  ExpectLocal(2);
}

TEST_F(DiskDeltaTest, BaseIsNotPulledInto) {
  trainer_.Step();
  PullOptions pull = PullTo(1);
  pull.local_checkpoint = trainer_.Directory(0);
  EXPECT_EQ(PullWeights(pull).status().code(), StatusCode::kInvalidArgument);
  EXPECT_FALSE(FileExists(JoinPath(trainer_.Directory(0), ".weight_sync")));
  // Nor into those of the engine's other lineages.
  pull.kept = {pull.base, trainer_.Directory(1)};
  pull.local_checkpoint = trainer_.Directory(1);
  EXPECT_EQ(PullWeights(pull).status().code(), StatusCode::kInvalidArgument);
  EXPECT_FALSE(FileExists(JoinPath(trainer_.Directory(1), ".weight_sync")));
}

// Whoever may write below a root swaps folders for links out of it, all the time.
TEST_F(DiskDeltaTest, APullIsNotLedOutOfItsRoots) {
  for (int i = 0; i < 2; ++i) trainer_.Step();
  const std::string root = folder_.File("root");
  const std::string outside = folder_.File("outside");
  namespace fs = std::filesystem;
  fs::create_directory(root);
  fs::copy(trainer_.source(), JoinPath(root, "source"), fs::copy_options::recursive);
  fs::create_directories(JoinPath(outside, "local/.segue"));
  fs::create_directories(JoinPath(outside, "local/.weight_sync/next"));
  for (const char* const inside : {"s", "s/local"}) fs::create_directory(JoinPath(root, inside));
  std::atomic<bool> stop = false;
  std::jthread swapper([&] {
    const std::string link = JoinPath(root, "link");
    fs::create_symlink(outside, link);
    while (!stop) {
      ::renameat2(AT_FDCWD, link.c_str(), AT_FDCWD, JoinPath(root, "s").c_str(), RENAME_EXCHANGE);
    }
  });
  PullOptions pull = PullTo(0);
  pull.roots = {root};
  pull.source = JoinPath(root, "source");
  pull.local_checkpoint = JoinPath(root, "s/local");
  for (int i = 0; i < 300; ++i) {
    pull.target_version = i % 3;
    const auto pulled = PullWeights(pull);
    EXPECT_EQ(pulled.status().message().find("/proc/self"), std::string::npos)
        << pulled.status().message();
  }
  stop = true;
  swapper.join();
  const std::string around = JoinPath(outside, "local");
  EXPECT_EQ(ListDirectory(outside).value(), std::vector<std::string>{"local"});
  EXPECT_EQ(ListDirectory(around).value(), (std::vector<std::string>{".segue", ".weight_sync"}));
  EXPECT_TRUE(ListDirectory(JoinPath(around, ".segue"))->empty());
  EXPECT_EQ(ListDirectory(JoinPath(around, ".weight_sync")).value(),
            std::vector<std::string>{"next"});
}

// The checksums find that the state is not the files.
TEST_F(DiskDeltaTest, AnotherApplyInBetween) {
  trainer_.Step();
  trainer_.Step();
  ASSERT_TRUE(PullWeights(PullTo(1)).ok());
  ASSERT_TRUE(ImportDiskDelta(ImportOptions()).ok());
  ApplyOptions apply;
  apply.store = folder_.File("store");
  apply.lineage = "default";
  apply.checkpoint = folder_.File("local");
  ASSERT_TRUE(Apply(apply).ok());  // At version 2 now, while the state says 1.
  EXPECT_EQ(PullWeights(PullTo(2)).status().code(), StatusCode::kCorruption);
  ASSERT_TRUE(RemoveDiskState(folder_.File("local")).ok());
  const auto pulled = PullWeights(PullTo(2));
  ASSERT_TRUE(pulled.ok()) << pulled.status().ToString();
  EXPECT_TRUE(pulled->reset);
  ExpectLocal(2);
}

}  // namespace
}  // namespace segue
