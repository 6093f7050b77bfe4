// SPDX-License-Identifier: Apache-2.0
//
// Which version a publish makes (retries, branches, steps that change nothing), and that an apply
// finds its way from whichever version the weights are (cases D2 and D5).
#include "sync/version_choice.h"

#include <filesystem>

#include "sync/testing.h"

namespace segue {
namespace {

using test::ApplyOf;
using test::CopyOf;
using test::PublishOf;
using test::SameFiles;

class VersionChoiceTest : public testing::Test {
 protected:
  // v0 to v`count`, all published.
  void PublishChain(std::uint64_t count) {
    while (trainer_.version() < count) {
      trainer_.Step(trainer_.version() + 1);
      ASSERT_EQ(Step(trainer_.version() - 1, trainer_.version()).target_version,
                trainer_.version());
    }
  }
  Result<PublishReport> TryStep(std::uint64_t base, std::uint64_t target, bool branch = false) {
    PublishOptions options =
        PublishOf(store_, trainer_.Directory(base), trainer_.Directory(target));
    options.allow_branch = branch;
    return Publish(options);
  }
  PublishReport Step(std::uint64_t base, std::uint64_t target, bool branch = false) {
    const auto report = TryStep(base, target, branch);
    EXPECT_TRUE(report.ok()) << report.status().ToString();
    return report.ok() ? report.value() : PublishReport();
  }
  // Objects and temporaries.
  std::uint64_t FileCount() const {
    std::uint64_t count = 0;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(store_)) {
      count += entry.is_regular_file() ? 1 : 0;
    }
    return count;
  }

  test::TemporaryDirectory directory_;
  test::MiniTrainer trainer_{directory_.path()};
  std::string store_ = directory_.File("store");
};

// A retry of any published step is told so, keeps its number, and writes nothing.
TEST_F(VersionChoiceTest, RetryOfAnyVersion) {
  PublishChain(3);
  const std::uint64_t files = FileCount();
  for (std::uint64_t version = 1; version <= 3; ++version) {
    const PublishReport again = Step(version - 1, version);
    EXPECT_TRUE(again.already_published) << version;
    EXPECT_TRUE(again.committed);
    EXPECT_EQ(again.base_version, version - 1);
    EXPECT_EQ(again.target_version, version);
    EXPECT_EQ(again.published_bytes, 0u);
    EXPECT_TRUE(again.warnings.empty());
  }
  EXPECT_EQ(FileCount(), files);
}

// A retry whose payload would have other bytes is still the same version.
TEST_F(VersionChoiceTest, RetryWithAnotherProfile) {
  PublishChain(2);
  const std::uint64_t files = FileCount();
  PublishOptions options = PublishOf(store_, trainer_.Directory(0), trainer_.Directory(1));
  options.profile = "lz4-zstd";
  const auto again = Publish(options);
  ASSERT_TRUE(again.ok()) << again.status().ToString();
  EXPECT_TRUE(again.value().already_published);
  options.version = 1;
  EXPECT_TRUE(Publish(options).value().already_published);
  EXPECT_EQ(FileCount(), files);
}

// What starts from the newest version is new, whatever was published before.
TEST_F(VersionChoiceTest, FromTheNewestIsNew) {
  PublishChain(1);
  EXPECT_EQ(Step(1, 1).target_version, 2u);
  EXPECT_EQ(Step(1, 1).target_version, 3u);
  EXPECT_EQ(Step(1, 0).target_version, 4u);  // Taken back,
  EXPECT_EQ(Step(0, 1).target_version, 5u);  // and made again.
}

// case D5: a fork is refused unless it is wanted, and leaves nothing.
TEST_F(VersionChoiceTest, ForkIsRefused) {
  PublishChain(2);
  trainer_.Step(9);
  const std::uint64_t files = FileCount();
  const auto refused = TryStep(1, 3);
  ASSERT_EQ(refused.status().code(), StatusCode::kInvalidArgument);
  for (const char* words : {"is version 1", "newest is 2", "--branch"}) {
    EXPECT_NE(refused.status().message().find(words), std::string::npos)
        << refused.status().message();
  }
  EXPECT_EQ(FileCount(), files);
  const PublishReport branch = Step(1, 3, /*branch=*/true);
  EXPECT_EQ(branch.base_version, 1u);
  EXPECT_EQ(branch.target_version, 3u);
  EXPECT_EQ(branch.warnings.size(), 1u);
}

// The same weights under several numbers: a way is taken from whichever leads to the target.
TEST_F(VersionChoiceTest, WayFromEveryVersionOfADigest) {
  PublishChain(2);
  trainer_.Step(9);
  Step(2, 1);  // Version 3 has the weights of version 1,
  Step(1, 3);  // 4 follows it,
  Step(3, 1);  // and so has version 5, of which nothing comes.
  trainer_.Step(10);
  Step(3, 4, /*branch=*/true);  // Version 6 follows 4.
  const std::string engine = CopyOf(trainer_.Directory(1), directory_.File("engine"));
  const auto report = Apply(ApplyOf(store_, engine));
  ASSERT_TRUE(report.ok()) << report.status().ToString();
  EXPECT_EQ(report.value().base_version, 3u);
  EXPECT_EQ(report.value().path, (std::vector<std::uint64_t>{4, 6}));
  EXPECT_TRUE(SameFiles(trainer_.Directory(4), engine));
}

// A directory with a record stands at its number alone: nothing leads it back, also where an
// earlier version has the same bytes. A copy without one stands at each.
TEST_F(VersionChoiceTest, WhereBytesRepeatTheRecordSaysTheNumber) {
  PublishChain(2);
  Step(2, 1);  // Version 3 has the weights of version 1.
  const std::string engine = CopyOf(trainer_.Directory(0), directory_.File("engine"));
  ASSERT_TRUE(Apply(ApplyOf(store_, engine)).ok());
  for (const std::uint64_t earlier : {1, 2}) {
    ApplyOptions back = ApplyOf(store_, engine);
    back.to = earlier;
    EXPECT_EQ(Apply(back).status().code(), StatusCode::kVersionMismatch) << earlier;
    EXPECT_TRUE(SameFiles(trainer_.Directory(1), engine));
    back.checkpoint = CopyOf(trainer_.Directory(1), directory_.File("copy"));
    EXPECT_TRUE(Apply(back).ok());
    EXPECT_TRUE(SameFiles(trainer_.Directory(earlier), back.checkpoint));
    std::filesystem::remove_all(back.checkpoint);
  }
  ApplyOptions output = ApplyOf(store_, engine);
  output.to = 2;
  output.output = directory_.File("output");
  EXPECT_TRUE(Apply(output).ok());
  trainer_.Step(9);
  Step(1, 3);
  const auto on = Apply(ApplyOf(store_, engine));
  ASSERT_TRUE(on.ok()) << on.status().ToString();
  EXPECT_EQ(on->base_version, 3u);
  EXPECT_TRUE(SameFiles(trainer_.Directory(3), engine));
}

// Which code and what advice, where no way leads on.
TEST_F(VersionChoiceTest, NoWay) {
  PublishChain(2);
  trainer_.Step(9);
  Step(1, 3, /*branch=*/true);
  const std::string engine = CopyOf(trainer_.Directory(2), directory_.File("engine"));
  const auto cut_off = Apply(ApplyOf(store_, engine));
  EXPECT_EQ(cut_off.status().code(), StatusCode::kVersionMismatch);
  EXPECT_NE(cut_off.status().message().find("--output"), std::string::npos)
      << cut_off.status().message();
  ApplyOptions back = ApplyOf(store_, engine);
  back.to = 1;
  const auto downgrade = Apply(back);
  EXPECT_EQ(downgrade.status().code(), StatusCode::kVersionMismatch);
  EXPECT_NE(downgrade.status().message().find("only goes forward"), std::string::npos)
      << downgrade.status().message();
  EXPECT_TRUE(SameFiles(trainer_.Directory(2), engine));
}

// Old temporaries of publishers that died go, young ones may belong to somebody.
TEST_F(VersionChoiceTest, StaleTemporaries) {
  PublishChain(1);
  const std::string folder = JoinPath(store_, ".tmp");
  const std::string old = JoinPath(folder, "old");
  const std::string young = JoinPath(folder, "young");
  ASSERT_TRUE(MakeDirectories(folder).ok());
  for (const std::string& path : {old, young}) test::WriteFile(path, std::string_view("half"));
  namespace fs = std::filesystem;
  fs::last_write_time(old, fs::last_write_time(young) - std::chrono::hours(25));
  PublishChain(2);
  EXPECT_FALSE(FileExists(old));
  EXPECT_TRUE(FileExists(young));
}

}  // namespace
}  // namespace segue
