// SPDX-License-Identifier: Apache-2.0
//
// Diff: the counts of a difference that is known by construction, and what each profile would send.
#include <gtest/gtest.h>

#include "segue/inspect.h"
#include "sync/testing.h"

namespace segue {
namespace {

TEST(DiffTest, CountsWhatChanged) {
  const test::TemporaryDirectory directory;
  test::MiniTrainer trainer(directory.path());
  trainer.tensors()[0].bytes[10] ^= std::byte{1};
  trainer.tensors()[0].bytes[500] ^= std::byte{3};
  trainer.tensors()[1].bytes[0] ^= std::byte{128};
  const std::string target = directory.File("target");
  ASSERT_TRUE(MakeDirectories(target).ok());
  test::WriteShardedCheckpoint(target, {trainer.tensors()});
  DiffOptions options;
  options.base = trainer.Directory(0);
  options.target = target;
  options.threads = 2;
  const auto report = Diff(options);
  ASSERT_TRUE(report.ok()) << report.status().ToString();
  EXPECT_EQ(report.value().total.changed, 3u);
  EXPECT_EQ(report.value().by_dtype.at("BF16").changed, 2u);
  EXPECT_EQ(report.value().by_dtype.at("U8").changed, 1u);
  EXPECT_EQ(report.value().xor_bits[0], 2u);
  EXPECT_EQ(report.value().xor_bits[1], 1u);
  EXPECT_EQ(report.value().xor_bits[7], 1u);
  EXPECT_EQ(report.value().payload_bytes.size(), 4u);
  options.target = directory.File("absent");
  EXPECT_EQ(Diff(options).status().code(), StatusCode::kNotFound);
}

}  // namespace
}  // namespace segue
