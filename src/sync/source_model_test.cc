// SPDX-License-Identifier: Apache-2.0
//
// What a publisher is opened with: tensors in any order become the plan's order.
#include "sync/source_model.h"

#include <gtest/gtest.h>

#include "checkpoint/testing.h"

namespace segue {
namespace {

TEST(SourceModelTest, TensorsInThePlansOrder) {
  const ByteVector bytes(64);
  const std::vector<SourceTensor> tensors = {{"z", "U8", {3}, bytes.data(), 3},
                                             {"a", "F32", {2, 2}, bytes.data() + 8, 16},
                                             {"m", "BF16", {4}, nullptr, 0},
                                             {"e", "F32", {0}, nullptr, 0}};
  const auto model = SourceFromTensors(tensors, 4096);
  ASSERT_TRUE(model.ok()) << model.status().ToString();
  ASSERT_EQ(model->plan.tensors().size(), 4u);
  EXPECT_EQ(model->plan.tensors()[0].spec.name, "a");
  EXPECT_EQ(model->view.Tensor(0), bytes.data() + 8);
  EXPECT_EQ(model->view.Tensor(3), bytes.data());
  EXPECT_EQ(model->owned.ToHex(), "9");
  EXPECT_EQ(model->owned.FirstMissing(model->plan), 2u);
  EXPECT_EQ(FindTensor(model->plan, "m").value(), 2u);
  EXPECT_EQ(FindTensor(model->plan, "n").status().code(), StatusCode::kNotFound);
}

TEST(SourceModelTest, SpecsWithNamesOfWhatIsOwned) {
  const ByteVector bytes(4);
  const std::vector<SourceTensor> tensors = {{"z", "U8", {4}, bytes.data(), 4},
                                             {"a", "F32", {2}, nullptr, 0},
                                             {"e", "F32", {0}, nullptr, 0}};
  const std::vector<std::string> owned = {"a", "e"};
  const auto model = SourceFromSpecs(tensors, owned, 4096);
  ASSERT_TRUE(model.ok()) << model.status().ToString();
  EXPECT_EQ(model->owned.ToHex(), "1");  // "e" has no bytes, "z" is another owner's.
  EXPECT_EQ(SourceFromSpecs(tensors, {}, 4096)->owned.ToHex(), "0");
  const std::vector<std::string> unknown = {"c"};
  EXPECT_EQ(SourceFromSpecs(tensors, unknown, 4096).status().code(), StatusCode::kNotFound);
}

TEST(SourceModelTest, OwnedTensorsOfACheckpoint) {
  const test::TemporaryDirectory directory;
  test::WriteShardedCheckpoint(directory.path(), {{test::RandomTensor({"a", Dtype::kU8, {3}}, 1),
                                                   test::RandomTensor({"b", Dtype::kU8, {5}}, 2)}});
  const Checkpoint checkpoint = Checkpoint::Open(directory.path()).value();
  const std::vector<std::string> owned = {"b"};
  EXPECT_EQ(SourceFromCheckpoint(checkpoint, owned, 4096)->owned.ToHex(), "2");
  EXPECT_EQ(SourceFromCheckpoint(checkpoint, {}, 4096)->owned.ToHex(), "3");
  const std::vector<std::string> none;
  EXPECT_EQ(SourceFromCheckpoint(checkpoint, none, 4096)->owned.ToHex(), "0");
  const std::vector<std::string> unknown = {"c"};
  EXPECT_EQ(SourceFromCheckpoint(checkpoint, unknown, 4096).status().code(), StatusCode::kNotFound);
}

}  // namespace
}  // namespace segue
