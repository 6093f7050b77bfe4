// SPDX-License-Identifier: Apache-2.0
//
// A receiver whose weights lie in the memory of a GPU: the fake driver's, which faults when code of
// the host follows one of its addresses. Every path of the receiver that reads or writes weights:
// binding, updates in every profile, views, a wrong base, scrub, rebuild, a driver that fails.
#include <gtest/gtest.h>

#include <atomic>
#include <charconv>
#include <cstdlib>
#include <functional>
#include <future>
#include <optional>
#include <thread>

#include "checkpoint/checkpoint.h"
#include "device/cuda/testing.h"
#include "segue/receiver.h"
#include "segue/view.h"
#include "sync/testing.h"

namespace segue::cuda {
namespace {

using std::chrono::milliseconds;

class ReceiverCudaTest : public ::testing::Test {
 protected:
  ReceiverCudaTest() { setenv("SEGUE_CUDA_DRIVER", SEGUE_FAKE_CUDA, 1); }
  ~ReceiverCudaTest() override { unsetenv("SEGUE_CUDA_DRIVER"); }

  void Advance(std::uint64_t seed, std::uint64_t every = 500,
               const std::string& profile = "sparse-zstd") {
    trainer_.Step(seed, every);
    PublishOptions options = test::PublishOf(store_, trainer_.Directory(trainer_.version() - 1),
                                             trainer_.Directory(trainer_.version()));
    options.profile = profile;
    const auto published = Publish(options);
    ASSERT_TRUE(published.ok()) << published.status().ToString();
  }

  ReceiverOptions Options() const {
    ReceiverOptions options;
    options.store = store_;
    options.checkpoint = trainer_.Directory(0);
    options.staging = directory_.File("staging");
    options.threads = 2;
    options.catch_up = false;
    return options;
  }

  // Version 0 in device memory, one buffer a tensor.
  BoundModel Bind() {
    const Checkpoint base = Checkpoint::Open(trainer_.Directory(0)).value();
    BoundModel model;
    model.device = "cuda:0";
    for (std::size_t i = 0; i < base.tensors().size(); ++i) {
      const TensorSpec& spec = base.tensors()[i].spec;
      const ByteSpan bytes = base.TensorBytes(i);
      buffers_[spec.name] = std::make_unique<DeviceBytes>(
          fake_.driver, bytes.empty() ? ByteSpan(ByteVector(1)) : bytes);
      model.tensors.push_back({.name = spec.name,
                               .dtype = std::string(DtypeName(spec.dtype)),
                               .shape = spec.shape,
                               .data = AddressOf(spec.name),
                               .size = bytes.size()});
    }
    model.close_gate = [](milliseconds) { return Status(); };
    model.open_gate = [] { return Status(); };
    return model;
  }
  std::byte* AddressOf(const std::string& name) {
    return reinterpret_cast<std::byte*>(buffers_.at(name)->address());
  }

  void ExpectLive(std::uint64_t version) {
    const Checkpoint expected = Checkpoint::Open(trainer_.Directory(version)).value();
    for (std::size_t i = 0; i < expected.tensors().size(); ++i) {
      const std::string& name = expected.tensors()[i].spec.name;
      const ByteSpan bytes = expected.TensorBytes(i);
      if (bytes.empty()) continue;
      EXPECT_EQ(buffers_.at(name)->Read(), ByteVector(bytes.begin(), bytes.end())) << name;
    }
  }

  // An update to the newest version, ready to be applied.
  static Status Prepare(Receiver& receiver, const std::string& session) {
    PrepareRequest request;
    request.session = session;
    SEGUE_RETURN_IF_ERROR(receiver.Prepare(request));
    return receiver.WaitPrepared();
  }

  static Result<UpdateReport> UpdateTo(Receiver& receiver, std::uint64_t version) {
    PrepareRequest request;
    request.session = "to " + std::to_string(version);
    request.target_version = version;
    return receiver.Update(request);
  }

  FakeDriver fake_;
  std::map<std::string, std::unique_ptr<DeviceBytes>> buffers_;
  test::TemporaryDirectory directory_;
  test::MiniTrainer trainer_{directory_.path()};
  std::string store_ = directory_.File("store");
};

TEST_F(ReceiverCudaTest, TakesVersionsOfEveryProfile) {
  std::uint64_t version = 0;
  for (const char* profile : {"sparse-zstd", "snappy-zstd", "lz4-zstd", "zstd"}) {
    Advance(++version, 300, profile);
  }
  const auto receiver = Must(Receiver::Open(Options(), Bind()));
  EXPECT_EQ(receiver->status().version, 0u);
  for (std::uint64_t to = 1; to <= version; ++to) {
    const auto report = UpdateTo(*receiver, to);
    ASSERT_TRUE(report.ok()) << report.status().ToString();
    ExpectLive(to);
  }
}

TEST_F(ReceiverCudaTest, TakesSeveralStepsAsOneAndDenseOnes) {
  Advance(1, 500);
  Advance(2, 3);  // So many changes that chunks are no longer sparse.
  Advance(3, 500);
  const auto receiver = Must(Receiver::Open(Options(), Bind()));
  const auto report = UpdateTo(*receiver, 3);
  ASSERT_TRUE(report.ok()) << report.status().ToString();
  EXPECT_EQ(report->steps, 3u);
  ExpectLive(3);
}

TEST_F(ReceiverCudaTest, ATransposedTensorIsUpdatedInItsPlace) {
  Advance(1);
  BoundModel model = Bind();
  const Checkpoint base = Checkpoint::Open(trainer_.Directory(0)).value();
  const auto transposed = [](const Checkpoint& checkpoint) {
    ByteVector result(300 * 1000 * 2);
    for (std::size_t i = 0; i < checkpoint.tensors().size(); ++i) {
      if (checkpoint.tensors()[i].spec.name != "a.weight") continue;
      const ByteSpan bytes = checkpoint.TensorBytes(i);
      for (std::size_t r = 0; r < 300; ++r) {
        for (std::size_t c = 0; c < 1000; ++c) {
          std::copy_n(&bytes[(r * 1000 + c) * 2], 2, &result[(c * 300 + r) * 2]);
        }
      }
    }
    return result;
  };
  const DeviceBytes live(fake_.driver, transposed(base));
  for (BoundTensor& tensor : model.tensors) {
    if (tensor.name != "a.weight") continue;
    tensor.data = live.data();
    tensor.view = TransposedView(300, 1000, 2);
  }
  const auto receiver = Must(Receiver::Open(Options(), std::move(model)));
  ASSERT_TRUE(UpdateTo(*receiver, 1).ok());
  EXPECT_EQ(live.Read(), transposed(Checkpoint::Open(trainer_.Directory(1)).value()));
}

// cases C2 and D9
TEST_F(ReceiverCudaTest, WeightsThatAreNoVersionAreRefused) {
  Advance(1);
  BoundModel model = Bind();
  const DeviceBytes other(fake_.driver, ByteVector(300 * 1000 * 2, std::byte{7}));
  for (BoundTensor& tensor : model.tensors) {
    if (tensor.name == "a.weight") tensor.data = reinterpret_cast<std::byte*>(other.address());
  }
  const auto receiver = Receiver::Open(Options(), std::move(model));
  EXPECT_EQ(receiver.status().code(), StatusCode::kVersionMismatch);
}

TEST_F(ReceiverCudaTest, MemoryThatIsNotTheDevicesIsRefusedByName) {
  Advance(1);
  BoundModel model = Bind();
  ByteVector host(70000);
  for (BoundTensor& tensor : model.tensors) {
    if (tensor.name == "b.weight") tensor.data = host.data();
  }
  const auto receiver = Receiver::Open(Options(), std::move(model));
  EXPECT_EQ(receiver.status().code(), StatusCode::kInvalidArgument);
  EXPECT_NE(receiver.status().message().find("b.weight"), std::string::npos);
}

TEST_F(ReceiverCudaTest, AScrubFindsAWrongByteAndARebuildLeadsOut) {
  Advance(1);
  ReceiverOptions options = Options();
  options.scrub_rate = 1 << 30;
  const auto receiver = Must(Receiver::Open(options, Bind()));
  ASSERT_TRUE(UpdateTo(*receiver, 1).ok());
  while (receiver->status().scrub_passes < 2) std::this_thread::sleep_for(milliseconds(5));
  ByteVector wrong = buffers_.at("b.weight")->Read();
  wrong[12345] ^= std::byte{4};
  buffers_.at("b.weight")->Write(wrong);
  while (receiver->status().scrub_faults == 0) std::this_thread::sleep_for(milliseconds(5));
  EXPECT_FALSE(receiver->status().ready);
  ASSERT_TRUE(receiver->Rebuild(1).ok());
  EXPECT_TRUE(receiver->status().ready);
  ExpectLive(1);
}

// A device that fails while an update is prepared leaves the old version serving; one that fails in
// the pause leaves the weights unknown, and only a rebuild leads out.
TEST_F(ReceiverCudaTest, AFailingDeviceChangesNothingBeforeThePauseAndPoisonsInIt) {
  Advance(1);
  const auto receiver = Must(Receiver::Open(Options(), Bind()));
  PrepareRequest request;
  request.session = "a";
  request.target_version = 1;
  fake_.Fail("cuLaunchKernel", 0, CUDA_ERROR_ILLEGAL_ADDRESS);
  ASSERT_TRUE(receiver->Prepare(request).ok());
  EXPECT_EQ(receiver->WaitPrepared().code(), StatusCode::kInternal);
  EXPECT_TRUE(receiver->status().ready);
  ExpectLive(0);

  request.session = "b";
  ASSERT_TRUE(receiver->Prepare(request).ok());
  ASSERT_TRUE(receiver->WaitPrepared().ok());
  fake_.Fail("cuStreamSynchronize", 0, CUDA_ERROR_ILLEGAL_ADDRESS);
  EXPECT_EQ(receiver->Apply("b").code(), StatusCode::kTainted);
  EXPECT_FALSE(receiver->status().ready);
  EXPECT_EQ(receiver->Resume("b").code(), StatusCode::kTainted);
  ASSERT_TRUE(receiver->Rebuild(1).ok());
  ExpectLive(1);
}

// What fails in the pause before a byte is written leaves the update prepared and the gate open: a
// graph that somebody captures, memory for slots that are not kept.
TEST_F(ReceiverCudaTest, WhatFailsBeforeTheFirstStoreLeavesItPrepared) {
  Advance(1, 300, "lz4-zstd");
  BoundModel model = Bind();
  model.device_options.keep_slots = false;
  int closed = 0;
  model.close_gate = [&](milliseconds) {
    ++closed;
    return Status();
  };
  model.open_gate = [&] {
    --closed;
    return Status();
  };
  const auto receiver = Must(Receiver::Open(Options(), std::move(model)));
  const int open = closed;
  ASSERT_TRUE(Prepare(*receiver, "a").ok());
  for (const std::string symbol :
       {"cuCtxPushCurrent_v2", "cuCtxSynchronize", "cuMemAlloc_v2", "a capture"}) {
    SCOPED_TRACE(symbol);
    fake_.Fail(symbol.c_str(), 0, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    fake_.Capture(symbol == "a capture");
    EXPECT_EQ(receiver->Apply("a").code(), StatusCode::kInternal);
    fake_.Fail("none", 0);
    fake_.Capture(false);
    EXPECT_EQ(receiver->status().state, ReceiverState::kPrepared);
    EXPECT_TRUE(receiver->status().ready);
    EXPECT_EQ(closed, open);
    ExpectLive(0);
  }
  ASSERT_TRUE(receiver->Apply("a").ok());
  ASSERT_TRUE(receiver->Resume("a").ok());
  EXPECT_EQ(closed, open);
  ExpectLive(1);
}

TEST_F(ReceiverCudaTest, StatusAnswersWhileADeviceTakesItsTimeToGiveMemoryBack) {
  Advance(1);
  BoundModel model = Bind();
  model.device_options.keep_slots = false;
  const auto receiver = Must(Receiver::Open(Options(), std::move(model)));
  ASSERT_TRUE(Prepare(*receiver, "a").ok());
  ASSERT_TRUE(receiver->Apply("a").ok());
  const auto state_meanwhile = [&](const std::function<Status()>& call) {
    std::future<ReceiverState> state;
    auto ask = [&] {
      state = std::async(std::launch::async, [&] { return receiver->status().state; });
      EXPECT_EQ(state.wait_for(std::chrono::seconds(60)), std::future_status::ready);
    };
    fake_.Hook("cuMemFree_v2", ask);
    const Status called = call();
    EXPECT_TRUE(called.ok()) << called.ToString();
    EXPECT_TRUE(state.valid());
    return state.valid() ? state.get() : ReceiverState::kIdle;
  };
  EXPECT_EQ(state_meanwhile([&] { return receiver->Resume("a"); }), ReceiverState::kResuming);
  Advance(2);
  ASSERT_TRUE(Prepare(*receiver, "b").ok());
  EXPECT_EQ(state_meanwhile([&] { return receiver->Abort("b"); }), ReceiverState::kAborted);
  ASSERT_TRUE(Prepare(*receiver, "c").ok());
  ASSERT_TRUE(receiver->Apply("c").ok());
  ASSERT_TRUE(receiver->Resume("c").ok());
  ExpectLive(2);
}

// A prepare that was aborted gives memory back behind its end; the next one waits for that.
TEST_F(ReceiverCudaTest, StatusAnswersWhileTheNextUpdateWaitsForMemoryOfTheOneBefore) {
  Advance(1);
  BoundModel model = Bind();
  model.device_options.keep_slots = false;
  const auto receiver = Must(Receiver::Open(Options(), std::move(model)));
  const auto request = [](const char* session) {
    PrepareRequest made;
    made.session = session;
    return made;
  };
  std::future<Status> aborted;
  std::future<Status> next;
  std::optional<ReceiverState> state;
  std::atomic<bool> has_asked{false};
  std::function<void()> at_free = [&] {
    if (receiver->status().state != ReceiverState::kAborted) {
      fake_.Hook("cuMemFree_v2", at_free);
      return;
    }
    next = std::async(std::launch::async, [&] { return receiver->Prepare(request("b")); });
    auto asked = std::async(std::launch::async, [&] {
      while (receiver->status().state == ReceiverState::kAborted) std::this_thread::yield();
      return receiver->status().state;
    });
    ASSERT_EQ(asked.wait_for(std::chrono::seconds(60)), std::future_status::ready);
    state = asked.get();
    has_asked = true;
  };
  auto in_preflight = [&] {
    aborted = std::async(std::launch::async, [&] { return receiver->Abort("a"); });
    std::this_thread::sleep_for(milliseconds(50));
    fake_.Hook("cuMemFree_v2", at_free);
  };
  fake_.Hook("cuLaunchKernel", in_preflight);
  ASSERT_TRUE(receiver->Prepare(request("a")).ok());
  while (!has_asked) std::this_thread::yield();
  EXPECT_TRUE(aborted.get().ok());
  EXPECT_TRUE(next.get().ok());
  EXPECT_EQ(state, ReceiverState::kPreparing);
  const Status prepared = receiver->WaitPrepared();
  ASSERT_TRUE(prepared.ok()) << prepared.ToString();
  ASSERT_TRUE(receiver->Apply("b").ok());
  ASSERT_TRUE(receiver->Resume("b").ok());
  ExpectLive(1);
}

// Who begins while another gives memory back waits for that, so that both never hold theirs.
TEST_F(ReceiverCudaTest, NothingIsStagedWhileMemoryIsGivenBack) {
  Advance(1);
  const auto receiver = Must(Receiver::Open(Options(), Bind()));
  ASSERT_TRUE(Prepare(*receiver, "a").ok());
  std::future<Status> begun;
  std::uint64_t held = 0;
  auto ask = [&] {
    begun = std::async(std::launch::async, [&] {
      PrepareRequest next;
      next.session = "b";
      return receiver->Prepare(next);
    });
    EXPECT_EQ(begun.wait_for(milliseconds(200)), std::future_status::timeout);
    held = fake_.Count().launches;
  };
  fake_.Hook("cuCtxPushCurrent_v2", ask);
  const std::uint64_t before = fake_.Count().launches;
  ASSERT_TRUE(receiver->Abort("a").ok());
  EXPECT_EQ(held, before);
  ASSERT_TRUE(begun.valid());
  EXPECT_TRUE(begun.get().ok());
  ASSERT_TRUE(receiver->WaitPrepared().ok());
  ASSERT_TRUE(receiver->Apply("b").ok());
  ASSERT_TRUE(receiver->Resume("b").ok());
  ExpectLive(1);
}

TEST_F(ReceiverCudaTest, BoundWeightsNeedAGate) {
  for (const bool closes : {false, true}) {
    BoundModel model = Bind();
    if (closes) {
      model.open_gate = nullptr;
    } else {
      model.close_gate = nullptr;
    }
    const auto refused = Receiver::Open(Options(), std::move(model)).status();
    EXPECT_EQ(refused.code(), StatusCode::kInvalidArgument) << refused.ToString();
    EXPECT_NE(refused.message().find("close_gate"), std::string::npos);
  }
}

// One of two ranks cannot write its checkpoint's bytes: the other hears of it, and does not wait
// until its deadline for a rank that never comes.
TEST_F(ReceiverCudaTest, ARebuildThatFailsAtOneRankFailsAtBothAtOnce) {
  Advance(1);
  BoundModel models[2];
  BoundModel all = Bind();
  for (BoundModel& model : models) {
    model.device = all.device;
    model.close_gate = all.close_gate;
    model.open_gate = all.open_gate;
  }
  for (BoundTensor& tensor : all.tensors) {
    models[tensor.name == "a.weight" ? 0 : 1].tensors.push_back(tensor);
  }
  constexpr milliseconds kDeadline(60'000);
  const auto sums = MakeLocalRanks(2, kDeadline);
  std::unique_ptr<Receiver> receivers[2];
  const auto on_both = [&](auto call) {
    std::jthread other([&] { call(1); });
    call(0);
  };
  on_both([&](int rank) {
    models[rank].sum_over_ranks = sums[static_cast<std::size_t>(rank)];
    receivers[rank] = Must(Receiver::Open(Options(), std::move(models[rank])));
  });
  fake_.Fail("cuLaunchKernel", 0, CUDA_ERROR_ILLEGAL_ADDRESS);
  Status rebuilt[2];
  const auto begun = std::chrono::steady_clock::now();
  on_both([&](int rank) { rebuilt[rank] = receivers[rank]->Rebuild(0); });
  EXPECT_LT(std::chrono::steady_clock::now() - begun, kDeadline / 2);
  for (int rank : {0, 1}) {
    EXPECT_FALSE(rebuilt[rank].ok());
    EXPECT_FALSE(receivers[rank]->status().ready);
  }
  on_both([&](int rank) { rebuilt[rank] = receivers[rank]->Rebuild(1); });
  for (const Status& status : rebuilt) EXPECT_TRUE(status.ok()) << status.ToString();
  ExpectLive(1);
}

TEST_F(ReceiverCudaTest, EachDecoderTakesVersionsOfDenseProfiles) {
  fake_.SetEngine();
  Advance(1, 300, "snappy-zstd");
  Advance(2, 300, "lz4-zstd");
  setenv("SEGUE_NVCOMP", SEGUE_FAKE_NVCOMP, /*overwrite=*/1);
  for (const char* decoder : {"", "engine", "multiprocessors", "nvcomp", "processor"}) {
    SCOPED_TRACE(decoder);
    BoundModel model = Bind();
    model.device_options.decoder = decoder;
    const auto receiver = Must(Receiver::Open(Options(), std::move(model)));
    const std::uint64_t batches = fake_.Count().decompressions;
    for (std::uint64_t to : {1, 2}) {
      const auto report = UpdateTo(*receiver, to);
      ASSERT_TRUE(report.ok()) << report.status().ToString();
      EXPECT_GT(report->device_bytes, 1'000'000u);
      ExpectLive(to);
    }
    const std::string used = receiver->status().decoder;
    EXPECT_EQ(used, *decoder == 0 ? "engine" : decoder);
    EXPECT_EQ(fake_.Count().decompressions > batches, used == "engine");
  }
  unsetenv("SEGUE_NVCOMP");
  BoundModel model = Bind();
  model.device_options.decoder = "abacus";
  EXPECT_EQ(Receiver::Open(Options(), std::move(model)).status().code(),
            StatusCode::kInvalidArgument);
}

// Refused in the prepare, in the pause, and then no more: each version is there all the same.
TEST_F(ReceiverCudaTest, AnEngineThatRefusesDelaysNothing) {
  fake_.SetEngine();
  for (std::uint64_t to : {1, 2, 3}) Advance(to, 300, "lz4-zstd");
  const auto receiver = Must(Receiver::Open(Options(), Bind()));
  const char* const used[] = {"multiprocessors", "processor", "engine"};
  for (std::uint64_t to : {1, 2, 3}) {
    SCOPED_TRACE(to);
    if (to < 3) fake_.EngineGoesWrong(kFakeEngineFails, to == 1 ? 0 : 1);
    const auto report = UpdateTo(*receiver, to);
    ASSERT_TRUE(report.ok()) << report.status().ToString();
    EXPECT_EQ(receiver->status().decoder, used[to - 1]);
    EXPECT_TRUE(receiver->status().ready);
    ExpectLive(to);
  }
}

// case H2: too little memory is said before the pause, and the old version serves on.
TEST_F(ReceiverCudaTest, AnUpdateThatDoesNotFitIsRefusedBeforeThePause) {
  Advance(1);
  BoundModel model = Bind();
  model.device_options.memory_max = 4'000'000;
  const auto receiver = Must(Receiver::Open(Options(), std::move(model)));
  PrepareRequest request;
  request.session = "a";
  ASSERT_TRUE(receiver->Prepare(request).ok());
  const Status refused = receiver->WaitPrepared();
  EXPECT_EQ(refused.code(), StatusCode::kResourceExhausted);
  EXPECT_NE(refused.message().find("memory_max"), std::string::npos) << refused.message();
  EXPECT_TRUE(receiver->status().ready);
  ExpectLive(0);
}

// What is said to be the least is enough, and one byte less is not.
TEST_F(ReceiverCudaTest, ARefusalSaysTheLeastThatWouldDo) {
  Advance(1, 300, "snappy-zstd");
  const auto update_within = [&](std::uint64_t budget) -> Status {
    BoundModel model = Bind();
    model.device_options.memory_max = budget;
    auto receiver = Receiver::Open(Options(), std::move(model));
    if (!receiver.ok()) return receiver.status();
    const Status updated = UpdateTo(**receiver, 1).status();
    if (updated.ok()) ExpectLive(1);
    return updated;
  };
  std::uint64_t budget = 1;
  int refusals = 0;
  for (Status status = update_within(budget); !status.ok(); status = update_within(budget)) {
    ASSERT_EQ(status.code(), StatusCode::kResourceExhausted) << status.ToString();
    const std::size_t place = status.message().find("at least ");
    ASSERT_NE(place, std::string::npos) << status.message();
    const char* const text = status.message().c_str() + place + 9;
    std::uint64_t least = 0;
    (void)std::from_chars(text, status.message().c_str() + status.message().size(), least);
    ASSERT_GT(least, budget) << status.message();
    budget = least;
    ++refusals;
  }
  EXPECT_LE(refusals, 2);  // Of binding, which does not know the update; of the update.
  EXPECT_EQ(update_within(budget - 1).code(), StatusCode::kResourceExhausted);
}

TEST_F(ReceiverCudaTest, AClearGivesStagingBackAndTheNextUpdateTakesItAgain) {
  Advance(1);
  Advance(2);
  BoundModel model = Bind();
  model.device_options.memory_max = 64'000'000;
  const auto receiver = Must(Receiver::Open(Options(), std::move(model)));
  for (std::uint64_t to : {1, 2}) {
    const auto report = UpdateTo(*receiver, to);
    ASSERT_TRUE(report.ok()) << report.status().ToString();
    EXPECT_LE(report->device_bytes, 64'000'000u);
    ExpectLive(to);
    EXPECT_GT(fake_.Count().pinned_bytes, 0u);
    ASSERT_TRUE(receiver->Clear().ok());
    EXPECT_EQ(fake_.Count().pinned_bytes, 0u);
  }
}

TEST_F(ReceiverCudaTest, ADeviceThatIsNotThereIsSaid) {
  Advance(1);
  for (const char* name : {"cuda:7", "cuda:x", "rocm:0"}) {
    BoundModel model = Bind();
    model.device = name;
    const auto receiver = Receiver::Open(Options(), std::move(model));
    EXPECT_FALSE(receiver.ok()) << name;
  }
}

}  // namespace
}  // namespace segue::cuda
