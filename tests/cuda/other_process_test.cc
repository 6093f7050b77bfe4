// SPDX-License-Identifier: Apache-2.0
//
// Weights in the memory of a GPU that another process has (CUDA IPC): a child is the engine, shares
// its tensors and says in the end what they hold; this process maps them, binds a receiver to the
// addresses and updates. The fake driver of the child and that of this process share pages.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <utility>

#include "base/file.h"
#include "checkpoint/checkpoint.h"
#include "device/cuda/testing.h"
#include "segue/device_memory.h"
#include "segue/receiver.h"
#include "sync/testing.h"

namespace segue::cuda {
namespace {

using std::chrono::milliseconds;
using testing::HasSubstr;

constexpr std::uint64_t kAlignment = 512;  // As a caching allocator cuts its blocks.

// Both ways between two processes.
class Channel {
 public:
  Channel() {
    EXPECT_EQ(::pipe(down_), 0);
    EXPECT_EQ(::pipe(up_), 0);
  }
  ~Channel() {
    for (const int end : {down_[0], down_[1], up_[0], up_[1]}) {
      if (end >= 0) (void)::close(end);
    }
  }
  // Either process gives up the ends that are the other's, so that it hears when that one is gone.
  void IsEngine() { Close(down_[1], up_[0]); }
  void IsReceiver() { Close(down_[0], up_[1]); }
  bool Tell(char word) { return ::write(down_[1], &word, 1) == 1; }
  char Hear() {
    char word = 0;
    return ::read(down_[0], &word, 1) == 1 ? word : '\0';
  }
  bool Send(const void* data, std::size_t size) {
    return ::write(up_[1], data, size) == static_cast<ssize_t>(size);
  }
  bool Receive(void* data, std::size_t size) {
    auto* to = static_cast<char*>(data);
    while (size != 0) {
      const ssize_t got = ::read(up_[0], to, size);
      if (got <= 0) return false;
      to += got;
      size -= static_cast<std::size_t>(got);
    }
    return true;
  }

 private:
  static void Close(int& one, int& other) {
    (void)::close(std::exchange(one, -1));
    (void)::close(std::exchange(other, -1));
  }

  int down_[2] = {};
  int up_[2] = {};
};

// The tensors of a checkpoint that have bytes, one after the other in one allocation.
struct Packed {
  explicit Packed(const std::string& directory) : checkpoint(Checkpoint::Open(directory).value()) {
    for (std::size_t i = 0; i < checkpoint.tensors().size(); ++i) {
      const ByteSpan tensor = checkpoint.TensorBytes(i);
      if (tensor.empty()) continue;
      indexes.push_back(i);
      offsets.push_back(bytes.size());
      AppendBytes(bytes, tensor);
      bytes.resize(DivideUp(bytes.size(), kAlignment) * kAlignment);
    }
  }
  Checkpoint checkpoint;
  std::vector<std::size_t> indexes;
  std::vector<std::uint64_t> offsets;
  ByteVector bytes;
};

// The engine. Ends the process: 0 where its weights are those of `target` once it is told so.
[[noreturn]] void RunEngine(Channel& channel, const std::string& base, const std::string& target) {
  int code = 1;
  channel.IsEngine();
  {
    FakeDriver fake;
    const Packed packed(base);
    const DeviceBytes weights(fake.driver, packed.bytes);
    auto* const address = reinterpret_cast<const std::byte*>(weights.address());
    for (std::size_t i = 0; i < packed.indexes.size(); ++i) {
      const std::uint64_t size = packed.checkpoint.TensorBytes(packed.indexes[i]).size();
      const auto share = Must(ShareDeviceMemory("cuda:0", address + packed.offsets[i], size));
      if (!channel.Send(&share, sizeof(share))) ::_exit(2);
    }
    if (channel.Hear() == 'e' && weights.Read() == Packed(target).bytes) code = 0;
  }
  ::_exit(testing::Test::HasFailure() ? 3 : code);
}

class OtherProcessTest : public testing::Test {
 protected:
  OtherProcessTest() {
    setenv("SEGUE_CUDA_DRIVER", SEGUE_FAKE_CUDA, 1);
    trainer_.Step(1, 300);
    engine_ = ::fork();
    if (engine_ == 0) RunEngine(channel_, trainer_.Directory(0), trainer_.Directory(1));
    channel_.IsReceiver();
    const Packed packed(trainer_.Directory(0));
    shares_.resize(packed.indexes.size());
    for (DeviceMemoryShare& share : shares_) {
      EXPECT_TRUE(channel_.Receive(&share, sizeof(share)));
    }
    const auto published =
        Publish(test::PublishOf(store_, trainer_.Directory(0), trainer_.Directory(1)));
    EXPECT_TRUE(published.ok()) << published.status().ToString();
  }
  ~OtherProcessTest() override { unsetenv("SEGUE_CUDA_DRIVER"); }

  // What the engine says of its weights: 0 where they are the target's.
  int EndEngine() {
    EXPECT_TRUE(channel_.Tell('e'));
    int status = 0;
    EXPECT_EQ(::waitpid(engine_, &status, 0), engine_);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }

  test::TemporaryDirectory directory_;
  test::MiniTrainer trainer_{directory_.path()};
  std::string store_ = directory_.File("store");
  Channel channel_;
  pid_t engine_ = -1;
  std::vector<DeviceMemoryShare> shares_;
};

TEST_F(OtherProcessTest, AReceiverUpdatesTheWeightsOfAnEngine) {
  FakeDriver fake;
  {
    const Packed base(trainer_.Directory(0));
    std::vector<std::unique_ptr<DeviceMapping>> mappings;
    BoundModel model;
    model.device = "cuda:0";
    for (std::size_t i = 0; i < base.indexes.size(); ++i) {
      mappings.push_back(Must(DeviceMapping::Open("cuda:0", shares_[i])));
      const TensorSpec& spec = base.checkpoint.tensors()[base.indexes[i]].spec;
      EXPECT_EQ(mappings.back()->data(), mappings.front()->data() + base.offsets[i]);
      model.tensors.push_back({.name = spec.name,
                               .dtype = std::string(DtypeName(spec.dtype)),
                               .shape = spec.shape,
                               .data = mappings.back()->data(),
                               .size = mappings.back()->size()});
    }
    model.tensors.push_back({.name = "d.empty", .dtype = "F16", .shape = {0, 4}});
    model.close_gate = [](milliseconds) { return Status(); };
    model.open_gate = [] { return Status(); };
    ReceiverOptions options;
    options.store = store_;
    options.checkpoint = trainer_.Directory(0);
    options.staging = directory_.File("staging");
    options.threads = 2;
    options.catch_up = false;
    const auto receiver = Must(Receiver::Open(options, std::move(model)));
    EXPECT_EQ(receiver->status().version, 0u);
    PrepareRequest request;
    request.session = "s";
    request.target_version = 1;
    const auto updated = receiver->Update(request);
    EXPECT_TRUE(updated.ok()) << updated.status().ToString();
  }
  EXPECT_EQ(EndEngine(), 0);
}

TEST_F(OtherProcessTest, RefusesAShareThatIsLargerThanItsAllocation) {
  FakeDriver fake;
  DeviceMemoryShare share = shares_.back();
  share.size += 1 << 20;
  const Status status = DeviceMapping::Open("cuda:0", share).status();
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(status.message(), HasSubstr("reaches beyond its allocation"));
  EXPECT_EQ(EndEngine(), 1);  // Nothing was updated.
}

// The driver maps memory of another GPU as well.
TEST_F(OtherProcessTest, RefusesAShareOfAnotherDevice) {
  FakeDriver fake;
  fake.SetDevices(2);
  const Status status = DeviceMapping::Open("cuda:1", shares_[0]).status();
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(status.message(), HasSubstr("not in the memory of CUDA device 1"));
  EXPECT_EQ(EndEngine(), 1);
}

TEST_F(OtherProcessTest, MappingSurvivesEveryFailingCall) {
  FakeDriver fake;
  for (const char* symbol : {"cuIpcOpenMemHandle_v2", "cuMemGetAddressRange_v2",
                             "cuPointerGetAttribute", "cuIpcCloseMemHandle"}) {
    fake.Fail(symbol, 0);
    const auto mapping = DeviceMapping::Open("cuda:0", shares_[0]);
    EXPECT_EQ(mapping.ok(), std::string(symbol) == "cuIpcCloseMemHandle") << symbol;
  }
  EXPECT_EQ(EndEngine(), 1);
}

}  // namespace
}  // namespace segue::cuda
