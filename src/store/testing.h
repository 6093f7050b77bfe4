// SPDX-License-Identifier: Apache-2.0
//
// What every transport has to pass (StoreConformance), and an HTTP server that says exactly what a
// test wants it to, right or wrong. Tests only.
#pragma once

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "store/store.h"
#include "store/test_support.h"

namespace segue {

// `Transport` has a default constructor, `static bool IsThere()` and `std::unique_ptr<Store>
// Open()`, which may be called several times for the same empty store.
template <typename Transport>
class StoreConformance : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!Transport::IsThere()) GTEST_SKIP() << "its server is not there; tests/e2e starts it";
    transport_.emplace();
    store_ = transport_->Open();
  }
  Store& store() { return *store_; }
  std::unique_ptr<Store> Another() { return transport_->Open(); }

 private:
  std::optional<Transport> transport_;
  std::unique_ptr<Store> store_;
};

TYPED_TEST_SUITE_P(StoreConformance);

TYPED_TEST_P(StoreConformance, WhatWasPutIsRead) {
  Store& store = this->store();
  for (const std::size_t size : {0u, 1u, 4097u, 3u << 20}) {
    const std::string name = "a/b" + std::to_string(size);
    const ByteVector bytes = Pattern(size, size);
    const auto put = store.PutIfAbsent(name, bytes);
    ASSERT_TRUE(put.ok()) << put.status().ToString();
    EXPECT_EQ(put.value(), PutOutcome::kCreated);
    const auto got = store.Get(name, size);
    ASSERT_TRUE(got.ok()) << got.status().ToString();
    EXPECT_EQ(got.value(), bytes);
    EXPECT_EQ(store.Size(name).value(), size);
    EXPECT_EQ(this->Another()->Get(name, size).value(), bytes);
  }
}

TYPED_TEST_P(StoreConformance, LargerThanTheLimitIsRefused) {
  Store& store = this->store();
  ASSERT_TRUE(store.PutIfAbsent("x", Pattern(1, 100)).ok());
  EXPECT_EQ(store.Get("x", 99).status().code(), StatusCode::kResourceExhausted);
  EXPECT_TRUE(store.Get("x", 100).ok());
}

TYPED_TEST_P(StoreConformance, Ranges) {
  Store& store = this->store();
  const ByteVector bytes = Pattern(2, 1000);
  ASSERT_TRUE(store.PutIfAbsent("r", bytes).ok());
  const auto part = [&](std::size_t offset, std::size_t size) {
    const auto begin = bytes.begin() + static_cast<std::ptrdiff_t>(offset);
    return ByteVector(begin, begin + static_cast<std::ptrdiff_t>(size));
  };
  for (const auto& [offset, size] : std::vector<std::pair<std::size_t, std::size_t>>{
           {0, 1000}, {0, 1}, {999, 1}, {500, 250}, {0, 0}, {1000, 0}}) {
    const auto got = store.GetRange("r", offset, size);
    ASSERT_TRUE(got.ok()) << offset << "+" << size << ": " << got.status().ToString();
    EXPECT_EQ(got.value(), part(offset, size));
  }
  for (const auto& [offset, size] : std::vector<std::pair<std::uint64_t, std::uint64_t>>{
           {0, 1001}, {999, 2}, {1000, 1}, {1001, 0}, {5000, 10}, {1ull << 40, 1}}) {
    EXPECT_EQ(store.GetRange("r", offset, size).status().code(), StatusCode::kCorruption)
        << offset << "+" << size;
  }
}

TYPED_TEST_P(StoreConformance, WhatIsNotThere) {
  Store& store = this->store();
  EXPECT_EQ(store.Get("none", 10).status().code(), StatusCode::kNotFound);
  EXPECT_EQ(store.GetRange("a/none", 0, 1).status().code(), StatusCode::kNotFound);
  EXPECT_EQ(store.Size("none").status().code(), StatusCode::kNotFound);
  EXPECT_TRUE(store.Delete("none").ok());
  EXPECT_TRUE(store.List("none").value().empty());
  EXPECT_TRUE(store.ListFolders("none").value().empty());
}

TYPED_TEST_P(StoreConformance, TheFirstOfTwoPutsStays) {
  Store& store = this->store();
  EXPECT_EQ(store.PutIfAbsent("one", AsBytes("first")).value(), PutOutcome::kCreated);
  EXPECT_EQ(this->Another()->PutIfAbsent("one", AsBytes("other")).value(),
            PutOutcome::kAlreadyThere);
  EXPECT_EQ(AsText(store.Get("one", 100).value()), "first");
}

TYPED_TEST_P(StoreConformance, OfManyWritersExactlyOneWins) {
  constexpr int kWriterCount = 8;
  std::atomic<int> created{0};
  std::vector<std::unique_ptr<Store>> stores(kWriterCount);
  for (auto& store : stores) store = this->Another();
  {
    std::vector<std::jthread> writers;
    writers.reserve(kWriterCount);
    for (int i = 0; i < kWriterCount; ++i) {
      writers.emplace_back([&, i] {
        const auto put = stores[i]->PutIfAbsent("race/x", Pattern(i, 5000));
        ASSERT_TRUE(put.ok()) << put.status().ToString();
        if (put.value() != PutOutcome::kCreated) return;
        ++created;
        EXPECT_EQ(this->store().Get("race/x", 5000).value(), Pattern(i, 5000));
      });
    }
  }
  EXPECT_EQ(created, 1);
}

TYPED_TEST_P(StoreConformance, WithoutCommitNothingIsSeen) {
  Store& store = this->store();
  {
    const auto writer = store.StartWrite().value();
    ASSERT_TRUE(writer->Append(Pattern(3, 2 << 20)).ok());
    EXPECT_TRUE(store.List("").value().empty());
  }
  EXPECT_TRUE(store.List("").value().empty());
  EXPECT_TRUE(store.ListFolders("").value().empty());
}

TYPED_TEST_P(StoreConformance, PiecesBecomeOneObject) {
  Store& store = this->store();
  const ByteVector bytes = Pattern(4, 5'000'001);
  const auto writer = store.StartWrite().value();
  for (std::size_t offset = 0; offset < bytes.size(); offset += 777'777) {
    const std::size_t size = std::min<std::size_t>(777'777, bytes.size() - offset);
    ASSERT_TRUE(writer->Append(ByteSpan(bytes).subspan(offset, size)).ok());
  }
  ASSERT_EQ(writer->Commit("pieces").value(), PutOutcome::kCreated);
  EXPECT_EQ(store.Get("pieces", bytes.size()).value(), bytes);
}

TYPED_TEST_P(StoreConformance, ListsObjectsAndFoldersApart) {
  Store& store = this->store();
  for (const char* const name : {"l/b", "l/a", "l/c/d", "l/c/e", "l/f/g/h", "m"}) {
    ASSERT_TRUE(store.PutIfAbsent(name, AsBytes(name)).ok());
  }
  using Names = std::vector<std::string>;
  EXPECT_EQ(store.List("").value(), Names({"m"}));
  EXPECT_EQ(store.ListFolders("").value(), Names({"l"}));
  EXPECT_EQ(store.List("l").value(), Names({"a", "b"}));
  EXPECT_EQ(store.ListFolders("l").value(), Names({"c", "f"}));
  EXPECT_EQ(store.List("l/c").value(), Names({"d", "e"}));
  EXPECT_TRUE(store.ListFolders("l/c").value().empty());
  // A name that begins another is no folder of it.
  ASSERT_TRUE(store.PutIfAbsent("lo", AsBytes("1")).ok());
  EXPECT_EQ(store.List("l").value(), Names({"a", "b"}));
}

TYPED_TEST_P(StoreConformance, DeletedIsGoneAndMayComeAgain) {
  Store& store = this->store();
  ASSERT_TRUE(store.PutIfAbsent("d/x", AsBytes("1")).ok());
  ASSERT_TRUE(store.Delete("d/x").ok());
  EXPECT_EQ(store.Get("d/x", 1).status().code(), StatusCode::kNotFound);
  EXPECT_TRUE(store.ListFolders("").value().empty());
  EXPECT_EQ(store.PutIfAbsent("d/x", AsBytes("2")).value(), PutOutcome::kCreated);
  EXPECT_EQ(AsText(store.Get("d/x", 1).value()), "2");
}

TYPED_TEST_P(StoreConformance, BadNamesAreRefused) {  // case B5
  Store& store = this->store();
  for (const char* const name : {"", "../x", "/x", "a//b", ".hidden", "a b", "%2e", "a/../b"}) {
    EXPECT_EQ(store.PutIfAbsent(name, {}).status().code(), StatusCode::kInvalidArgument);
    EXPECT_EQ(store.Get(name, 1).status().code(), StatusCode::kInvalidArgument);
    EXPECT_EQ(store.GetRange(name, 0, 1).status().code(), StatusCode::kInvalidArgument);
    EXPECT_EQ(store.Size(name).status().code(), StatusCode::kInvalidArgument);
    EXPECT_EQ(store.Delete(name).code(), StatusCode::kInvalidArgument);
    if (*name == '\0') continue;  // The root, which may be listed.
    EXPECT_EQ(store.List(name).status().code(), StatusCode::kInvalidArgument);
  }
}

TYPED_TEST_P(StoreConformance, StaleTemporariesAreNoObjects) {
  Store& store = this->store();
  ASSERT_TRUE(store.PutIfAbsent("t", AsBytes("1")).ok());
  EXPECT_TRUE(store.RemoveStaleTemporaries(std::chrono::hours(24)).ok());
  EXPECT_EQ(AsText(store.Get("t", 1).value()), "1");
}

REGISTER_TYPED_TEST_SUITE_P(StoreConformance, WhatWasPutIsRead, LargerThanTheLimitIsRefused, Ranges,
                            WhatIsNotThere, TheFirstOfTwoPutsStays, OfManyWritersExactlyOneWins,
                            WithoutCommitNothingIsSeen, PiecesBecomeOneObject,
                            ListsObjectsAndFoldersApart, DeletedIsGoneAndMayComeAgain,
                            BadNamesAreRefused, StaleTemporariesAreNoObjects);

// Answers each connection's one request with the bytes that `answer` gives, then closes. `answer`
// gets the request, head and body, and is called from one thread.
class ScriptedServer {
 public:
  using Answer = std::function<std::string(const std::string& request)>;

  explicit ScriptedServer(Answer answer) : answer_(std::move(answer)) {
    listener_ = ::socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = ::htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof(address);
    auto* const generic = reinterpret_cast<sockaddr*>(&address);
    EXPECT_EQ(::bind(listener_, generic, size), 0);
    EXPECT_EQ(::listen(listener_, 64), 0);
    EXPECT_EQ(::getsockname(listener_, generic, &size), 0);
    port_ = ::ntohs(address.sin_port);
    thread_ = std::jthread([this] { Run(); });
  }

  ~ScriptedServer() {
    ::shutdown(listener_, SHUT_RDWR);
    thread_.join();
    ::close(listener_);
  }
  ScriptedServer(const ScriptedServer&) = delete;
  ScriptedServer& operator=(const ScriptedServer&) = delete;

  std::string url() const { return "http://127.0.0.1:" + std::to_string(port_); }
  std::vector<std::string> requests() const {
    const std::lock_guard lock(mutex_);
    return requests_;
  }

  // An answer with Content-Length; `fields` are lines that end in "\r\n".
  static std::string Whole(const std::string& code, const std::string& body,
                           const std::string& fields = "") {
    return "HTTP/1.1 " + code + "\r\nContent-Length: " + std::to_string(body.size()) + "\r\n" +
           fields + "\r\n" + body;
  }

 private:
  void Run() {
    for (;;) {
      const int connection = ::accept(listener_, nullptr, nullptr);
      if (connection < 0) return;
      const std::string request = ReadRequest(connection);
      if (!request.empty()) {
        {
          const std::lock_guard lock(mutex_);
          requests_.push_back(request);
        }
        Send(connection, answer_(request));
      }
      ::close(connection);
    }
  }

  static std::string ReadRequest(int connection) {
    std::string request;
    std::size_t wanted = std::string::npos;
    while (request.size() < wanted) {
      char piece[65536];
      const ssize_t got = ::recv(connection, piece, sizeof(piece), 0);
      if (got <= 0) return request;
      request.append(piece, static_cast<std::size_t>(got));
      const std::size_t end = request.find("\r\n\r\n");
      if (wanted != std::string::npos || end == std::string::npos) continue;
      wanted = end + 4;
      const std::string label = "Content-Length: ";
      const std::size_t length = request.find(label);
      if (length < end) {
        std::size_t size = 0;
        for (std::size_t i = length + label.size(); request[i] != '\r'; ++i) {
          size = size * 10 + static_cast<std::size_t>(request[i] - '0');
        }
        wanted += size;
      }
      if (request.find("Expect: 100-continue") < end) {
        Send(connection, "HTTP/1.1 100 Continue\r\n\r\n");
      }
    }
    return request;
  }

  static void Send(int connection, const std::string& text) {
    for (std::size_t sent = 0; sent < text.size();) {
      const ssize_t wrote =
          ::send(connection, text.data() + sent, text.size() - sent, MSG_NOSIGNAL);
      if (wrote <= 0) return;
      sent += static_cast<std::size_t>(wrote);
    }
  }

  const Answer answer_;
  int listener_ = -1;
  int port_ = 0;
  mutable std::mutex mutex_;
  std::vector<std::string> requests_;
  std::jthread thread_;
};

// Takes any request for one and sends `first`, then `piece` after each `interval`, until the client
// or the test has had enough.
class EndlessServer {
 public:
  EndlessServer(std::string first, std::string piece, std::chrono::milliseconds interval)
      : first_(std::move(first)), piece_(std::move(piece)), interval_(interval) {
    listener_ = ::socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof(address);
    auto* const generic = reinterpret_cast<sockaddr*>(&address);
    EXPECT_EQ(::bind(listener_, generic, size), 0);
    EXPECT_EQ(::listen(listener_, 64), 0);
    EXPECT_EQ(::getsockname(listener_, generic, &size), 0);
    url_ = "http://127.0.0.1:" + std::to_string(ntohs(address.sin_port));
    thread_ = std::jthread([this] { Accept(); });
  }
  ~EndlessServer() {
    ends_ = true;
    ::shutdown(listener_, SHUT_RDWR);
    thread_.join();
    clients_.clear();
    ::close(listener_);
  }
  EndlessServer(const EndlessServer&) = delete;
  EndlessServer& operator=(const EndlessServer&) = delete;

  const std::string& url() const { return url_; }
  int count() const { return count_; }  // Of connections.
  std::size_t sent() const { return sent_; }

 private:
  void Accept() {
    for (int client = 0; (client = ::accept(listener_, nullptr, nullptr)) >= 0;) {
      ++count_;
      clients_.emplace_back([this, client] {
        for (const std::string* next = &first_; !ends_; next = &piece_) {
          const ssize_t sent = ::send(client, next->data(), next->size(), MSG_NOSIGNAL);
          if (sent < 0) break;
          sent_ += static_cast<std::size_t>(sent);
          std::this_thread::sleep_for(interval_);
        }
        ::close(client);
      });
    }
  }

  const std::string first_;
  const std::string piece_;
  const std::chrono::milliseconds interval_;
  std::string url_;
  int listener_ = -1;
  std::atomic<int> count_{0};
  std::atomic<std::size_t> sent_{0};
  std::atomic<bool> ends_{false};
  std::vector<std::jthread> clients_;
  std::jthread thread_;
};

}  // namespace segue
