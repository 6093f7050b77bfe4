// SPDX-License-Identifier: Apache-2.0
//
// The publisher of buffers: what it publishes is what checkpoints would give, its baseline moves
// with durable versions alone (case D2), several owners make one version or none (case G7).
#include "segue/publisher.h"

#include <gmock/gmock.h>
#include <sys/resource.h>

#include <algorithm>
#include <csignal>
#include <cstring>
#include <map>
#include <set>
#include <thread>

#include "segue/inspect.h"
#include "sync/lineage.h"
#include "sync/testing.h"

namespace segue {
namespace {

using test::ApplyOf;
using test::CopyOf;
using test::SameFiles;
using testing::HasSubstr;
using testing::IsEmpty;

std::vector<SourceTensor> SourcesOf(test::MiniTrainer& trainer) {
  std::vector<SourceTensor> sources;
  for (const test::TestTensor& tensor : trainer.tensors()) {
    sources.push_back({tensor.spec.name, std::string(DtypeName(tensor.spec.dtype)),
                       tensor.spec.shape, tensor.bytes.data(), tensor.bytes.size()});
  }
  return sources;
}

Status PutAlone(Publisher& publisher, const SourceTensor& tensor) {
  SEGUE_RETURN_IF_ERROR(publisher.Begin());
  Status status = publisher.Put(tensor);
  publisher.Discard();
  return status;
}

// Every second tensor, from the owner's number on; the others without bytes.
std::vector<SourceTensor> SourcesOf(test::MiniTrainer& trainer, std::uint32_t owner,
                                    std::uint32_t owner_count) {
  std::vector<SourceTensor> sources = SourcesOf(trainer);
  for (std::size_t i = 0; i < sources.size(); ++i) {
    if (i % owner_count != owner) sources[i].data = nullptr;
  }
  return sources;
}

class PublisherTest : public testing::Test {
 protected:
  PublisherOptions Options() const {
    PublisherOptions options;
    options.store = store_;
    options.chunk_size = 65536;
    options.threads = 2;
    return options;
  }
  std::unique_ptr<Publisher> Open(const PublisherOptions& options) {
    auto publisher = Publisher::Open(options, SourcesOf(trainer_));
    EXPECT_TRUE(publisher.ok()) << publisher.status().ToString();
    return std::move(publisher).value();
  }
  PublishReport PublishStep(Publisher& publisher, std::uint64_t seed, std::uint64_t every = 500) {
    trainer_.Step(seed, every);
    const auto report = publisher.Publish(SourcesOf(trainer_));
    EXPECT_TRUE(report.ok()) << report.status().ToString();
    return report.ok() ? report.value() : PublishReport();
  }
  // An engine at version `from` of the trainer's files comes to the newest version's bytes.
  void ExpectReaches(std::uint64_t from, std::uint64_t version) {
    const std::string engine =
        CopyOf(trainer_.Directory(from), directory_.File("engine" + std::to_string(engines_++)));
    ApplyOptions options = ApplyOf(store_, engine);
    options.output = engine + "-new";
    const auto report = Apply(options);
    ASSERT_TRUE(report.ok()) << report.status().ToString();
    EXPECT_EQ(report->target_version, version);
    VerifyOptions verify;
    verify.checkpoint = options.output;
    verify.against = trainer_.Directory(trainer_.version());
    const auto verified = Verify(verify);
    EXPECT_TRUE(verified.ok()) << verified.status().ToString();
  }

  test::TemporaryDirectory directory_;
  test::MiniTrainer trainer_{directory_.path()};
  std::string store_ = directory_.File("store");
  int engines_ = 0;
};

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

// No write beyond this size succeeds while it lives: a disk that fills up in the middle.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(std::uint64_t size) : handler_(std::signal(SIGXFSZ, SIG_IGN)) {
    EXPECT_EQ(::getrlimit(RLIMIT_FSIZE, &before_), 0);
    rlimit limit = before_;
    limit.rlim_cur = size;
    EXPECT_EQ(::setrlimit(RLIMIT_FSIZE, &limit), 0);
  }
  ~FileSizeLimit() {
    EXPECT_EQ(::setrlimit(RLIMIT_FSIZE, &before_), 0);
    (void)std::signal(SIGXFSZ, handler_);
  }

 private:
  void (*handler_)(int);
  rlimit before_ = {};
};

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

// --- several owners

class OwnersOfPublisherTest : public PublisherTest {
 protected:
  static constexpr std::uint32_t kOwners = 3;
  PublisherOptions OwnerOptions(std::uint32_t owner, double timeout_seconds) const {
    PublisherOptions options = Options();
    options.owner = owner;
    options.owner_count = kOwners;
    options.session = "job";
    options.owner_timeout_seconds = timeout_seconds;
    return options;
  }
  void OpenOwners(double timeout_seconds) {
    for (std::uint32_t owner = 0; owner < kOwners; ++owner) {
      auto publisher = Publisher::Open(OwnerOptions(owner, timeout_seconds),
                                       SourcesOf(trainer_, owner, kOwners));
      ASSERT_TRUE(publisher.ok()) << publisher.status().ToString();
      owners_.push_back(std::move(publisher).value());
    }
  }
  // What each owner's call returns; those of `dead` are not made.
  std::vector<Status> PublishAll(std::uint64_t version, const std::set<std::uint32_t>& dead = {}) {
    std::vector<Status> outcome(kOwners);
    std::vector<std::jthread> threads;
    for (std::uint32_t owner = 0; owner < kOwners; ++owner) {
      if (dead.contains(owner)) continue;
      threads.emplace_back([&, owner] {
        outcome[owner] =
            owners_[owner]->Publish(SourcesOf(trainer_, owner, kOwners), version).status();
      });
    }
    threads.clear();
    return outcome;
  }

  std::vector<std::unique_ptr<Publisher>> owners_;
};

TEST_F(OwnersOfPublisherTest, OneVersionOfAll) {
  OpenOwners(30);
  for (std::uint64_t version = 1; version <= 3; ++version) {
    trainer_.Step(version);
    for (const Status& status : PublishAll(version)) {
      ASSERT_TRUE(status.ok()) << status.ToString();
    }
    for (const auto& owner : owners_) EXPECT_EQ(owner->version(), version);
  }
  ExpectReaches(0, 3);
  ExpectReaches(2, 3);
  const auto store = OpenStore(store_, false).value();
  EXPECT_EQ(Lineage::Open(*store, "default")->manifests().at(3).payloads.size(), kOwners);
}

// Owners that agree before they commit: one whose upload fails costs nobody a wait, nothing is
// visible, and the next version has the changes.
TEST_F(OwnersOfPublisherTest, UploadsBeforeTheCommit) {
  OpenOwners(30);
  const auto upload_all = [&](std::uint64_t version) {
    for (std::uint32_t owner = 0; owner < kOwners; ++owner) {
      ASSERT_TRUE(owners_[owner]->Begin(version).ok());
      const auto sources = SourcesOf(trainer_, owner, kOwners);
      EXPECT_THAT(owners_[owner]->Upload().message(), HasSubstr("not put"));
      ASSERT_TRUE(owners_[owner]->Put(std::span<const SourceTensor>(sources)).ok());
    }
  };
  trainer_.Step(1);
  upload_all(1);
  ASSERT_TRUE(owners_[0]->Upload().ok());
  {
    const FileSizeLimit limit(10);
    EXPECT_THAT(owners_[1]->Upload().message(), HasSubstr("the version was discarded"));
  }
  EXPECT_THAT(owners_[1]->Commit().status().message(), HasSubstr("no version is begun"));
  for (const auto& owner : owners_) owner->Discard();

  trainer_.Step(2);
  upload_all(2);
  for (const auto& owner : owners_) ASSERT_TRUE(owner->Upload().ok());
  ASSERT_TRUE(owners_[0]->Upload().ok());  // Once more is nothing.
  const auto store = OpenStore(store_, false).value();
  EXPECT_TRUE(Lineage::ListVersions(*store, "default")->empty());
  std::vector<Status> outcome(kOwners);
  {
    std::vector<std::jthread> threads;
    for (std::uint32_t owner = 0; owner < kOwners; ++owner) {
      threads.emplace_back([&, owner] { outcome[owner] = owners_[owner]->Commit().status(); });
    }
  }
  for (const Status& status : outcome) EXPECT_TRUE(status.ok()) << status.ToString();
  ExpectReaches(0, 2);
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

// case G7: a dead rank gives no version and an error on all; the next attempt has everybody's
// changes.
TEST_F(OwnersOfPublisherTest, DeadRank) {
  OpenOwners(0.2);
  trainer_.Step(1);
  const auto outcome = PublishAll(1, {2});
  EXPECT_EQ(outcome[0].code(), StatusCode::kUnavailable);
  EXPECT_THAT(outcome[0].message(), HasSubstr("owner 2 of 3"));
  EXPECT_EQ(outcome[1].code(), StatusCode::kUnavailable);
  EXPECT_THAT(outcome[1].message(), HasSubstr("not made version 1 visible"));
  const auto store = OpenStore(store_, false).value();
  EXPECT_TRUE(Lineage::ListVersions(*store, "default")->empty());
  for (const auto& owner : owners_) EXPECT_EQ(owner->version(), std::nullopt);
  // The job starts anew from the last durable version, under a session of its own.
  owners_.clear();
  for (std::uint32_t owner = 0; owner < kOwners; ++owner) {
    PublisherOptions options = OwnerOptions(owner, 30);
    options.session = "job-again";
    std::vector<std::string> owned;
    for (const SourceTensor& tensor : SourcesOf(trainer_, owner, kOwners)) {
      if (tensor.data != nullptr) owned.push_back(tensor.name);
    }
    auto publisher = Publisher::Open(options, trainer_.Directory(0), owned);
    ASSERT_TRUE(publisher.ok()) << publisher.status().ToString();
    owners_.push_back(std::move(publisher).value());
  }
  for (const Status& status : PublishAll(1)) EXPECT_TRUE(status.ok()) << status.ToString();
  ExpectReaches(0, 1);
}

// A new job that begins to count anew: an owner whose tensors do not change has the payload of
// every version. It must not take an old one for its own that owner 0 refuses.
TEST_F(OwnersOfPublisherTest, OldNumberAfterARestart) {
  OpenOwners(30);
  for (std::uint64_t version = 1; version <= 3; ++version) {
    trainer_.tensors()[0].bytes[version] ^= std::byte{1};
    for (const Status& status : PublishAll(version)) {
      ASSERT_TRUE(status.ok()) << status.ToString();
    }
  }
  for (const auto& status : PublishAll(2)) {
    EXPECT_THAT(status.message(), HasSubstr("comes before the one that the publisher is at, 3"));
  }
  owners_.clear();
  for (std::uint32_t owner = 0; owner < kOwners; ++owner) {
    PublisherOptions options = OwnerOptions(owner, 0.5);
    options.session = "job-again";
    owners_.push_back(
        std::move(Publisher::Open(options, SourcesOf(trainer_, owner, kOwners))).value());
  }
  for (const std::uint64_t version : {2u, 1u, 2u}) {
    for (const Status& status : PublishAll(version)) EXPECT_FALSE(status.ok());
    for (const auto& owner : owners_) EXPECT_EQ(owner->version(), std::nullopt);
  }
  // The last step again is no other one: all know that it is there.
  for (const Status& status : PublishAll(3)) EXPECT_TRUE(status.ok()) << status.ToString();
  for (const auto& owner : owners_) EXPECT_EQ(owner->version(), 3u);
  trainer_.tensors()[1].bytes[5] ^= std::byte{1};
  for (const Status& status : PublishAll(4)) EXPECT_TRUE(status.ok()) << status.ToString();
  for (const auto& owner : owners_) EXPECT_EQ(owner->version(), 4u);
}

// What owners handed in for a step that came to nothing is in no later version, whoever failed.
TEST_F(OwnersOfPublisherTest, LeftoversNeverMatch) {
  OpenOwners(1);
  std::uint64_t version = 0;
  for (const std::uint32_t dead : {0u, 1u, 0u}) {
    trainer_.Step(10 * ++version);
    for (const Status& status : PublishAll(version, {dead})) {
      EXPECT_TRUE(status.ok() || status.code() == StatusCode::kUnavailable) << status.ToString();
    }
    trainer_.Step(10 * version + 1);
    for (const Status& status : PublishAll(version)) EXPECT_TRUE(status.ok()) << status.ToString();
    ExpectReaches(0, version);
  }
  const auto store = OpenStore(store_, false).value();
  EXPECT_THAT(store->List(object_name::OwnerFolder("default", 1, "job")).value(), IsEmpty());
}

// Versions that one owner begins and discards put it out of step with nobody.
TEST_F(OwnersOfPublisherTest, DiscardedVersionsCountForNothing) {
  OpenOwners(5);
  for (std::uint64_t version = 1; version <= 4; ++version) {
    trainer_.Step(version);
    for (std::uint64_t i = 0; i < version; ++i) {
      ASSERT_TRUE(owners_[version % kOwners]->Begin(version).ok());
      owners_[version % kOwners]->Discard();
    }
    for (const Status& status : PublishAll(version)) {
      ASSERT_TRUE(status.ok()) << status.ToString();
    }
  }
  ExpectReaches(0, 4);
}

// An owner that gave up waiting learns of the version when it begins the next.
TEST_F(OwnersOfPublisherTest, VersionThatAppearedLater) {
  trainer_.Step(1);
  for (std::uint32_t owner = 0; owner < kOwners; ++owner) {
    const auto sources = SourcesOf(trainer_, owner, kOwners);
    owners_.push_back(
        std::move(Publisher::Open(OwnerOptions(owner, owner == 1 ? 0.2 : 30), sources)).value());
  }
  trainer_.Step(2);
  std::jthread collects([&] {
    const auto report = owners_[0]->Publish(SourcesOf(trainer_, 0, kOwners), 1);
    EXPECT_TRUE(report.ok()) << report.status().ToString();
  });
  const auto given_up = owners_[1]->Publish(SourcesOf(trainer_, 1, kOwners), 1);
  EXPECT_EQ(given_up.status().code(), StatusCode::kUnavailable) << given_up.status().ToString();
  EXPECT_EQ(owners_[1]->version(), std::nullopt);
  EXPECT_TRUE(owners_[2]->Publish(SourcesOf(trainer_, 2, kOwners), 1).ok());
  collects.join();
  trainer_.Step(3);
  for (const Status& status : PublishAll(2)) EXPECT_TRUE(status.ok()) << status.ToString();
  for (const auto& owner : owners_) EXPECT_EQ(owner->version(), 2u);
  ExpectReaches(1, 2);
}

TEST_F(OwnersOfPublisherTest, TensorsOfTwoOwnersOrNone) {
  for (const bool twice : {true, false}) {
    owners_.clear();
    store_ = directory_.File(twice ? "twice" : "none");
    for (std::uint32_t owner = 0; owner < 2; ++owner) {
      PublisherOptions options = Options();
      options.owner = owner;
      options.owner_count = 2;
      options.session = "job";
      options.owner_timeout_seconds = 0.3;
      auto sources = SourcesOf(trainer_, owner, 2);
      const auto all = SourcesOf(trainer_);
      if (owner == 1) sources[0].data = twice ? all[0].data : nullptr;
      if (owner == 1 && !twice) sources[1].data = nullptr;
      owners_.push_back(std::move(Publisher::Open(options, sources)).value());
    }
    Status outcome[2];
    {
      std::jthread second([&] {
        auto sources = SourcesOf(trainer_);
        if (twice) {
          for (const int i : {2, 4}) sources[i].data = nullptr;
        } else {
          for (const int i : {0, 1, 2, 4}) sources[i].data = nullptr;
        }
        outcome[1] = owners_[1]->Publish(sources, 1).status();
      });
      outcome[0] = owners_[0]->Publish(SourcesOf(trainer_, 0, 2), 1).status();
    }
    EXPECT_EQ(outcome[0].code(), StatusCode::kInvalidArgument) << outcome[0].ToString();
    EXPECT_THAT(outcome[0].message(), HasSubstr(twice ? "'a.weight'" : "'b.weight'"));
    EXPECT_EQ(outcome[1].code(), StatusCode::kUnavailable) << outcome[1].ToString();
  }
}

// --- acknowledgement

class CohortTest : public PublisherTest {
 protected:
  CohortTest() {
    cohort_.engines = {"a", "b"};
    cohort_.timeout = std::chrono::milliseconds(30);
    cohort_.interval = std::chrono::milliseconds(5);
    cohort_.probe = [this](const std::string& engine) -> Result<EngineHolds> {
      if (!holds_.contains(engine)) return Unavailable("no answer");
      const std::uint64_t version = holds_[engine];
      return EngineHolds{true, {{"default", {version, DigestOf(version)}}}};
    };
  }

  // As the store says it.
  std::string DigestOf(std::uint64_t version) const {
    if (other_run_) return std::string(32, 'a');
    const auto store = OpenStore(store_, /*create=*/false).value();
    const auto facts = Lineage::Open(*store, "default")->Version(version);
    return facts ? facts->digest.ToHex() : "";
  }

  bool other_run_ = false;
  std::map<std::string, std::uint64_t> holds_;
  Cohort cohort_;
};

TEST_F(CohortTest, WaitsForEachEngine) {
  const auto publisher = Open(Options());
  EXPECT_EQ(publisher->WaitForAcknowledgement(cohort_).code(), StatusCode::kInvalidArgument);
  PublishStep(*publisher, 1);
  holds_ = {{"a", 1}};
  const Status behind = publisher->WaitForAcknowledgement(cohort_);
  EXPECT_EQ(behind.code(), StatusCode::kUnavailable);
  EXPECT_THAT(behind.message(), HasSubstr("engine 'b': no answer"));
  holds_ = {{"a", 1}, {"b", 0}};
  EXPECT_THAT(publisher->WaitForAcknowledgement(cohort_).message(), HasSubstr("serves version 0"));
  holds_ = {{"a", 1}, {"b", 5}};
  EXPECT_THAT(publisher->WaitForAcknowledgement(cohort_).message(), HasSubstr("not known to have"));
  holds_ = {{"a", 1}, {"b", 1}};
  EXPECT_TRUE(publisher->WaitForAcknowledgement(cohort_).ok());
  other_run_ = true;
  EXPECT_THAT(publisher->WaitForAcknowledgement(cohort_).message(), HasSubstr("another run's"));
}

// The version is published all the same, and the baseline waits; the chain has no branch.
TEST_F(CohortTest, BaselineMovesOnlyWithTheCohort) {
  PublisherOptions options = Options();
  options.cohort = cohort_;
  const auto publisher = Open(options);
  holds_ = {{"a", 1}, {"b", 0}};
  trainer_.Step(1);
  const auto waiting = publisher->Publish(SourcesOf(trainer_));
  EXPECT_EQ(waiting.status().code(), StatusCode::kUnavailable);
  EXPECT_THAT(waiting.status().message(), HasSubstr("is published"));
  EXPECT_EQ(publisher->version(), std::nullopt);
  ExpectReaches(0, 1);
  EXPECT_EQ(publisher->Begin().code(), StatusCode::kUnavailable);
  holds_ = {{"a", 1}, {"b", 1}};
  ASSERT_TRUE(publisher->Begin().ok());
  EXPECT_EQ(publisher->version(), 1u);
  publisher->Discard();
  trainer_.Step(2);
  ASSERT_FALSE(publisher->Publish(SourcesOf(trainer_)).ok());
  ASSERT_TRUE(publisher->MoveBaseline().ok());  // The caller gives up on them.
  EXPECT_EQ(publisher->version(), 2u);
  holds_ = {{"a", 3}, {"b", 3}};
  EXPECT_EQ(PublishStep(*publisher, 3).base_version, 2u);
  ExpectReaches(0, 3);
}

}  // namespace
}  // namespace segue
