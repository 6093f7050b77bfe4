// SPDX-License-Identifier: Apache-2.0
//
// A fleet on one store: 64 receivers in a tree of relays, all in this process. What must hold:
// every one reaches the newest version, none holds a wrong byte, and the origin sends each payload
// at most twice.
#include "server/relay_node.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "store/http_store.h"
#include "store/testing.h"
#include "sync/testing.h"

namespace segue {
namespace {

constexpr const char* kToken = "test-token";
constexpr std::size_t kFleetSize = 64;
constexpr std::size_t kFanOut = 4;

// An engine's weights in its own buffers, and the receiver that keeps them in step.
class Engine {
 public:
  Engine(const std::string& checkpoint, const std::string& store, const std::string& staging,
         LiveEnvironment& environment) {
    const Checkpoint base = Checkpoint::Open(checkpoint).value();
    BoundModel model;
    buffers_.reserve(base.tensors().size());
    for (std::size_t i = 0; i < base.tensors().size(); ++i) {
      const CheckpointTensor& tensor = base.tensors()[i];
      const ByteSpan bytes = base.TensorBytes(i);
      ByteVector& buffer = buffers_.emplace_back(bytes.begin(), bytes.end());
      model.tensors.push_back({tensor.spec.name, std::string(DtypeName(tensor.spec.dtype)),
                               tensor.spec.shape, buffer.data(), buffer.size()});
    }
    model.close_gate = [](std::chrono::milliseconds) { return Status(); };
    model.open_gate = [] { return Status(); };
    ReceiverOptions options;
    options.store = store;
    options.staging = staging;
    options.threads = 1;
    auto receiver = ReceiverInternals::Open(options, std::move(model), environment);
    EXPECT_TRUE(receiver.ok()) << receiver.status().ToString();
    receiver_ = std::move(receiver).value();
    EXPECT_TRUE(receiver_->Follow(std::chrono::milliseconds(50)).ok());
  }

  std::uint64_t version() const { return receiver_->status().version; }
  bool Holds(const Checkpoint& expected) const {
    for (std::size_t i = 0; i < buffers_.size(); ++i) {
      if (!std::ranges::equal(buffers_[i], expected.TensorBytes(i))) return false;
    }
    return true;
  }

 private:
  std::vector<ByteVector> buffers_;
  std::unique_ptr<Receiver> receiver_;
};

class RelayFleetTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ::setenv("SEGUE_STORE_TOKEN", kToken, 1);
    StoreServerOptions options;
    options.directory = directory_.File("store");
    options.token = kToken;
    origin_ = StoreServer::Start(options).value();
  }
  void TearDown() override { ::unsetenv("SEGUE_STORE_TOKEN"); }

  std::uint64_t Publish(std::uint64_t seed) {
    trainer_.Step(seed);
    const auto report =
        segue::Publish(test::PublishOf(origin_->url(), trainer_.Directory(trainer_.version() - 1),
                                       trainer_.Directory(trainer_.version())));
    EXPECT_TRUE(report.ok()) << report.status().ToString();
    return report->payload_bytes;
  }

  std::unique_ptr<RelayNode> Node(std::vector<std::string> sources) {
    RelayNode::Options options;
    options.store = origin_->url();
    options.listen = "127.0.0.1:0";
    options.token = kToken;
    options.connections = 4 * kFanOut;
    options.relay.sources = std::move(sources);
    options.relay.directory = directory_.File("kept");
    auto node = RelayNode::Start(options, SystemLiveEnvironment());
    EXPECT_TRUE(node.ok()) << node.status().ToString();
    return std::move(node).value();
  }

  std::unique_ptr<Engine> Join(RelayNode& node) {
    return std::make_unique<Engine>(trainer_.Directory(0), origin_->url(),
                                    directory_.File("staging"), node.environment());
  }

  // Whether all reach `version` in time, with the trainer's bytes.
  static ::testing::AssertionResult AllReach(const std::vector<std::unique_ptr<Engine>>& engines,
                                             std::uint64_t version) {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(120);
    for (const auto& engine : engines) {
      while (engine->version() != version) {
        if (std::chrono::steady_clock::now() > deadline) {
          return ::testing::AssertionFailure() << "one is still at " << engine->version();
        }
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
      }
    }
    return ::testing::AssertionSuccess();
  }

  void ExpectAllHold(const std::vector<std::unique_ptr<Engine>>& engines) const {
    const Checkpoint expected = Checkpoint::Open(trainer_.Directory(trainer_.version())).value();
    for (const auto& engine : engines) EXPECT_TRUE(engine->Holds(expected));
  }

  test::TemporaryDirectory directory_;
  test::MiniTrainer trainer_{directory_.path()};
  std::unique_ptr<StoreServer> origin_;
};

TEST_F(RelayFleetTest, SixtyFourReceiversFollowThroughRelays) {
  std::uint64_t payload_bytes = Publish(1);
  std::vector<std::unique_ptr<RelayNode>> nodes;
  std::vector<std::unique_ptr<Engine>> engines;
  for (std::size_t i = 0; i < kFleetSize; ++i) {
    nodes.push_back(Node(i == 0 ? std::vector<std::string>()
                                : std::vector<std::string>{nodes[(i - 1) / kFanOut]->url()}));
    engines.push_back(Join(*nodes.back()));
  }
  ASSERT_TRUE(AllReach(engines, 1));
  for (std::uint64_t seed = 2; seed <= 4; ++seed) {
    payload_bytes += Publish(seed);
    const auto begin = std::chrono::steady_clock::now();
    ASSERT_TRUE(AllReach(engines, seed));
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
    RecordProperty("seconds_to_version_" + std::to_string(seed), std::to_string(took.count()));
    ExpectAllHold(engines);
  }
  const std::uint64_t sent = origin_->statistics().sent_payload_bytes;
  EXPECT_LE(sent, 2 * payload_bytes);
  RecordProperty("payload_bytes", std::to_string(payload_bytes));
  RecordProperty("origin_sent_payload_bytes", std::to_string(sent));
  RecordProperty("origin_requests", std::to_string(origin_->statistics().requests));
  std::uint64_t relayed = 0;
  for (const auto& node : nodes) {
    EXPECT_EQ(node->statistics().lies, 0u);
    relayed += node->served().sent_payload_bytes;
  }
  EXPECT_EQ(relayed + sent, kFleetSize * payload_bytes);
  engines.clear();
}

TEST_F(RelayFleetTest, ARelayThatDiesOrLiesIsGoneRound) {
  Publish(1);
  auto first = Node({});
  const ScriptedServer liar([](const std::string& request) {
    const std::string text(100, 'x');
    return request.starts_with("HEAD ")
               ? std::string("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n")
               : ScriptedServer::Whole("200 OK", text);
  });
  const auto second = Node({first->url()});
  const auto third = Node({liar.url(), second->url()});
  std::vector<std::unique_ptr<Engine>> engines;
  engines.push_back(Join(*second));
  engines.push_back(Join(*third));
  ASSERT_TRUE(AllReach(engines, 1));
  first.reset();
  Publish(2);
  ASSERT_TRUE(AllReach(engines, 2));
  ExpectAllHold(engines);
  EXPECT_GE(third->statistics().lies, 1u);
  engines.clear();
}

TEST_F(RelayFleetTest, RelaysServeWhatIsProvenAlone) {
  Publish(1);
  const auto node = Node({});
  std::vector<std::unique_ptr<Engine>> engines;
  engines.push_back(Join(*node));
  ASSERT_TRUE(AllReach(engines, 1));
  HttpStore::Options options;
  options.url = node->url();
  options.token = kToken;
  options.has_listing = false;
  const auto relay = HttpStore::Open(options).value();
  const auto origin = OpenStore(origin_->url(), false).value();
  const std::string folder = "default/payloads/0000000001";
  const std::string name = folder + "/" + origin->List(folder).value().front();
  EXPECT_EQ(relay->Get(name, 1 << 24).value(), origin->Get(name, 1 << 24).value());
  EXPECT_EQ(relay->Get("default/versions/0000000001.json", 1 << 20).status().code(),
            StatusCode::kNotFound);
  EXPECT_EQ(relay->List("default").status().code(), StatusCode::kNotFound);
  EXPECT_EQ(relay->PutIfAbsent("a", AsBytes("1")).status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(relay->Delete(name).code(), StatusCode::kInvalidArgument);
  engines.clear();
}

TEST(RelayNodeTest, OthersNeedAToken) {
  const TemporaryFolder folder;
  RelayNode::Options options;
  options.store = folder.path();
  options.listen = "0.0.0.0:0";
  EXPECT_EQ(RelayNode::Start(options, SystemLiveEnvironment()).status().code(),
            StatusCode::kInvalidArgument);
  options.token = kToken;
  EXPECT_TRUE(RelayNode::Start(options, SystemLiveEnvironment()).ok());
  options.relay.sources = {"ftp://x"};
  EXPECT_EQ(RelayNode::Start(options, SystemLiveEnvironment()).status().code(),
            StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace segue
