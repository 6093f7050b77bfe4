// SPDX-License-Identifier: Apache-2.0
//
// Output directories: equal to the source byte for byte, other files copied, nothing left behind
// unless finished, and nothing written over what exists.
#include "sync/build_output.h"

#include "sync/testing.h"

namespace segue {
namespace {

class OutputBuilderTest : public testing::Test {
 protected:
  OutputBuilderTest()
      : base_(Checkpoint::Open(trainer_.Directory(0)).value()),
        plan_(Plan::FromCheckpoint(base_).value()) {}

  test::TemporaryDirectory directory_;
  test::MiniTrainer trainer_{directory_.path()};
  Checkpoint base_;
  Plan plan_;
  std::string output_ = directory_.File("output");
};

TEST_F(OutputBuilderTest, EqualsTheSource) {
  test::WriteFile(JoinPath(trainer_.Directory(0), "config.json"), std::string_view("{}"));
  OutputBuilder builder = OutputBuilder::Start(output_ + "/").value();
  ASSERT_TRUE(builder.CopyBase(base_, Layout::FromCheckpoint(base_), plan_).ok());
  std::vector<std::string> warnings;
  ASSERT_TRUE(builder.CopyOtherFiles(base_, warnings).ok());
  EXPECT_TRUE(warnings.empty());
  ASSERT_TRUE(builder.Finish().ok());
  EXPECT_TRUE(test::SameFiles(trainer_.Directory(0), output_));
  EXPECT_EQ(OutputBuilder::Start(output_).status().code(), StatusCode::kInvalidArgument);
}

TEST_F(OutputBuilderTest, UnfinishedLeavesNothing) {
  {
    OutputBuilder builder = OutputBuilder::Start(output_).value();
    ASSERT_TRUE(builder.CopyBase(base_, Layout::FromCheckpoint(base_), plan_).ok());
  }
  EXPECT_FALSE(FileExists(output_));
  EXPECT_FALSE(FileExists(output_ + ".segue-part"));
}

TEST_F(OutputBuilderTest, LayoutOfOtherTensorsIsRefused) {
  const std::string other = directory_.File("other.safetensors");
  test::WriteSafetensors(other, {test::RandomTensor({"a.weight", Dtype::kBF16, {2, 2}}, 1)});
  const Checkpoint checkpoint = Checkpoint::Open(other).value();
  OutputBuilder builder = OutputBuilder::Start(output_).value();
  const Status status = builder.CopyBase(base_, Layout::FromCheckpoint(checkpoint), plan_);
  EXPECT_EQ(status.code(), StatusCode::kCorruption);
  EXPECT_NE(status.message().find("a.weight"), std::string::npos);
}

// Two at once in one partial directory would give the name to a mix: the second one is refused, and
// what it does leaves the first one's work alone.
TEST_F(OutputBuilderTest, SecondBuilderOfTheSameOutputIsRefused) {
  OutputBuilder first = OutputBuilder::Start(output_).value();
  for (int tries = 0; tries < 2; ++tries) {
    EXPECT_EQ(OutputBuilder::Start(output_ + "/").status().code(), StatusCode::kUnavailable);
  }
  ASSERT_TRUE(first.CopyBase(base_, Layout::FromCheckpoint(base_), plan_).ok());
  EXPECT_EQ(OutputBuilder::Start(output_).status().code(), StatusCode::kUnavailable);
  ASSERT_TRUE(first.Finish().ok());
  EXPECT_TRUE(test::SameFiles(trainer_.Directory(0), output_));
  EXPECT_EQ(OutputBuilder::Start(output_).status().code(), StatusCode::kInvalidArgument);
  EXPECT_FALSE(FileExists(output_ + ".segue-part"));
}

TEST_F(OutputBuilderTest, LeftoverOfADeadOneIsReplaced) {
  const std::string part = output_ + ".segue-part";
  ASSERT_TRUE(MakeDirectories(JoinPath(part, ".segue/apply")).ok());
  for (const char* name : {"stale.json", ".segue/lock", ".segue/apply/part-0"}) {
    test::WriteFile(JoinPath(part, name), std::string_view("stale"));
  }
  OutputBuilder builder = OutputBuilder::Start(output_).value();
  ASSERT_TRUE(builder.CopyBase(base_, Layout::FromCheckpoint(base_), plan_).ok());
  ASSERT_TRUE(builder.Finish().ok());
  EXPECT_TRUE(test::SameFiles(trainer_.Directory(0), output_));
  EXPECT_FALSE(FileExists(JoinPath(output_, "stale.json")));
  EXPECT_FALSE(FileExists(JoinPath(output_, ".segue/apply")));
}

// What gets the name is the directory that was locked, and it takes nobody's place.
TEST_F(OutputBuilderTest, OnlyWhatWasBuiltIsRenamed) {
  const std::string part = output_ + ".segue-part";
  {
    OutputBuilder builder = OutputBuilder::Start(output_).value();
    ASSERT_TRUE(RenameFile(part, output_ + "-elsewhere").ok());
    ASSERT_TRUE(MakeDirectories(JoinPath(part, ".segue")).ok());
    test::WriteFile(JoinPath(part, "mine"), std::string_view("mine"));
    EXPECT_EQ(builder.Finish().code(), StatusCode::kUnavailable);
  }
  EXPECT_FALSE(FileExists(output_));
  EXPECT_TRUE(FileExists(JoinPath(part, "mine"))) << "somebody else's directory was removed";
  ASSERT_TRUE(RemoveTree(part).ok());
  OutputBuilder builder = OutputBuilder::Start(output_).value();
  ASSERT_TRUE(MakeDirectories(output_).ok());
  EXPECT_EQ(builder.Finish().code(), StatusCode::kInvalidArgument);
}

TEST_F(OutputBuilderTest, NamesThatAreNoNewDirectoryAreRefused) {
  for (const char* name : {"x/.", "x/..", ".", "x/./"}) {
    EXPECT_EQ(OutputBuilder::Start(directory_.File(name)).status().code(),
              StatusCode::kInvalidArgument)
        << name;
  }
  EXPECT_FALSE(FileExists(directory_.File("x")));
  // A partial directory that leads elsewhere.
  ASSERT_TRUE(MakeDirectories(directory_.File("elsewhere")).ok());
  std::filesystem::create_symlink("elsewhere", output_ + ".segue-part");
  EXPECT_EQ(OutputBuilder::Start(output_).status().code(), StatusCode::kInvalidArgument);
  EXPECT_TRUE(ListDirectory(directory_.File("elsewhere")).value().empty());
}

}  // namespace
}  // namespace segue
