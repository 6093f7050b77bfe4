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

}  // namespace
}  // namespace segue
