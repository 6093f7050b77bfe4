// SPDX-License-Identifier: Apache-2.0
//
// In place: the order of its steps, and what a step that fails leaves behind. That the bytes are
// right: publish_apply_test.cc; crashes: resolve_test.cc and tests/e2e/test_cli_crash.py.
#include "sync/in_place.h"

#include <gtest/gtest.h>

#include "base/file.h"
#include "delta/delta_builder.h"
#include "delta/encoder.h"
#include "sync/journal.h"
#include "sync/resolve.h"
#include "sync/testing.h"

namespace segue {
namespace {

using test::MiniTrainer;

class InPlaceTest : public ::testing::Test {
 protected:
  InPlaceTest() : trainer_(folder_.File("run")) {
    trainer_.Step(1);
    copy_ = test::CopyOf(trainer_.Directory(0), folder_.File("copy"));
    const Checkpoint base = Checkpoint::Open(copy_).value();
    plan_ = Plan::FromCheckpoint(base, 65536).value();
    steps_.make = [this](const std::string& folder) { return Make(folder); };
  }

  Result<InPlaceDelta> Make(const std::string& folder) {
    const Checkpoint base = Checkpoint::Open(copy_).value();
    const Checkpoint target = Checkpoint::Open(trainer_.Directory(1)).value();
    DeltaBuilder builder(plan_, Profile::kSparseZstd, 2);
    for (std::size_t i = 0; i < plan_.tensors().size(); ++i) {
      const TensorChange change = {i, base.TensorBytes(i).data(), target.TensorBytes(i).data()};
      SEGUE_RETURN_IF_ERROR(builder.Add(std::span(&change, 1)).status());
    }
    InPlaceDelta delta;
    SEGUE_ASSIGN_OR_RETURN(delta.staged, builder.Take());
    delta.path = JoinPath(folder, "delta");
    SEGUE_ASSIGN_OR_RETURN(OutputFile file, OutputFile::Create(delta.path));
    SEGUE_ASSIGN_OR_RETURN(const PayloadSummary summary,
                           WriteStagedDelta(plan_, delta.staged, 2,
                                            [&](ByteSpan bytes) { return file.Append(bytes); }));
    SEGUE_RETURN_IF_ERROR(file.Close());
    delta.size = summary.size;
    delta.sha256 = summary.sha256;
    delta.base = {"run", 0, DigestModel(plan_, ViewOf(base), 2), plan_.digest()};
    delta.target = {"run", 1, DigestModel(plan_, ViewOf(target), 2), plan_.digest()};
    return delta;
  }

  bool IsAt(std::uint64_t version) const {
    return test::SameFiles(trainer_.Directory(version), copy_);
  }
  bool HasJournal() const { return FileExists(JoinPath(copy_, kJournalRecordName)); }

  test::TemporaryDirectory folder_;
  MiniTrainer trainer_;
  std::string copy_;
  Plan plan_;
  InPlaceSteps steps_;
};

TEST_F(InPlaceTest, StepsInOrder) {
  std::vector<std::string> seen;
  steps_.tell = [&](std::string_view stage) { seen.emplace_back(stage); };
  steps_.begun = [&]() -> Status {
    EXPECT_TRUE(HasJournal());
    EXPECT_TRUE(IsAt(0));
    seen.emplace_back("begun");
    return {};
  };
  steps_.written = [&]() -> Status {
    EXPECT_TRUE(HasJournal());
    EXPECT_TRUE(IsAt(1));
    seen.emplace_back("written");
    return {};
  };
  const auto report = ApplyInPlace(copy_, plan_, 2, steps_);
  ASSERT_TRUE(report.ok()) << report.status().ToString();
  const std::vector<std::string> expected = {"preflight", "journal", "apply",
                                             "begun",     "sync",    "written"};
  EXPECT_EQ(seen, expected);
  EXPECT_TRUE(IsAt(1));
  EXPECT_FALSE(HasJournal());
}

TEST_F(InPlaceTest, NothingToMakeLeavesNothing) {
  steps_.make = [](const std::string&) -> Result<InPlaceDelta> { return Corruption("a lie"); };
  EXPECT_EQ(ApplyInPlace(copy_, plan_, 2, steps_).status().code(), StatusCode::kCorruption);
  EXPECT_TRUE(IsAt(0));
  EXPECT_FALSE(HasJournal());
}

TEST_F(InPlaceTest, FailureAfterTheBeginningIsResolved) {
  for (auto* const step : {&steps_.begun, &steps_.written}) {
    *step = []() -> Status { return Unavailable("the disk is gone"); };
    const auto report = ApplyInPlace(copy_, plan_, 2, steps_);
    EXPECT_EQ(report.status().code(), StatusCode::kTainted);
    EXPECT_NE(report.status().message().find("the disk is gone"), std::string::npos);
    EXPECT_TRUE(HasJournal());
    EXPECT_EQ(ResolveLocked(copy_, 2).value().outcome, ResolveOutcome::kFinishedTarget);
    EXPECT_TRUE(IsAt(1));
    *step = nullptr;
    ASSERT_TRUE(RemoveTree(copy_).ok());
    test::CopyOf(trainer_.Directory(0), copy_);
  }
}

}  // namespace
}  // namespace segue
