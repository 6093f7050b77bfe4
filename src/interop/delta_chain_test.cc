// SPDX-License-Identifier: Apache-2.0
//
// Delta chain, directory, writer and source together: what is written is found, opened and folded
// to the versions' bytes, one step or several at once; directories that do not belong to the chain
// are refused. More ways to lie: tests/e2e/test_disk_delta.py.
#include "interop/delta_chain.h"

#include <gtest/gtest.h>

#include <map>

#include "interop/delta_directory.h"
#include "interop/delta_writer.h"
#include "interop/disk_source.h"
#include "interop/testing.h"

namespace segue {
namespace {

using test::DiskTrainer;

class DeltaChainTest : public ::testing::Test {
 protected:
  DeltaChainTest() : trainer_(folder_.File("run")), plan_(trainer_.MakePlan()) {}

  // All tensors of version `from`, folded to the end of the chain, against those of `to`.
  void ExpectFolds(const DeltaChain& chain, std::uint64_t from, std::uint64_t to) {
    const Checkpoint base = Checkpoint::Open(trainer_.Directory(from)).value();
    const Checkpoint target = Checkpoint::Open(trainer_.Directory(to)).value();
    std::map<std::uint32_t, ByteVector> folded;
    const Status status = FoldAll(
        chain, 2, [&](std::size_t tensor) { return base.TensorBytes(tensor); },
        [&](std::span<const FoldedTensor> tensors) {
          for (const FoldedTensor& tensor : tensors) folded[tensor.tensor] = tensor.bytes;
          return Status();
        });
    ASSERT_TRUE(status.ok()) << status.ToString();
    for (std::uint32_t i = 0; i < plan_.tensors().size(); ++i) {
      EXPECT_EQ(chain.Changes(i), folded.contains(i));
      const ByteSpan expected = target.TensorBytes(i);
      const ByteSpan old_bytes = base.TensorBytes(i);
      const ByteSpan found = folded.contains(i) ? ByteSpan(folded[i]) : old_bytes;
      EXPECT_TRUE(std::equal(found.begin(), found.end(), expected.begin(), expected.end())) << i;
    }
  }

  Result<DeltaChain> Open(std::uint64_t first, std::uint64_t last) {
    return DeltaChain::Open(trainer_.source(), first, last, plan_);
  }

  test::TemporaryDirectory folder_;
  DiskTrainer trainer_;
  Plan plan_;
};

TEST_F(DeltaChainTest, FoldsToTheVersions) {
  trainer_.Step(500, DeltaEncoding::kXor, ChecksumKind::kXxh3);
  trainer_.Step(0);
  trainer_.Step(10, DeltaEncoding::kOverwrite, ChecksumKind::kBlake3);
  trainer_.Step(1, DeltaEncoding::kXor, ChecksumKind::kAdler32);
  for (std::uint64_t from = 0; from < 4; ++from) {
    for (std::uint64_t to = from; to <= 4; ++to) {
      const auto chain = Open(from + 1, to);
      ASSERT_TRUE(chain.ok()) << chain.status().ToString();
      ExpectFolds(chain.value(), from, to);
    }
  }
  EXPECT_EQ(ListDiskVersions(trainer_.source()).value(), (std::vector<std::uint64_t>{1, 2, 3, 4}));
  EXPECT_TRUE(Open(2, 2).value().changed().empty());
}

TEST_F(DeltaChainTest, OtherNamesAreNotLookedAt) {
  trainer_.Step();
  for (const char* const name : {"weight_v2", "weight_v0000003", "weight_v00000x", "aggregate"}) {
    ASSERT_TRUE(MakeDirectories(JoinPath(trainer_.source(), name)).ok());
  }
  EXPECT_EQ(ListDiskVersions(trainer_.source()).value(), std::vector<std::uint64_t>{1});
  EXPECT_EQ(ListDiskVersions(folder_.File("nowhere")).status().code(), StatusCode::kNotFound);
}

TEST_F(DeltaChainTest, KindsOfDirectories) {
  trainer_.Step();
  trainer_.StepFull();
  EXPECT_TRUE(IsDeltaDirectory(trainer_.DeltaPath(1)).value());
  EXPECT_FALSE(IsDeltaDirectory(trainer_.DeltaPath(2)).value());
  EXPECT_EQ(IsDeltaDirectory(trainer_.DeltaPath(3)).status().code(), StatusCode::kNotFound);
  ASSERT_TRUE(RemoveFile(JoinPath(trainer_.DeltaPath(2), kIndexFileName)).ok());
  EXPECT_FALSE(IsDeltaDirectory(trainer_.DeltaPath(2)).value());
  EXPECT_EQ(Open(2, 2).status().code(), StatusCode::kNotFound);  // No index.
}

TEST_F(DeltaChainTest, BrokenChains) {
  trainer_.Step();
  trainer_.Step();
  trainer_.Step();
  ASSERT_TRUE(RenameFile(trainer_.DeltaPath(2), folder_.File("away")).ok());
  const Status missing = Open(1, 3).status();
  EXPECT_EQ(missing.code(), StatusCode::kNotFound);
  EXPECT_NE(missing.message().find("weight_v000002"), std::string::npos);
  ASSERT_TRUE(RenameFile(trainer_.DeltaPath(3), trainer_.DeltaPath(2)).ok());
  EXPECT_EQ(Open(1, 2).status().code(), StatusCode::kCorruption);  // It says that it is 3.
  EXPECT_EQ(Open(1, 20'000).status().code(), StatusCode::kResourceExhausted);
}

TEST_F(DeltaChainTest, WrongBytesBeforeAreFound) {
  trainer_.Step();
  trainer_.Step();
  const DeltaChain chain = Open(2, 2).value();
  FoldScratch scratch;
  const Checkpoint other = Checkpoint::Open(trainer_.Directory(0)).value();
  ByteVector bytes(other.TensorBytes(0).begin(), other.TensorBytes(0).end());
  const Status status = chain.Fold(0, bytes, scratch);
  EXPECT_EQ(status.code(), StatusCode::kCorruption);
  EXPECT_NE(status.message().find("'a.weight'"), std::string::npos);
  EXPECT_NE(status.message().find("not those of version 1"), std::string::npos);
}

TEST_F(DeltaChainTest, LinksAreNotFollowed) {
  trainer_.Step();
  const std::string shard = JoinPath(trainer_.DeltaPath(1), "model-00000-of-00002.safetensors");
  ASSERT_TRUE(RenameFile(shard, folder_.File("shard")).ok());
  std::filesystem::create_symlink(folder_.File("shard"), shard);
  EXPECT_EQ(Open(1, 1).status().code(), StatusCode::kInvalidArgument);
}

TEST_F(DeltaChainTest, PathsAreAskedAboutFirst) {
  trainer_.Step();
  const auto chain = DeltaChain::Open(trainer_.source(), 1, 1, plan_, [&](const std::string& path) {
    EXPECT_EQ(path, trainer_.DeltaPath(1));
    return InvalidArgument("no");
  });
  EXPECT_EQ(chain.status().code(), StatusCode::kInvalidArgument);
}

TEST_F(DeltaChainTest, ShardShrinksBehindTheHeader) {
  trainer_.Step();
  const DeltaChain chain = Open(1, 1).value();
  const std::string shard = JoinPath(trainer_.DeltaPath(1), "model-00000-of-00002.safetensors");
  std::filesystem::resize_file(shard, FileSize(shard).value() - 10);
  const Checkpoint base = Checkpoint::Open(trainer_.Directory(0)).value();
  const Status status = FoldAll(
      chain, 2, [&](std::size_t tensor) { return base.TensorBytes(tensor); },
      [](std::span<const FoldedTensor>) { return Status(); });
  EXPECT_EQ(status.code(), StatusCode::kCorruption);
}

TEST_F(DeltaChainTest, WriterNeverReplaces) {
  trainer_.Step();
  DeltaIndex index;
  index.version = 1;
  DeltaWriter writer = DeltaWriter::Start(trainer_.source(), index, 1, plan_).value();
  EXPECT_EQ(writer.Finish().status().code(), StatusCode::kInvalidArgument);
  EXPECT_TRUE(Open(1, 1).value().Changes(0));
}

TEST_F(DeltaChainTest, WriterLeavesNothingWhenItFails) {
  DeltaIndex index;
  index.version = 1;
  {
    DeltaWriter writer = DeltaWriter::Start(trainer_.source(), index, 1, plan_).value();
    ASSERT_TRUE(writer.Add(0, AsBytes("frame"), {}).ok());
  }
  EXPECT_TRUE(ListDirectory(trainer_.source()).value().empty());
}

}  // namespace
}  // namespace segue
