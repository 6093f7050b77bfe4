// SPDX-License-Identifier: Apache-2.0
//
// The publisher of buffers: what it publishes is what checkpoints would give, and its baseline
// moves with durable versions alone (case D2).
#include "segue/publisher.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <cstring>

#include "sync/lineage.h"
#include "sync/publisher_testing.h"

namespace segue {
namespace {

using test::ApplyOf;
using test::CopyOf;
using test::FileSizeLimit;
using test::PublisherTest;
using test::SameFiles;
using test::SourcesOf;
using testing::HasSubstr;

Status PutAlone(Publisher& publisher, const SourceTensor& tensor) {
  SEGUE_RETURN_IF_ERROR(publisher.Begin());
  Status status = publisher.Put(tensor);
  publisher.Discard();
  return status;
}

TEST_F(PublisherTest, VersionsFromBuffers) {
  const auto publisher = Open(Options());
  EXPECT_EQ(publisher->version(), std::nullopt);
  for (std::uint64_t version = 1; version <= 4; ++version) {
    const PublishReport report = PublishStep(*publisher, version, version == 3 ? 2 : 500);
    EXPECT_EQ(report.target_version, version);
    EXPECT_EQ(report.base_version, version - 1);
    EXPECT_EQ(publisher->version(), version);
  }
  for (std::uint64_t from = 0; from < 4; ++from) ExpectReaches(from, 4);
}

// The files of a lineage without files: one shard, byte for byte what the layout says.
TEST_F(PublisherTest, EnginesThatShareTheLayoutGoInPlace) {
  const auto publisher = Open(Options());
  PublishStep(*publisher, 1);
  ExpectReaches(0, 1);  // Makes engine0-new in the generated layout.
  const std::string engine = directory_.File("engine0-new");
  EXPECT_TRUE(FileExists(JoinPath(engine, "model.safetensors")));
  PublishStep(*publisher, 2);
  const auto applied = Apply(ApplyOf(store_, engine));
  ASSERT_TRUE(applied.ok()) << applied.status().ToString();
  EXPECT_EQ(applied->target_version, 2u);
}

// A lineage that files began goes on from buffers in the trainer's own layout, and back.
TEST_F(PublisherTest, GoesOnWithALineageOfFiles) {
  trainer_.Step(1);
  ASSERT_TRUE(Publish(test::PublishOf(store_, trainer_.Directory(0), trainer_.Directory(1))).ok());
  auto publisher = Publisher::Open(Options(), trainer_.Directory(1));
  ASSERT_TRUE(publisher.ok()) << publisher.status().ToString();
  EXPECT_EQ(publisher.value()->version(), 1u);
  EXPECT_EQ(PublishStep(*publisher.value(), 2).target_version, 2u);
  const std::string engine = CopyOf(trainer_.Directory(0), directory_.File("engine"));
  ASSERT_TRUE(Apply(ApplyOf(store_, engine)).ok());
  EXPECT_TRUE(SameFiles(trainer_.Directory(2), engine));
  trainer_.Step(3);
  const auto third = Publish(test::PublishOf(store_, trainer_.Directory(2), trainer_.Directory(3)));
  ASSERT_TRUE(third.ok()) << third.status().ToString();
  EXPECT_EQ(third->target_version, 3u);
  // Its baseline is not the newest any more.
  trainer_.Step(4);
  const auto refused = publisher.value()->Publish(SourcesOf(trainer_));
  EXPECT_EQ(refused.status().code(), StatusCode::kInvalidArgument) << refused.status().ToString();
}

// The caller's buffer may be used for the next tensor as soon as Put returns.
TEST_F(PublisherTest, TensorsOneByOneThroughOneBuffer) {
  const auto publisher = Open(Options());
  trainer_.Step(1);
  ASSERT_TRUE(publisher->Begin().ok());
  std::vector<std::byte> buffer;
  auto tensors = trainer_.tensors();
  std::reverse(tensors.begin(), tensors.end());
  for (const test::TestTensor& tensor : tensors) {
    buffer.assign(tensor.bytes.begin(), tensor.bytes.end());
    ASSERT_TRUE(publisher->Put(tensor.spec.name, buffer.data(), buffer.size()).ok());
    std::fill(buffer.begin(), buffer.end(), std::byte{0xee});
  }
  const auto report = publisher->Commit();
  ASSERT_TRUE(report.ok()) << report.status().ToString();
  ExpectReaches(0, 1);
  PublishStep(*publisher, 2);
  ExpectReaches(0, 2);
}

// No two of the base's tensors need be in memory at a time; versions may come in parts.
TEST_F(PublisherTest, BaseThatIsReadTensorByTensor) {
  const std::vector<SourceTensor> sources = SourcesOf(trainer_);
  std::vector<std::string> names;
  std::map<std::string, const SourceTensor*> known;
  std::vector<SourceTensor> specs = sources;
  for (SourceTensor& spec : specs) spec.data = nullptr;
  for (const SourceTensor& source : sources) {
    names.push_back(source.name);
    known[source.name] = &source;
  }
  std::vector<std::string> asked;
  const auto read = [&](const std::string& name, std::byte* to, std::uint64_t size) {
    asked.push_back(name);
    if (known.at(name)->size != size) return InvalidArgument("another size");
    std::memcpy(to, known.at(name)->data, size);
    return Status();
  };
  auto publisher = Publisher::Open(Options(), specs, names, read);
  ASSERT_TRUE(publisher.ok()) << publisher.status().ToString();
  EXPECT_TRUE(std::is_sorted(asked.begin(), asked.end()));
  trainer_.Step(1);
  const std::vector<SourceTensor> changed = SourcesOf(trainer_);
  ASSERT_TRUE(publisher.value()->Begin().ok());
  const std::span<const SourceTensor> all(changed);
  ASSERT_TRUE(publisher.value()->Put(all.subspan(2)).ok());
  ASSERT_TRUE(publisher.value()->Put(all.first(2)).ok());
  ASSERT_TRUE(publisher.value()->Commit().ok());
  ExpectReaches(0, 1);
  // One that is refused takes the version with it.
  ASSERT_TRUE(publisher.value()->Begin().ok());
  const std::vector<SourceTensor> twice = {changed[0], changed[0]};
  EXPECT_EQ(publisher.value()->Put(std::span(twice)).code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(publisher.value()->Commit().status().message(), HasSubstr("no version is begun"));
  ASSERT_TRUE(publisher.value()->Publish(changed).ok());
  ExpectReaches(1, 2);

  const auto failed = Publisher::Open(
      Options(), specs, names,
      [](const std::string&, std::byte*, std::uint64_t) { return Unavailable("a rank is gone"); });
  EXPECT_EQ(failed.status().message(), "a rank is gone");
}

TEST_F(PublisherTest, RefusesWhatMakesNoSense) {
  const auto publisher = Open(Options());
  const std::byte byte{};
  EXPECT_EQ(publisher->Put("a.weight", &byte, 1).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(publisher->Commit().status().code(), StatusCode::kInvalidArgument);
  ASSERT_TRUE(publisher->Begin().ok());
  EXPECT_EQ(publisher->Begin().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(publisher->Put("nobody", &byte, 1).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(publisher->Put("c.scale", &byte, 1).code(), StatusCode::kInvalidArgument);
  ASSERT_TRUE(publisher->PutUnchanged("c.scale").ok());
  EXPECT_THAT(publisher->PutUnchanged("c.scale").message(), HasSubstr("twice"));
  const auto missing = publisher->Commit();
  EXPECT_EQ(missing.status().code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(missing.status().message(), HasSubstr("'a.weight' and 2 more"));
  for (const char* name : {"a.weight", "b.weight", "e.ids"}) {
    ASSERT_TRUE(publisher->PutUnchanged(name).ok());
  }
  const auto empty = publisher->Commit();
  ASSERT_TRUE(empty.ok()) << empty.status().ToString();
  EXPECT_EQ(empty->changed_elements, 0u);  // case D7
  EXPECT_EQ(empty->target_version, 1u);
}

TEST_F(PublisherTest, RefusesWrongTensorsAtTheStart) {
  std::vector<SourceTensor> sources = SourcesOf(trainer_);
  sources[0].size -= 2;
  EXPECT_EQ(Publisher::Open(Options(), sources).status().code(), StatusCode::kInvalidArgument);
  sources = SourcesOf(trainer_);
  sources[1].dtype = "U9";
  EXPECT_EQ(Publisher::Open(Options(), sources).status().code(), StatusCode::kUnsupported);
  sources = SourcesOf(trainer_);
  sources.push_back(sources[0]);
  EXPECT_THAT(Publisher::Open(Options(), sources).status().message(), HasSubstr("twice"));
  sources = SourcesOf(trainer_, 0, 2);
  EXPECT_THAT(Publisher::Open(Options(), sources).status().message(), HasSubstr("no bytes"));
  PublishStep(*Open(Options()), 1);
  trainer_.Step(2);  // Never published.
  EXPECT_EQ(Publisher::Open(Options(), SourcesOf(trainer_)).status().code(),
            StatusCode::kVersionMismatch);
}

TEST_F(PublisherTest, RefusesATensorThatIsThereTwice) {
  const auto publisher = Open(Options());
  PublishStep(*publisher, 1);
  std::vector<SourceTensor> sources = SourcesOf(trainer_);
  sources.push_back(sources[0]);
  const Status refused = publisher->Publish(sources).status();
  EXPECT_EQ(refused.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(refused.message(), HasSubstr("'" + sources[0].name + "' is put twice"));
  PublishStep(*publisher, 2);
}

// The same bytes under another dtype or shape (case C4): named, nothing visible, nothing begun.
TEST_F(PublisherTest, RefusesAnotherDtypeOrShape) {
  const auto publisher = Open(Options());
  const std::vector<SourceTensor> sources = SourcesOf(trainer_);
  const auto refused = [&](const SourceTensor& tensor, const char* what) {
    std::vector<SourceTensor> changed = sources;
    changed[0] = tensor;
    for (const Status& status :
         {publisher->Publish(changed).status(), PutAlone(*publisher, tensor)}) {
      EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
      EXPECT_THAT(status.message(), HasSubstr("tensor '" + tensor.name + "' is " + what));
    }
  };
  ASSERT_EQ(sources[0].dtype, "BF16");
  SourceTensor tensor = sources[0];
  tensor.dtype = "F16";
  refused(tensor, "F16");
  tensor = sources[0];
  std::reverse(tensor.shape.begin(), tensor.shape.end());
  tensor.shape.push_back(1);
  refused(tensor, "BF16");
  tensor = sources[0];
  tensor.dtype = "U9";
  EXPECT_EQ(PutAlone(*publisher, tensor).code(), StatusCode::kUnsupported);
  const std::string lineage = JoinPath(store_, object_name::Lineage("default"));
  EXPECT_FALSE(FileExists(lineage));
  EXPECT_TRUE(publisher->Publish(sources).ok());
  EXPECT_TRUE(FileExists(lineage));
}

TEST_F(PublisherTest, MissingMayMeanUnchanged) {
  PublisherOptions options = Options();
  options.missing_is_unchanged = true;
  const auto publisher = Open(options);
  test::TestTensor& tensor = trainer_.tensors()[1];
  tensor.bytes[77] ^= std::byte{4};
  trainer_.Write();
  ASSERT_TRUE(publisher->Begin().ok());
  ASSERT_TRUE(publisher->Put(tensor.spec.name, tensor.bytes.data(), tensor.bytes.size()).ok());
  const auto report = publisher->Commit();
  ASSERT_TRUE(report.ok()) << report.status().ToString();
  EXPECT_EQ(report->changed_elements, 1u);
}

// case D2: the upload of v2 fails at 50 %; v3 is encoded against v1, which is durable.
TEST_F(PublisherTest, FailedUploadLeavesTheBaseline) {
  const auto publisher = Open(Options());
  PublishStep(*publisher, 1);
  trainer_.Step(2, 20);
  PublisherOptions elsewhere = Options();
  elsewhere.store = directory_.File("elsewhere");
  const auto other = Publisher::Open(elsewhere, trainer_.Directory(1));
  const auto whole = other.value()->Publish(SourcesOf(trainer_));
  ASSERT_TRUE(whole.ok()) << whole.status().ToString();
  {
    const FileSizeLimit limit(whole->payload_bytes / 2);
    const auto failed = publisher->Publish(SourcesOf(trainer_));
    ASSERT_FALSE(failed.ok());
    EXPECT_NE(failed.status().code(), StatusCode::kInternal);
  }
  EXPECT_EQ(publisher->version(), 1u);
  const PublishReport third = PublishStep(*publisher, 3);
  EXPECT_EQ(third.base_version, 1u);
  EXPECT_EQ(third.target_version, 2u);
  ExpectReaches(0, 2);
  ExpectReaches(1, 2);
}

TEST_F(PublisherTest, DiscardForgets) {
  const auto publisher = Open(Options());
  trainer_.Step(1);
  ASSERT_TRUE(publisher->Begin().ok());
  const std::vector<SourceTensor> sources = SourcesOf(trainer_);
  ASSERT_TRUE(publisher->Put(sources[0].name, sources[0].data, sources[0].size).ok());
  publisher->Discard();
  PublishStep(*publisher, 2);
  ExpectReaches(0, 1);
}

// A single owner's payload is uploaded by its commit.
TEST_F(PublisherTest, UploadOfASingleOwner) {
  const auto publisher = Open(Options());
  trainer_.Step(1);
  ASSERT_TRUE(publisher->Begin().ok());
  const std::vector<SourceTensor> sources = SourcesOf(trainer_);
  ASSERT_TRUE(publisher->Put(std::span<const SourceTensor>(sources)).ok());
  ASSERT_TRUE(publisher->Upload().ok());
  ASSERT_TRUE(publisher->Commit().ok());
  EXPECT_EQ(publisher->Upload().code(), StatusCode::kInvalidArgument);
  ExpectReaches(0, 1);
}

}  // namespace
}  // namespace segue
