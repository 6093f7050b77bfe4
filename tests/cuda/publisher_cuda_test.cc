// SPDX-License-Identifier: Apache-2.0
//
// A publisher whose trainer's tensors lie in the memory of a GPU: the fake driver's, which faults
// when code of the host follows one of its addresses. What it publishes must be byte for byte what
// a publisher of the same tensors on the host does, for every profile, place of the baseline and
// number of owners; where the device fails nothing may be published and the baseline stays (case
// D2).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <map>
#include <thread>

#include "base/file.h"
#include "device/cuda/testing.h"
#include "segue/publisher.h"
#include "sync/testing.h"

namespace segue::cuda {
namespace {

using testing::HasSubstr;

// The objects of a store that name what is published: payloads, manifests, plan, layout, lineage.
std::map<std::string, ByteVector> ObjectsOf(const std::string& store) {
  std::map<std::string, ByteVector> objects;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(store)) {
    const std::string name = std::filesystem::relative(entry.path(), store).string();
    if (!entry.is_regular_file() || name.find("/owners/") != std::string::npos) continue;
    objects[name] = ReadFile(entry.path().string(), 1u << 30).value();
  }
  return objects;
}

class PublisherCudaTest : public testing::Test {
 protected:
  PublisherCudaTest() { setenv("SEGUE_CUDA_DRIVER", SEGUE_FAKE_CUDA, 1); }
  ~PublisherCudaTest() override { unsetenv("SEGUE_CUDA_DRIVER"); }

  PublisherOptions OptionsOf(const std::string& store) const {
    PublisherOptions options;
    options.store = directory_.File(store);
    options.chunk_size = 65536;
    options.threads = 2;
    return options;
  }
  PublisherOptions OnDevice(PublisherOptions options) const {
    options.device = "cuda:0";
    options.device_memory = 4 << 20;
    return options;
  }
  std::vector<SourceTensor> OnHost() {
    std::vector<SourceTensor> sources;
    for (const test::TestTensor& tensor : trainer_.tensors()) {
      sources.push_back({tensor.spec.name, std::string(DtypeName(tensor.spec.dtype)),
                         tensor.spec.shape, tensor.bytes.data(), tensor.bytes.size()});
    }
    return sources;
  }
  // As the trainer's tensors are now, in buffers that stay where they are.
  std::vector<SourceTensor> OnGpu() {
    std::vector<SourceTensor> sources = OnHost();
    for (SourceTensor& source : sources) {
      if (source.size == 0) continue;
      const ByteSpan bytes(source.data, source.size);
      auto& buffer = buffers_[source.name];
      if (buffer == nullptr) {
        buffer = std::make_unique<DeviceBytes>(fake_.driver, bytes);
      } else {
        buffer->Write(bytes);
      }
      source.data = reinterpret_cast<const std::byte*>(buffer->address());
    }
    return sources;
  }
  static std::vector<SourceTensor> Share(std::vector<SourceTensor> sources, std::size_t owner,
                                         std::size_t owner_count) {
    for (std::size_t i = 0; i < sources.size(); ++i) {
      if (i % owner_count != owner) sources[i].data = nullptr;
    }
    return sources;
  }
  std::unique_ptr<Publisher> Open(const PublisherOptions& options) {
    return Must(Publisher::Open(options, options.device.empty() ? OnHost() : OnGpu()));
  }
  void ExpectSameStores(const std::string& found, const std::string& expected) {
    const auto left = ObjectsOf(directory_.File(found));
    const auto right = ObjectsOf(directory_.File(expected));
    ASSERT_EQ(left.size(), right.size());
    for (const auto& [name, bytes] : right) {
      ASSERT_TRUE(left.contains(name)) << name;
      EXPECT_EQ(left.at(name), bytes) << name;
    }
  }
  void PublishOnBoth(Publisher& host, Publisher& gpu, std::uint64_t seed, std::uint64_t every) {
    trainer_.Step(seed, every);
    const PublishReport expected = Must(host.Publish(OnHost()));
    const PublishReport report = Must(gpu.Publish(OnGpu()));
    EXPECT_EQ(report.target_version, expected.target_version);
    EXPECT_EQ(report.payload_bytes, expected.payload_bytes);
  }

  FakeDriver fake_;
  std::map<std::string, std::unique_ptr<DeviceBytes>> buffers_;
  test::TemporaryDirectory directory_;
  test::MiniTrainer trainer_{directory_.path()};
};

struct Case {
  const char* profile;
  bool baseline_on_host;
  std::uint64_t chunk_size;
};

class PublisherCudaCases : public PublisherCudaTest, public testing::WithParamInterface<Case> {};

TEST_P(PublisherCudaCases, PublishesWhatAPublisherOnTheHostDoes) {
  PublisherOptions options = OptionsOf("host");
  options.profile = GetParam().profile;
  options.chunk_size = GetParam().chunk_size;
  PublisherOptions gpu_options = OnDevice(options);
  gpu_options.store = directory_.File("gpu");
  gpu_options.baseline_on_host = GetParam().baseline_on_host;
  gpu_options.device_memory = 16 << 20;
  const auto host = Open(options);
  const auto gpu = Open(gpu_options);
  // Sparse, denser than sparse may be, nothing at all, and the border between the two.
  std::uint64_t seed = 0;
  for (const std::uint64_t every : {500, 2, 20, 9, 5000}) {
    PublishOnBoth(*host, *gpu, ++seed, every);
  }
  trainer_.Step(99, std::uint64_t{1} << 40);
  (void)Must(host->Publish(OnHost()));
  (void)Must(gpu->Publish(OnGpu()));
  (void)Must(host->Publish(OnHost()));
  (void)Must(gpu->Publish(OnGpu()));
  ExpectSameStores("gpu", "host");
  EXPECT_EQ(gpu->version(), host->version());
  EXPECT_EQ(gpu->baseline_bytes(), host->baseline_bytes());
}

INSTANTIATE_TEST_SUITE_P(
    All, PublisherCudaCases,
    testing::Values(Case{"sparse-zstd", false, 65536}, Case{"sparse-zstd", true, 65536},
                    Case{"sparse-zstd", false, 1 << 20}, Case{"sparse-zstd", true, 1 << 20},
                    Case{"snappy-zstd", false, 65536}, Case{"lz4-zstd", true, 65536},
                    Case{"zstd", false, 65536}));

TEST_F(PublisherCudaTest, TensorsOneByOneInAnyOrderAndUnchangedOnes) {
  const auto host = Open(OptionsOf("host"));
  const auto gpu = Open(OnDevice(OptionsOf("gpu")));
  trainer_.Step(1);
  for (Publisher* publisher : {host.get(), gpu.get()}) {
    std::vector<SourceTensor> sources = publisher == host.get() ? OnHost() : OnGpu();
    ASSERT_TRUE(publisher->Begin().ok());
    for (auto source = sources.rbegin(); source != sources.rend(); ++source) {
      if (source->size == 0) continue;
      if (source->name == "b.weight") {
        ASSERT_TRUE(publisher->PutUnchanged(source->name).ok());
      } else {
        ASSERT_TRUE(publisher->Put(source->name, source->data, source->size).ok());
      }
    }
    (void)Must(publisher->Commit());
  }
  ExpectSameStores("gpu", "host");
}

// What is put is read at once.
TEST_F(PublisherCudaTest, BuffersAreFreeAfterThePut) {
  const auto host = Open(OptionsOf("host"));
  const auto gpu = Open(OnDevice(OptionsOf("gpu")));
  trainer_.Step(1);
  (void)Must(host->Publish(OnHost()));
  ASSERT_TRUE(gpu->Begin().ok());
  ASSERT_TRUE(gpu->Put(OnGpu()).ok());
  for (auto& [name, buffer] : buffers_) buffer->Write(ByteVector(buffer->Read().size()));
  (void)Must(gpu->Commit());
  ExpectSameStores("gpu", "host");
}

// A reader and a checkpoint give bytes of the host; both places of the baseline take them. Layouts
// of a checkpoint are its own, so only payloads are the same.
TEST_F(PublisherCudaTest, OpensFromACheckpointAndFromAReader) {
  const std::vector<test::TestTensor> base = trainer_.tensors();
  const auto read = [&](const std::string& name, std::byte* to, std::uint64_t size) {
    for (const test::TestTensor& tensor : base) {
      if (tensor.spec.name == name) std::copy_n(tensor.bytes.data(), size, to);
    }
    return Status();
  };
  std::vector<std::string> names;
  for (const test::TestTensor& tensor : base) names.push_back(tensor.spec.name);
  const auto host = Open(OptionsOf("host"));
  std::vector<std::unique_ptr<Publisher>> publishers;
  for (const bool baseline_on_host : {false, true}) {
    PublisherOptions options = OnDevice(OptionsOf("gpu" + std::to_string(publishers.size())));
    options.baseline_on_host = baseline_on_host;
    publishers.push_back(Must(Publisher::Open(options, OnHost(), names, read)));
    options.store = directory_.File("gpu" + std::to_string(publishers.size()));
    publishers.push_back(Must(Publisher::Open(options, trainer_.Directory(0))));
  }
  trainer_.Step(1);
  const PublishReport expected = Must(host->Publish(OnHost()));
  for (const auto& publisher : publishers) {
    EXPECT_EQ(Must(publisher->Publish(OnGpu())).payload_bytes, expected.payload_bytes);
  }
  for (const char* store : {"gpu0", "gpu2"}) ExpectSameStores(store, "host");
  const auto payloads = [&](const std::string& store) {
    auto objects = ObjectsOf(directory_.File(store));
    std::erase_if(objects, [](const auto& object) {
      return object.first.find("/payloads/") == std::string::npos;
    });
    return objects;
  };
  for (const char* store : {"gpu1", "gpu3"}) EXPECT_EQ(payloads(store), payloads("host"));
}

TEST_F(PublisherCudaTest, SeveralOwnersEachTheirOwnTensors) {
  constexpr std::uint32_t kOwners = 2;
  trainer_.Step(1);
  for (const bool on_device : {false, true}) {
    const std::string store = on_device ? "gpu" : "host";
    test::MiniTrainer trainer(directory_.File("trainer-" + store));
    trainer_.tensors() = trainer.tensors();
    std::vector<std::unique_ptr<Publisher>> publishers;
    for (std::uint32_t owner = 0; owner < kOwners; ++owner) {
      PublisherOptions options = OptionsOf(store);
      if (on_device) options = OnDevice(options);
      options.owner = owner;
      options.owner_count = kOwners;
      options.session = "s";
      options.owner_timeout_seconds = 60;
      publishers.push_back(
          Must(Publisher::Open(options, Share(on_device ? OnGpu() : OnHost(), owner, kOwners))));
    }
    for (std::uint64_t version = 1; version <= 2; ++version) {
      trainer.Step(version, version == 1 ? 300 : 3);
      trainer_.tensors() = trainer.tensors();
      const auto sources = on_device ? OnGpu() : OnHost();
      std::vector<std::jthread> threads;
      for (std::uint32_t owner = 0; owner < kOwners; ++owner) {
        threads.emplace_back([&, owner] {
          (void)Must(publishers[owner]->Publish(Share(sources, owner, kOwners), version));
        });
      }
    }
  }
  ExpectSameStores("gpu", "host");
}

TEST_F(PublisherCudaTest, RefusesMemoryThatIsNotTheDevices) {
  const auto refused = [](const Status& status, const char* name) {
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << status.ToString();
    EXPECT_THAT(status.message(), HasSubstr(name));
    EXPECT_THAT(status.message(), HasSubstr("memory of CUDA device 0"));
  };
  refused(Publisher::Open(OnDevice(OptionsOf("gpu")), OnHost()).status(), "a.weight");
  const auto gpu = Open(OnDevice(OptionsOf("gpu")));
  trainer_.Step(1);
  ASSERT_TRUE(gpu->Begin().ok());
  std::vector<SourceTensor> wrong = OnGpu();
  refused(gpu->Put(OnHost()[0]), "a.weight");
  refused(gpu->Put("b.weight", OnHost()[1].data, OnHost()[1].size), "b.weight");
  // Another GPU's.
  fake_.SetDevices(2);
  const DeviceBytes elsewhere(fake_.driver, trainer_.tensors()[0].bytes, 1);
  refused(gpu->Put(wrong[0].name, reinterpret_cast<const std::byte*>(elsewhere.address()),
                   wrong[0].size),
          "a.weight");
  // Ends behind its buffer.
  refused(gpu->Put(wrong[0].name, wrong[0].data + 2, wrong[0].size), "a.weight");
  // The version is still begun.
  for (const SourceTensor& tensor : wrong) {
    if (tensor.size == 0) continue;
    ASSERT_TRUE(gpu->Put(tensor).ok());
  }
  EXPECT_EQ(Must(gpu->Commit()).target_version, 1u);
}

TEST_F(PublisherCudaTest, RefusesDevicesAndMemoryThatAreNotThere) {
  PublisherOptions options = OnDevice(OptionsOf("gpu"));
  options.device = "cuda:7";
  EXPECT_FALSE(Publisher::Open(options, OnGpu()).ok());
  options.device = "tpu";
  EXPECT_EQ(Publisher::Open(options, OnGpu()).status().code(), StatusCode::kUnsupported);
  options.device = "cuda:0";
  options.device_memory = 1000;
  const Status status = Publisher::Open(options, OnGpu()).status();
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(status.message(), HasSubstr("needs at least"));
}

TEST_F(PublisherCudaTest, TheBaselineIsReadWhereTheHostCan) {
  const auto on_device = Open(OnDevice(OptionsOf("one")));
  EXPECT_EQ(on_device->BaselineOf("a.weight").status().code(), StatusCode::kUnsupported);
  PublisherOptions options = OnDevice(OptionsOf("two"));
  options.baseline_on_host = true;
  const auto on_host = Open(options);
  const auto bytes = Must(on_host->BaselineOf("a.weight"));
  EXPECT_TRUE(std::ranges::equal(bytes, trainer_.tensors()[0].bytes));
}

// case D2: whatever call of the driver fails before the version is sent, nothing is published, and
// the next version is encoded against the one that is durable.
TEST_F(PublisherCudaTest, AFailureOfTheDevicePublishesNothing) {
  for (const bool baseline_on_host : {false, true}) {
    const std::string store = baseline_on_host ? "gpu-pinned" : "gpu";
    PublisherOptions options = OnDevice(OptionsOf(store));
    options.baseline_on_host = baseline_on_host;
    const auto gpu = Open(options);
    std::uint64_t seed = 10;
    std::uint64_t version = 0;
    for (const char* symbol :
         {"cuCtxPushCurrent_v2", "cuCtxSynchronize", "cuLaunchKernel", "cuMemcpyHtoDAsync_v2",
          "cuMemcpyDtoHAsync_v2", "cuMemsetD8Async", "cuEventSynchronize", "cuEventRecord"}) {
      SCOPED_TRACE(symbol);
      trainer_.Step(++seed);
      const auto sources = OnGpu();
      ASSERT_TRUE(gpu->Begin().ok());
      fake_.Fail(symbol, std::string(symbol) == "cuCtxPushCurrent_v2" ? 4 : 0,
                 CUDA_ERROR_LAUNCH_FAILED);
      const Status failed = gpu->Put(sources);
      fake_.Fail("none", 0);
      EXPECT_EQ(failed.code(), StatusCode::kInternal) << failed.ToString();
      EXPECT_EQ(gpu->version().value_or(0), version);
      trainer_.Step(++seed);
      EXPECT_EQ(Must(gpu->Publish(OnGpu())).base_version, version);
      ++version;
    }
  }
}

TEST_F(PublisherCudaTest, WithoutMemoryTheOptionThatNeedsLessIsNamed) {
  const auto sources = OnGpu();
  bool compares = false;
  bool baseline = false;
  for (unsigned skip = 0; skip < 40; ++skip) {
    fake_.Fail("cuMemAlloc_v2", skip, CUDA_ERROR_OUT_OF_MEMORY);
    const auto opened = Publisher::Open(OnDevice(OptionsOf("gpu")), sources);
    fake_.Fail("none", 0);
    const std::string message = opened.status().message();
    compares = compares || message.find("device_memory") != std::string::npos;
    baseline = baseline || message.find("baseline_on_host") != std::string::npos;
  }
  EXPECT_TRUE(compares && baseline);
}

// The proof before the version is sent needs the device too.
TEST_F(PublisherCudaTest, AFailureInTheProofPublishesNothing) {
  const auto gpu = Open(OnDevice(OptionsOf("gpu")));
  trainer_.Step(1);
  ASSERT_TRUE(gpu->Begin().ok());
  ASSERT_TRUE(gpu->Put(OnGpu()).ok());
  fake_.Fail("cuMemAlloc_v2", 0, CUDA_ERROR_INVALID_CONTEXT);
  const auto failed = gpu->Commit();
  fake_.Fail("none", 0);
  EXPECT_EQ(failed.status().code(), StatusCode::kInternal) << failed.status().ToString();
  EXPECT_FALSE(FileExists(directory_.File("gpu/default/versions")));
  trainer_.Step(2);
  EXPECT_EQ(Must(gpu->Publish(OnGpu())).target_version, 1u);
}

// After it: the version is there, and the baseline follows before the next one.
TEST_F(PublisherCudaTest, ABaselineThatCouldNotMoveMovesLater) {
  const auto host = Open(OptionsOf("host"));
  const auto gpu = Open(OnDevice(OptionsOf("gpu")));
  trainer_.Step(1);
  (void)Must(host->Publish(OnHost()));
  ASSERT_TRUE(gpu->Begin().ok());
  ASSERT_TRUE(gpu->Put(OnGpu()).ok());
  fake_.Fail("cuMemAlloc_v2", 6, CUDA_ERROR_INVALID_CONTEXT);
  const auto late = gpu->Commit();
  fake_.Fail("none", 0);
  ASSERT_EQ(late.status().code(), StatusCode::kInternal) << late.status().ToString();
  EXPECT_THAT(late.status().message(), HasSubstr("the version is published"));
  EXPECT_EQ(gpu->version(), std::nullopt);
  PublishOnBoth(*host, *gpu, 2, 500);
  ExpectSameStores("gpu", "host");
}

// In the apply itself nobody knows what the baseline is.
TEST_F(PublisherCudaTest, AFailureInTheApplyEndsThePublisher) {
  const auto gpu = Open(OnDevice(OptionsOf("gpu")));
  trainer_.Step(1);
  ASSERT_TRUE(gpu->Begin().ok());
  ASSERT_TRUE(gpu->Put(OnGpu()).ok());
  fake_.Fail("cuCtxSynchronize", 0, CUDA_ERROR_ILLEGAL_ADDRESS);
  EXPECT_EQ(gpu->Commit().status().code(), StatusCode::kTainted);
  fake_.Fail("none", 0);
  EXPECT_EQ(gpu->Begin().code(), StatusCode::kTainted);
}

// case H2
TEST_F(PublisherCudaTest, MemoryDoesNotGrowOverVersions) {
  const auto gpu = Open(OnDevice(OptionsOf("gpu")));
  SegueFakeCounts first = {};
  for (std::uint64_t version = 1; version <= 20; ++version) {
    trainer_.Step(version);
    (void)Must(gpu->Publish(OnGpu()));
    if (version == 2) first = fake_.Count();
  }
  EXPECT_EQ(fake_.Count().device_bytes, first.device_bytes);
  EXPECT_EQ(fake_.Count().objects, first.objects);
}

}  // namespace
}  // namespace segue::cuda
