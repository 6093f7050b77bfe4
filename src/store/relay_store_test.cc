// SPDX-License-Identifier: Apache-2.0
//
// RelayStore with relays that lie, fail and go round in circles. What must hold: what is read has
// the hash of its name, wherever it came from; what is kept stays within its bounds.
#include "store/relay_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "base/hash.h"
#include "store/testing.h"

namespace segue {
namespace {

// A payload of the lineage "l" that says who it is.
struct Object {
  explicit Object(std::uint64_t seed, std::size_t size = 10'000) : bytes(Pattern(seed, size)) {
    name = "l/payloads/0000000001/00000-of-00001-" + HashSha256(bytes).ToHex().substr(0, 16);
  }
  ByteVector bytes;
  std::string name;
};

// Serves `bytes` as every object, the way a relay does.
ScriptedServer::Answer Serving(const ByteVector& bytes) {
  return [text = std::string(AsText(bytes))](const std::string& request) {
    const std::string size = std::to_string(text.size());
    if (request.starts_with("HEAD ")) {
      return "HTTP/1.1 200 OK\r\nContent-Length: " + size + "\r\n\r\n";
    }
    return ScriptedServer::Whole("200 OK", text);
  };
}

class RelayStoreTest : public ::testing::Test {
 protected:
  std::unique_ptr<RelayStore> Make(std::vector<std::string> sources) {
    options_.sources = std::move(sources);
    options_.directory = folder_ / "kept";
    options_.client.retry_wait = std::chrono::milliseconds(1);
    return RelayStore::Make(OpenStore(folder_ / "origin", true).value(), options_).value();
  }
  void Publish(const Object& object) {
    ASSERT_TRUE(
        OpenStore(folder_ / "origin", true).value()->PutIfAbsent(object.name, object.bytes).ok());
  }
  static void ExpectRead(RelayStore& store, const Object& object) {
    const auto got = store.GetRange(object.name, 0, object.bytes.size());
    ASSERT_TRUE(got.ok()) << got.status().ToString();
    EXPECT_EQ(got.value(), object.bytes);
  }

  TemporaryFolder folder_;
  RelayStore::Options options_;
};

TEST(HashOfNameTest, PlansAndPayloadsAlone) {
  const std::string hash(64, 'a');
  EXPECT_EQ(HashOfName("l/plans/" + hash), hash);
  EXPECT_EQ(HashOfName("l/payloads/0000000001/00000-of-00001-0123456789abcdef"),
            "0123456789abcdef");
  EXPECT_EQ(HashOfName("l/anchors/base/0000000000-0000000009/00000-of-00001-0123456789abcdef"),
            "0123456789abcdef");
  for (const std::string& name :
       {std::string("l/lineage.json"), "l/layouts/" + hash, "l/plans/" + hash.substr(1),
        "l/plans/" + std::string(64, 'g'), "l/x/plans/" + hash, std::string("l/versions/1.json"),
        std::string("l/anchors/base/0000000000-0000000009.json"),
        std::string("l/anchors/base/x/y/00000-of-00001-0123456789abcdef"),
        std::string("l/payloads/1/0123456789abcdef"), std::string("l/payloads/1/x-0123456789abcde"),
        std::string("l/payloads/1/x-0123456789abcdeF"), std::string("")}) {
    EXPECT_EQ(HashOfName(name), std::nullopt) << name;
  }
}

TEST_F(RelayStoreTest, RelaysBeforeTheOrigin) {
  const Object object(1);
  const ScriptedServer relay(Serving(object.bytes));
  const auto store = Make({relay.url()});
  ExpectRead(*store, object);  // The origin has not even got it.
  EXPECT_THAT(relay.requests().front(), ::testing::ContainsRegex("Segue-Via: [0-9a-f]{16}\r\n"));
  const std::size_t requests = relay.requests().size();
  ExpectRead(*store, object);
  EXPECT_EQ(relay.requests().size(), requests);
  EXPECT_EQ(store->statistics().relay_bytes, object.bytes.size());
  EXPECT_EQ(store->statistics().origin_bytes, 0u);
}

TEST_F(RelayStoreTest, ALyingRelayCostsTimeAlone) {
  const Object object(1);
  Object wrong(1);
  wrong.bytes[5000] ^= std::byte{1};
  Publish(object);
  const ScriptedServer liar(Serving(wrong.bytes));
  const ScriptedServer honest(Serving(object.bytes));
  const auto store = Make({liar.url(), honest.url()});
  ExpectRead(*store, object);
  EXPECT_EQ(store->statistics().lies, 1u);
  EXPECT_EQ(store->statistics().relay_bytes, object.bytes.size());
  // It is not asked again.
  const std::size_t requests = liar.requests().size();
  const Object next(2);
  Publish(next);
  ExpectRead(*store, next);
  EXPECT_EQ(liar.requests().size(), requests);
  const auto alone = Make({liar.url()});
  ExpectRead(*alone, object);
  EXPECT_EQ(alone->statistics().origin_bytes, object.bytes.size());
}

// A relay that has all the time in the world: its bytes come, but not in anybody's lifetime. In the
// head, in the body, and with a piece now and then.
TEST_F(RelayStoreTest, ASlowRelayIsLeftForTheOrigin) {
  const Object object(1, 1'000'000);
  Publish(object);
  options_.pace = {.answer = std::chrono::seconds(1),
                   .grace = std::chrono::seconds(1),
                   .rate = 32.0 * (1 << 20)};
  const std::string head = "HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\nETag: \"a\"\r\n\r\n";
  for (const std::string& first : {std::string("HTTP/1.1 200 OK\r\nX: "), head}) {
    const EndlessServer slow(first, std::string(100, 'x'), std::chrono::milliseconds(100));
    const auto store = Make({slow.url()});
    const auto begin = std::chrono::steady_clock::now();
    ExpectRead(*store, object);
    EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(5)) << first;
    EXPECT_EQ(store->statistics().origin_bytes, object.bytes.size());
    // It rests: the next object does not wait for it.
    const int count = slow.count();
    const Object next(first.size(), 1000);
    Publish(next);
    ExpectRead(*store, next);
    EXPECT_EQ(slow.count(), count);
  }
}

TEST_F(RelayStoreTest, RelaysThatFailAreLeftAlone) {
  const Object object(1);
  Publish(object);
  const ScriptedServer broken(
      [](const std::string&) { return ScriptedServer::Whole("500 Oops", ""); });
  const ScriptedServer without(
      [](const std::string&) { return ScriptedServer::Whole("404 None", ""); });
  const auto store = Make({broken.url(), without.url(), "http://127.0.0.1:1"});
  ExpectRead(*store, object);
  EXPECT_EQ(store->statistics().origin_bytes, object.bytes.size());
  const Object next(2);
  Publish(next);
  ExpectRead(*store, next);
  EXPECT_EQ(broken.requests().size(), static_cast<std::size_t>(limits::kStoreTryCountMax));
  EXPECT_EQ(without.requests().size(), 2u);
}

TEST_F(RelayStoreTest, AWrongOriginIsCorruption) {
  Object object(1);
  object.bytes[0] ^= std::byte{1};
  Publish(object);
  const auto store = Make({});
  EXPECT_EQ(store->Get(object.name, 1 << 20).status().code(), StatusCode::kCorruption);
  EXPECT_EQ(store->statistics().kept_count, 0u);
}

TEST_F(RelayStoreTest, WhatHasNoHashIsTheOrigins) {
  const ScriptedServer relay(Serving(Pattern(1, 10)));
  const auto store = Make({relay.url()});
  ASSERT_TRUE(store->PutIfAbsent("l/versions/0000000001.json", AsBytes("manifest")).ok());
  EXPECT_EQ(AsText(store->Get("l/versions/0000000001.json", 100).value()), "manifest");
  EXPECT_EQ(store->List("l/versions").value().size(), 1u);
  EXPECT_EQ(store->Fetch("l/versions/0000000001.json", "x").code(), StatusCode::kNotFound);
  EXPECT_TRUE(relay.requests().empty());
}

TEST_F(RelayStoreTest, CirclesAndLongWaysEnd) {
  const Object object(1);
  std::string via;
  const ScriptedServer relay([&](const std::string& request) {
    const std::size_t at = request.find("Segue-Via: ") + 11;
    via = request.substr(at, request.find("\r\n", at) - at);
    return ScriptedServer::Whole("404 None", "");
  });
  Publish(object);
  const auto store = Make({relay.url()});
  ExpectRead(*store, object);
  ASSERT_EQ(via.size(), 16u);
  EXPECT_EQ(store->Fetch(Object(2).name, "0123456789abcdef," + via).code(), StatusCode::kNotFound);
  std::string far = "0123456789abcdef";
  while (far.size() < limits::kRelayHopsMax * 17) far += ",0123456789abcdef";
  EXPECT_EQ(store->Fetch(Object(2).name, far).code(), StatusCode::kNotFound);
}

TEST_F(RelayStoreTest, OneFetchHoweverManyAsk) {
  const Object object(1, 1 << 20);
  std::atomic<int> reads{0};
  const auto serve = Serving(object.bytes);
  const ScriptedServer relay([&](const std::string& request) {
    reads += request.starts_with("GET ") ? 1 : 0;
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    return serve(request);
  });
  const auto store = Make({relay.url()});
  std::vector<std::jthread> readers;
  readers.reserve(8);
  for (int i = 0; i < 8; ++i) readers.emplace_back([&] { ExpectRead(*store, object); });
  readers.clear();
  EXPECT_EQ(reads, 1);
}

TEST_F(RelayStoreTest, AnotherRelayWaitsNotForEver) {
  const Object object(1);
  const auto serve = Serving(object.bytes);
  std::atomic<bool> go{false};
  const ScriptedServer relay([&](const std::string& request) {
    while (!go) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    return serve(request);
  });
  options_.wait = std::chrono::milliseconds(20);
  const auto store = Make({relay.url()});
  std::jthread reader([&] { ExpectRead(*store, object); });
  while (relay.requests().empty()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  EXPECT_EQ(store->Fetch(object.name, "another").code(), StatusCode::kUnavailable);
  go = true;
  reader.join();
  EXPECT_TRUE(store->Fetch(object.name, "another").ok());
}

TEST_F(RelayStoreTest, WhatIsKeptIsBounded) {
  options_.size_max = 35'000;
  const auto store = Make({});
  std::vector<Object> objects;
  for (std::uint64_t seed = 0; seed < 5; ++seed) objects.emplace_back(seed);
  for (const Object& object : objects) {
    Publish(object);
    ExpectRead(*store, object);
    ExpectRead(*store, objects.front());  // Asked for again and again: stays.
  }
  EXPECT_EQ(store->statistics().kept_count, 3u);
  EXPECT_LE(store->statistics().kept_bytes, 35'000u);
  EXPECT_EQ(store->statistics().origin_bytes, 50'000u);
  // Too large to be kept at all: read all the same.
  const Object large(9, 36'000);
  Publish(large);
  ExpectRead(*store, large);
  EXPECT_EQ(store->Get(large.name, 1 << 20).value(), large.bytes);
  EXPECT_EQ(store->statistics().kept_count, 3u);
}

TEST_F(RelayStoreTest, NothingIsLeftBehind) {
  {
    const auto store = Make({});
    const Object object(1);
    Publish(object);
    ExpectRead(*store, object);
    EXPECT_EQ(ListDirectory(folder_ / "kept").value().size(), 1u);
  }
  EXPECT_TRUE(ListDirectory(folder_ / "kept").value().empty());
}

}  // namespace
}  // namespace segue
