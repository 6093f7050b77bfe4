// SPDX-License-Identifier: Apache-2.0
//
// Generated chains open as checkpoints, and do not depend on threads or shards.
#include "segue/generate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/limits.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/plan.h"
#include "checkpoint/testing.h"
#include "workload/writer.h"

namespace segue {
namespace {

GenerateOptions Options(const test::TemporaryDirectory& directory, const std::string& preset) {
  GenerateOptions options;
  options.directory = directory.File("chain");
  options.preset = preset;
  options.model_bytes = 200'000;
  options.steps = 2;
  options.threads = 2;
  return options;
}

void ExpectSameTensors(const std::string& a, const std::string& b) {
  const Checkpoint left = Checkpoint::Open(a).value();
  const Checkpoint right = Checkpoint::Open(b).value();
  ASSERT_EQ(left.tensors().size(), right.tensors().size());
  for (std::size_t i = 0; i < left.tensors().size(); ++i) {
    EXPECT_EQ(left.tensors()[i].spec, right.tensors()[i].spec);
    EXPECT_THAT(left.TensorBytes(i), testing::ElementsAreArray(right.TensorBytes(i)));
  }
}

TEST(Generate, EveryPresetYieldsCheckpointsOfOnePlan) {
  for (const PresetInfo& info : Presets()) {
    test::TemporaryDirectory directory;
    const Result<GenerateReport> report = Generate(Options(directory, std::string(info.name)));
    ASSERT_TRUE(report.ok()) << info.name << ": " << report.status().ToString();
    ASSERT_EQ(report.value().directories.size(), 3u);
    EXPECT_EQ(report.value().directories[2], directory.File("chain/v0000000002"));
    EXPECT_EQ(report.value().steps.size(), 2u);
    std::vector<Checkpoint> versions;
    for (const std::string& path : report.value().directories) {
      Result<Checkpoint> checkpoint = Checkpoint::Open(path);
      ASSERT_TRUE(checkpoint.ok()) << checkpoint.status().ToString();
      EXPECT_TRUE(checkpoint.value().warnings().empty());
      EXPECT_EQ(checkpoint.value().shards().size(), 2u);
      versions.push_back(std::move(checkpoint).value());
    }
    const Plan base = Plan::FromCheckpoint(versions[0]).value();
    EXPECT_EQ(base.digest(), Plan::FromCheckpoint(versions[2]).value().digest());
    EXPECT_EQ(base.model_size(), report.value().model_bytes);
  }
}

// The report's counts are those of the files: changed elements, byte for byte.
TEST(Generate, ReportAgreesWithTheFiles) {
  test::TemporaryDirectory directory;
  const GenerateReport report = Generate(Options(directory, "bf16-10")).value();
  const Checkpoint before = Checkpoint::Open(report.directories[1]).value();
  const Checkpoint after = Checkpoint::Open(report.directories[2]).value();
  std::uint64_t changed = 0;
  std::uint64_t elements = 0;
  for (std::size_t i = 0; i < before.tensors().size(); ++i) {
    const ByteSpan a = before.TensorBytes(i);
    const ByteSpan b = after.TensorBytes(i);
    for (std::size_t at = 0; at < a.size(); at += 2) {
      changed += a[at] != b[at] || a[at + 1] != b[at + 1];
      ++elements;
    }
  }
  EXPECT_EQ(report.steps[1].changed, changed);
  EXPECT_EQ(report.steps[1].elements, elements);
}

// 200 shards are more files than are held open at once, so the chain is written in stretches.
TEST(Generate, DoesNotDependOnThreadsOrShards) {
  test::TemporaryDirectory first;
  test::TemporaryDirectory second;
  GenerateOptions options = Options(first, "nvfp4-0.085");
  options.threads = 1;
  options.shard_count = 1;
  const GenerateReport one = Generate(options).value();
  options.directory = second.File("chain");
  options.threads = 3;
  options.shard_count = 200;
  const GenerateReport many = Generate(options).value();
  for (std::size_t version = 0; version < 3; ++version) {
    ExpectSameTensors(one.directories[version], many.directories[version]);
  }
  EXPECT_EQ(one.steps[1].changed, many.steps[1].changed);
}

TEST(Generate, SaysWhatIsWrong) {
  test::TemporaryDirectory directory;
  GenerateOptions options = Options(directory, "no-such");
  EXPECT_EQ(Generate(options).status().code(), StatusCode::kInvalidArgument);
  options = Options(directory, "none");
  options.shard_count = 0;
  EXPECT_EQ(Generate(options).status().code(), StatusCode::kInvalidArgument);
  options = Options(directory, "none");
  options.directory.clear();
  EXPECT_EQ(Generate(options).status().code(), StatusCode::kInvalidArgument);
  options = Options(directory, "none");
  ASSERT_TRUE(Generate(options).ok());
  const Status again = Generate(options).status();
  EXPECT_EQ(again.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(again.message(), testing::HasSubstr("v0000000000"));
}

TEST(Generate, WithoutStepsThereIsABaseAlone) {
  test::TemporaryDirectory directory;
  GenerateOptions options = Options(directory, "fp8-0.07");
  options.steps = 0;
  const GenerateReport report = Generate(options).value();
  EXPECT_EQ(report.directories.size(), 1u);
  EXPECT_TRUE(report.steps.empty());
  EXPECT_TRUE(Checkpoint::Open(report.directories[0]).ok());
}

// Nothing is made of a size that no disk holds: neither its list of tensors nor its first
// directory.
TEST(Generate, SizesBeyondLimitOrDiskAreRefusedFirst) {
  test::TemporaryDirectory directory;
  GenerateOptions options = Options(directory, "bf16-1");
  for (const std::uint64_t bytes :
       {std::uint64_t{9'000'000'000'000'000'000}, std::uint64_t{1} << 53,
        limits::kGenerateSizeMax + 1, limits::kGenerateSizeMax}) {
    options.model_bytes = bytes;
    options.steps = 1u << 30;
    const auto report = Generate(options);
    EXPECT_EQ(report.status().code(), StatusCode::kResourceExhausted) << bytes;
  }
  options.model_bytes = 1;
  options.steps = UINT32_MAX;
  EXPECT_EQ(Generate(options).status().code(), StatusCode::kResourceExhausted);
  EXPECT_FALSE(FileExists(options.directory));
}

}  // namespace
}  // namespace segue
