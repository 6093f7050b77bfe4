// SPDX-License-Identifier: Apache-2.0
//
// Goal: exactly the files of a checkpoint are opened; whatever is missing, empty, doubled or
// foreign is named. Method: small directories, one fault each.
#include "checkpoint/checkpoint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>

#include "checkpoint/testing.h"

namespace segue {
namespace {

using test::RandomTensor;
using test::ShardName;
using test::TestTensor;
using test::WriteFile;
using test::WriteSafetensors;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

class CheckpointTest : public testing::Test {
 protected:
  // Tensors "t0" ... of U8 [16], one a shard.
  void WriteShards(std::size_t count) {
    std::vector<std::vector<TestTensor>> shards;
    for (std::size_t i = 0; i < count; ++i) {
      tensors_.push_back(
          RandomTensor({std::string("t").append(std::to_string(i)), Dtype::kU8, {16}}, i));
      shards.push_back({tensors_.back()});
    }
    test::WriteShardedCheckpoint(directory_.path(), shards);
  }

  Result<Checkpoint> Open() { return Checkpoint::Open(directory_.path()); }

  std::string Refusal(StatusCode code) {
    const Status status = Open().status();
    EXPECT_EQ(status.code(), code) << status.ToString();
    EXPECT_THAT(status.message(), HasSubstr(directory_.path()));
    return status.message();
  }

  void ExpectTensors(const Checkpoint& checkpoint) {
    ASSERT_EQ(checkpoint.tensors().size(), tensors_.size());
    for (std::size_t i = 0; i < tensors_.size(); ++i) {
      EXPECT_EQ(checkpoint.tensors()[i].spec, tensors_[i].spec);
      const ByteSpan bytes = checkpoint.TensorBytes(i);
      EXPECT_EQ(AsText(bytes), AsText(tensors_[i].bytes));
    }
  }

  test::TemporaryDirectory directory_;
  std::vector<TestTensor> tensors_;
};

TEST_F(CheckpointTest, OneFileWithoutIndex) {
  WriteSafetensors(
      directory_.File("model.safetensors"),
      {RandomTensor({"b", Dtype::kF32, {2}}, 1), RandomTensor({"a", Dtype::kU8, {3}}, 2)},
      {{"format", "pt"}});
  WriteFile(directory_.File("config.json"), "{}");
  const Checkpoint checkpoint = Open().value();
  EXPECT_EQ(checkpoint.directory(), directory_.path());
  EXPECT_THAT(checkpoint.warnings(), IsEmpty());
  EXPECT_TRUE(checkpoint.index_json().empty());
  ASSERT_EQ(checkpoint.shards().size(), 1u);
  const Shard& shard = checkpoint.shards()[0];
  EXPECT_EQ(shard.name, "model.safetensors");
  EXPECT_EQ(shard.path, directory_.File("model.safetensors"));
  EXPECT_EQ(shard.data_offset, 8 + shard.header_json.size());
  EXPECT_THAT(shard.tensors, ElementsAre(0, 1));
  ASSERT_EQ(checkpoint.tensors().size(), 2u);
  EXPECT_EQ(checkpoint.tensors()[0].spec.name, "a");
  EXPECT_EQ(AsText(checkpoint.TensorBytes(0)), AsText(test::RandomBytes(2, 3)));
  EXPECT_EQ(AsText(checkpoint.TensorBytes(1)), AsText(test::RandomBytes(1, 8)));
}

TEST_F(CheckpointTest, PathOfOneFile) {
  WriteShards(2);
  const Checkpoint checkpoint = Checkpoint::Open(directory_.File(ShardName(1, 2))).value();
  EXPECT_EQ(checkpoint.directory(), directory_.path());
  EXPECT_TRUE(checkpoint.index_json().empty());
  ASSERT_EQ(checkpoint.tensors().size(), 1u);
  EXPECT_EQ(checkpoint.tensors()[0].spec.name, "t1");
  EXPECT_EQ(Checkpoint::Open(directory_.File(kIndexFileName)).status().code(),
            StatusCode::kInvalidArgument);
  EXPECT_EQ(Checkpoint::Open(directory_.File("absent")).status().code(), StatusCode::kNotFound);
  EXPECT_EQ(Checkpoint::Open(directory_.File("absent.safetensors")).status().code(),
            StatusCode::kNotFound);
}

TEST_F(CheckpointTest, Sharded) {
  WriteShards(3);
  const Checkpoint checkpoint = Open().value();
  ExpectTensors(checkpoint);
  EXPECT_THAT(checkpoint.warnings(), IsEmpty());
  EXPECT_FALSE(checkpoint.index_json().empty());
  EXPECT_EQ(checkpoint.shards().size(), 3u);
  EXPECT_THAT(checkpoint.shards()[2].tensors, ElementsAre(2));
}

TEST_F(CheckpointTest, WritableMapsForWriting) {
  WriteShards(2);
  {
    Checkpoint checkpoint = Open().value();
    EXPECT_TRUE(checkpoint.MutableTensorBytes(1).empty());
    checkpoint = Checkpoint::Open(directory_.path(), MappedFile::Mode::kReadWrite).value();
    const MutableByteSpan bytes = checkpoint.MutableTensorBytes(1);
    ASSERT_EQ(bytes.size(), 16u);
    bytes[15] ^= std::byte{1};
    ASSERT_TRUE(checkpoint.shards()[1].file.Sync().ok());
  }
  tensors_[1].bytes[15] ^= std::byte{1};
  ExpectTensors(Open().value());
}

TEST_F(CheckpointTest, OddButValid) {  // case A1
  const std::string json =
      R"({"s":{"dtype":"F32","shape":[],"data_offsets":[0,4]},"__metadata__":{},)"
      R"("b":{"dtype":"U8","shape":[3,0,2],"data_offsets":[4,4]},)"
      R"("a":{"dtype":"F32","shape":[0],"data_offsets":[0,0]}})";
  WriteFile(directory_.File("model.safetensors"),
            test::MakeSafetensorsFile(json, test::RandomBytes(1, 4)));
  Checkpoint checkpoint = Open().value();
  ASSERT_EQ(checkpoint.tensors().size(), 3u);
  EXPECT_EQ(checkpoint.TensorBytes(0).size(), 0u);
  EXPECT_EQ(checkpoint.TensorBytes(1).size(), 0u);
  EXPECT_EQ(checkpoint.TensorBytes(2).size(), 4u);

  WriteFile(directory_.File("model.safetensors"), test::MakeSafetensorsFile("{}", {}));
  EXPECT_TRUE(Open().value().tensors().empty());
}

TEST_F(CheckpointTest, BytesAfterTheLastTensor) {  // case A2
  ByteVector file = test::MakeSafetensorsFile("{}", {});
  file.resize(file.size() + 8);
  WriteFile(directory_.File("model.safetensors"), file);
  EXPECT_THAT(Refusal(StatusCode::kCorruption), HasSubstr("8 bytes lie past the last tensor"));
}

TEST_F(CheckpointTest, EveryMissingShardIsListed) {  // case B1
  WriteShards(4);
  ASSERT_TRUE(RemoveFile(directory_.File(ShardName(2, 4))).ok());
  EXPECT_THAT(Refusal(StatusCode::kNotFound),
              HasSubstr("1 of 4 shards missing: 'model-00003-of-00004.safetensors'"));
  ASSERT_TRUE(RemoveFile(directory_.File(ShardName(0, 4))).ok());
  WriteFile(directory_.File(ShardName(3, 4)), "");
  EXPECT_THAT(Refusal(StatusCode::kNotFound),
              AllOf(HasSubstr("2 of 4 shards missing: 'model-00001-of-00004.safetensors', "
                              "'model-00003-of-00004.safetensors'"),
                    HasSubstr("shards of 0 bytes: 'model-00004-of-00004.safetensors'")));
}

TEST_F(CheckpointTest, EmptyShardIsNamed) {  // case B1
  WriteShards(4);
  WriteFile(directory_.File(ShardName(2, 4)), "");
  EXPECT_THAT(Refusal(StatusCode::kCorruption),
              HasSubstr("shards of 0 bytes: 'model-00003-of-00004.safetensors'"));
}

TEST_F(CheckpointTest, SplitWithoutItsIndex) {  // case B1
  WriteShards(4);
  ASSERT_TRUE(RemoveFile(directory_.File(kIndexFileName)).ok());
  EXPECT_THAT(Refusal(StatusCode::kNotFound),
              AllOf(HasSubstr("model.safetensors.index.json is missing"),
                    HasSubstr("'model-00001-of-00004.safetensors'"),
                    HasSubstr("'model-00004-of-00004.safetensors'")));
  // One part left of four is no whole checkpoint.
  for (std::size_t i = 1; i < 4; ++i)
    ASSERT_TRUE(RemoveFile(directory_.File(ShardName(i, 4))).ok());
  EXPECT_THAT(Refusal(StatusCode::kNotFound), HasSubstr("index.json is missing"));
}

TEST_F(CheckpointTest, SplitIntoOnePartIsWhole) {
  tensors_.push_back(RandomTensor({"t", Dtype::kU8, {4}}, 1));
  WriteSafetensors(directory_.File(ShardName(0, 1)), tensors_);
  ExpectTensors(Open().value());
}

TEST_F(CheckpointTest, DanglingIndexIsNotNoIndex) {  // case B1
  WriteSafetensors(directory_.File("model.safetensors"), {});
  ASSERT_EQ(::symlink("../../blobs/gone", directory_.File(kIndexFileName).c_str()), 0);
  EXPECT_THAT(Refusal(StatusCode::kNotFound), HasSubstr(kIndexFileName));
}

TEST_F(CheckpointTest, StraysAreLeftAlone) {  // case B3
  WriteShards(2);
  WriteSafetensors(directory_.File("model.safetensors"),
                   {RandomTensor({"t0", Dtype::kU8, {16}}, 9)});
  WriteSafetensors(directory_.File("model-00003-of-00003.safetensors"),
                   {RandomTensor({"t1", Dtype::kU8, {16}}, 9)});
  WriteFile(directory_.File("model.safetensors.tmp"), "x");
  WriteFile(directory_.File(".safetensors.tmp"), "x");
  WriteFile(directory_.File(".hidden.safetensors"), "x");
  ASSERT_TRUE(MakeDirectories(directory_.File(".segue")).ok());
  WriteFile(directory_.File(".segue/model.safetensors"), "x");
  const Checkpoint checkpoint = Open().value();
  ExpectTensors(checkpoint);
  ASSERT_EQ(checkpoint.warnings().size(), 1u);
  EXPECT_THAT(checkpoint.warnings()[0],
              AllOf(HasSubstr("ignored 2 files that the index does not name"),
                    HasSubstr("'model-00003-of-00003.safetensors', 'model.safetensors'"),
                    Not(HasSubstr(".tmp")), Not(HasSubstr("hidden"))));
}

TEST_F(CheckpointTest, AmbiguousWithoutIndex) {  // case B3
  WriteSafetensors(directory_.File("model.safetensors"), {});
  WriteSafetensors(directory_.File("consolidated.safetensors"), {});
  EXPECT_THAT(Refusal(StatusCode::kInvalidArgument),
              HasSubstr("'consolidated.safetensors', 'model.safetensors'"));
  ASSERT_TRUE(RemoveFile(directory_.File("consolidated.safetensors")).ok());
  EXPECT_TRUE(Open().ok());
  WriteSafetensors(directory_.File("model-00003-of-00003.safetensors"), {});
  EXPECT_THAT(Refusal(StatusCode::kInvalidArgument), HasSubstr("ambiguous"));
}

TEST_F(CheckpointTest, NothingThere) {
  EXPECT_THAT(Refusal(StatusCode::kNotFound), HasSubstr("holds no .safetensors file"));
  WriteFile(directory_.File(".hidden.safetensors"), "x");
  Refusal(StatusCode::kNotFound);
}

TEST_F(CheckpointTest, TraversalIsRefusedBeforeAnyOpen) {  // case B5
  ASSERT_TRUE(MakeDirectories(directory_.File("model")).ok());
  // It is there, and would read well.
  WriteSafetensors(directory_.File("x.safetensors"), {RandomTensor({"a", Dtype::kU8, {1}}, 1)});
  WriteFile(directory_.File("model/model.safetensors.index.json"),
            R"({"weight_map":{"a":"../x.safetensors","b":"absent.safetensors"}})");
  const Status status = Checkpoint::Open(directory_.File("model")).status();
  EXPECT_EQ(status.code(), StatusCode::kCorruption);
  EXPECT_THAT(status.message(), HasSubstr("shard name '../x.safetensors'"));
}

TEST_F(CheckpointTest, SnapshotOfLinksReads) {  // case B5
  WriteShards(2);
  ASSERT_TRUE(MakeDirectories(directory_.File("blobs")).ok());
  ASSERT_TRUE(MakeDirectories(directory_.File("snapshots/abc")).ok());
  for (const std::string& name : {ShardName(0, 2), ShardName(1, 2), std::string(kIndexFileName)}) {
    ASSERT_TRUE(RenameFile(directory_.File(name), directory_.File("blobs/hash-" + name)).ok());
    ASSERT_EQ(::symlink(("../../blobs/hash-" + name).c_str(),
                        directory_.File("snapshots/abc/" + name).c_str()),
              0);
  }
  const std::string snapshot = directory_.File("snapshots/abc");
  ExpectTensors(Checkpoint::Open(snapshot).value());
  // A blob that was evicted leaves a link to nothing: the shard is missing.
  ASSERT_TRUE(RemoveFile(directory_.File("blobs/hash-" + ShardName(1, 2))).ok());
  const Status status = Checkpoint::Open(snapshot).status();
  EXPECT_EQ(status.code(), StatusCode::kNotFound);
  EXPECT_THAT(status.message(), HasSubstr(ShardName(1, 2)));
}

TEST_F(CheckpointTest, IndexAndShardsMustAgree) {
  const auto write_index = [this](std::string_view map) {
    WriteFile(directory_.File(kIndexFileName), "{\"weight_map\":{" + std::string(map) + "}}");
  };
  WriteSafetensors(directory_.File("1.safetensors"), {RandomTensor({"a", Dtype::kU8, {1}}, 1)});
  WriteSafetensors(directory_.File("2.safetensors"), {RandomTensor({"b", Dtype::kU8, {1}}, 1)});
  write_index(R"("a":"1.safetensors","b":"2.safetensors")");
  EXPECT_TRUE(Open().ok());
  write_index(R"("a":"1.safetensors","b":"2.safetensors","c":"2.safetensors")");
  EXPECT_THAT(Refusal(StatusCode::kCorruption), HasSubstr("tensor 'c'"));
  write_index(R"("a":"2.safetensors","b":"1.safetensors")");
  EXPECT_THAT(Refusal(StatusCode::kCorruption), HasSubstr("tensor 'a'"));
  WriteSafetensors(directory_.File("2.safetensors"), {RandomTensor({"b", Dtype::kU8, {1}}, 1),
                                                      RandomTensor({"x", Dtype::kU8, {1}}, 1)});
  write_index(R"("a":"1.safetensors","b":"2.safetensors")");
  EXPECT_THAT(Refusal(StatusCode::kCorruption), HasSubstr("tensor 'x'"));
  WriteSafetensors(directory_.File("2.safetensors"), {RandomTensor({"b", Dtype::kU8, {1}}, 1),
                                                      RandomTensor({"a", Dtype::kU8, {1}}, 1)});
  EXPECT_THAT(Refusal(StatusCode::kCorruption), HasSubstr("tensor 'a': found in two shards"));
}

TEST_F(CheckpointTest, FaultsNameTheFirstBadShard) {
  WriteShards(8);
  for (const std::size_t i : {2, 5}) WriteFile(directory_.File(ShardName(i, 8)), "short");
  for (int i = 0; i < 20; ++i) {
    EXPECT_THAT(Refusal(StatusCode::kCorruption), HasSubstr(ShardName(2, 8)));
  }
}

TEST_F(CheckpointTest, ShardThatIsADirectory) {
  ASSERT_TRUE(MakeDirectories(directory_.File("model.safetensors")).ok());
  EXPECT_FALSE(Open().ok());
}

TEST_F(CheckpointTest, NameOnDiskThatALayoutCouldNotCarry) {
  WriteSafetensors(directory_.File("a\\b.safetensors"), {});
  EXPECT_THAT(Refusal(StatusCode::kInvalidArgument), HasSubstr("a\\b.safetensors"));
}

}  // namespace
}  // namespace segue
