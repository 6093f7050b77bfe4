// SPDX-License-Identifier: Apache-2.0
//
// StoreServer with the store that speaks to it (the suite that every transport passes), and with
// clients that lie, cut off and pry. What must hold: nothing is visible that did not come whole.
#include "segue/store_server.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/hash.h"
#include "server/http_listener.h"
#include "server/object_service.h"
#include "store/http_store.h"
#include "store/testing.h"

namespace segue {
namespace {

using ::testing::HasSubstr;

constexpr const char* kToken = "test-token";

std::unique_ptr<StoreServer> Serve(const std::string& directory, const std::string& token) {
  StoreServerOptions options;
  options.directory = directory;
  options.token = token;
  return StoreServer::Start(options).value();
}

std::unique_ptr<Store> Connect(const StoreServer& server, const std::string& token = kToken) {
  HttpStore::Options options;
  options.url = server.url();
  options.token = token;
  options.client.retry_wait = std::chrono::milliseconds(1);
  return HttpStore::Open(options).value();
}

class HttpTransport {
 public:
  static bool IsThere() { return true; }
  HttpTransport() : server_(Serve(folder_.path(), kToken)) {}
  std::unique_ptr<Store> Open() { return Connect(*server_); }

 private:
  TemporaryFolder folder_;
  std::unique_ptr<StoreServer> server_;
};

INSTANTIATE_TYPED_TEST_SUITE_P(Http, StoreConformance, HttpTransport);

class StoreServerTest : public ::testing::Test {
 protected:
  // What the server answers to `text`, sent as it is, until it closes; with `leave` we close first.
  std::string Raw(const std::string& text, bool leave = false) const {
    const ListenAddress at = ListenAddress::Parse(server_->url().substr(7)).value();
    const int client = ::socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = ::htonl(INADDR_LOOPBACK);
    address.sin_port = ::htons(static_cast<std::uint16_t>(at.port));
    EXPECT_EQ(::connect(client, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
    EXPECT_EQ(::send(client, text.data(), text.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(text.size()));
    if (leave) ::shutdown(client, SHUT_RDWR);
    std::string answer;
    char piece[4096];
    for (ssize_t got = 0; (got = ::recv(client, piece, sizeof(piece), 0)) > 0;) {
      answer.append(piece, static_cast<std::size_t>(got));
    }
    ::close(client);
    return answer;
  }

  std::string Put(const std::string& name, const std::string& fields, const std::string& body,
                  bool leave = false) const {
    return Raw("PUT " + name + " HTTP/1.1\r\nHost: x\r\nConnection: close\r\n" +
                   "Authorization: Bearer test-token\r\n" + fields + "\r\n" + body,
               leave);
  }
  static std::string HashField(const std::string& body) {
    return "Segue-SHA256: " + HashSha256(AsBytes(body)).ToHex() + "\r\n";
  }
  void ExpectNothingThere() const {
    EXPECT_TRUE(Connect(*server_)->List("").value().empty());
    EXPECT_TRUE(folder_.Temporaries().empty());
  }
  static int Code(const std::string& answer) {
    return answer.size() < 12
               ? 0
               : (answer[9] - '0') * 100 + (answer[10] - '0') * 10 + answer[11] - '0';
  }

  TemporaryFolder folder_;
  std::unique_ptr<StoreServer> server_ = Serve(folder_.path(), kToken);
};

TEST_F(StoreServerTest, PutsThatAreNotWhole) {
  const std::string condition = "If-None-Match: *\r\n";
  const std::string hash = HashField("hello");
  EXPECT_EQ(Code(Put("/a", condition + hash + "Content-Length: 5\r\n", "hello")), 201);
  ASSERT_TRUE(Connect(*server_)->Delete("a").ok());
  // More announced than sent, and the client goes away.
  EXPECT_EQ(Put("/a", condition + hash + "Content-Length: 6\r\n", "hello", true), "");
  // The server sees that within its next read; a put after it is served all the same.
  while (!folder_.Temporaries().empty()) std::this_thread::yield();
  ExpectNothingThere();
  // Less announced than sent: what was announced is not what the hash says.
  EXPECT_EQ(Code(Put("/a", condition + hash + "Content-Length: 4\r\n", "hello")), 400);
  ExpectNothingThere();
  EXPECT_EQ(Code(Put("/a", condition + hash + "Content-Length: 5\r\n", "hellO")), 400);
  EXPECT_EQ(Code(Put("/a", condition + "Content-Length: 5\r\n", "hello")), 400);
  EXPECT_EQ(Code(Put("/a", hash + "Content-Length: 5\r\n", "hello")), 428);
  EXPECT_EQ(Code(Put("/a", condition + hash, "")), 411);
  EXPECT_EQ(Code(Put("/a", condition + hash + "Content-Encoding: gzip\r\nContent-Length: 5\r\n",
                     "hello")),
            415);
  EXPECT_EQ(Code(Put("/a", condition + hash + "Content-Length: 99999999999999999\r\n", "hello")),
            413);
  EXPECT_NE(Code(Put("/a", condition + hash + "Content-Length: -1\r\n", "hello")), 201);
  EXPECT_EQ(Code(Put("/a", condition + hash + "Transfer-Encoding: chunked\r\n",
                     "5\r\nhello\r\n0\r\n\r\n")),
            411);
  ExpectNothingThere();
}

TEST_F(StoreServerTest, NamesStayInside) {  // case B5
  WriteRaw(folder_ / ".tmp/secret", "1");
  for (const char* const path : {"/../x", "/a/../../x", "/%2e%2e/x", "/.tmp/secret", "//etc/passwd",
                                 "/a?b", "/a%2fb", "/.hidden", "x", "/a\\b"}) {
    const std::string answer =
        Raw("GET " + std::string(path) + " HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    EXPECT_EQ(Code(answer), 400) << path << answer;
  }
  EXPECT_THAT(
      Put("/../x", "If-None-Match: *\r\nContent-Length: 5\r\n" + HashField("hello"), "hello"),
      HasSubstr(" 400 "));
}

// case B5: a link that leads out of the root, in every place of a name, by every method.
TEST_F(StoreServerTest, LinksDoNotLeadOut) {
  const TemporaryFolder outside;
  WriteRaw(outside / "secret", "secret");
  WriteRaw(outside / "below/secret", "secret");
  WriteRaw(folder_ / "run/kept", "1");
  ASSERT_EQ(::symlink(outside.path().c_str(), (folder_ / "way").c_str()), 0);
  ASSERT_EQ(::symlink(outside.path().c_str(), (folder_ / "run/way").c_str()), 0);
  ASSERT_EQ(::symlink((outside / "secret").c_str(), (folder_ / "run/object").c_str()), 0);
  const auto ask = [&](const std::string& method, const std::string& path) {
    return Raw(method + " " + path + " HTTP/1.1\r\nHost: x\r\nConnection: close\r\n" +
               "Authorization: Bearer test-token\r\n\r\n");
  };
  for (const char* const path : {"/way/secret", "/way/below/secret", "/run/way/secret",
                                 "/run/object", "/way/", "/run/way/", "/way/below/"}) {
    const std::string answer = ask("GET", path);
    EXPECT_EQ(Code(answer), 400) << path << answer;
    EXPECT_EQ(Code(ask("HEAD", path)), 400) << path;
  }
  for (const char* const path : {"/way/secret", "/run/way/below/secret"}) {
    EXPECT_EQ(Code(ask("DELETE", path)), 400) << path;
  }
  const std::string put = "If-None-Match: *\r\nContent-Length: 5\r\n" + HashField("hello");
  for (const char* const path : {"/way/new", "/run/way/new", "/way/new/new", "/run/object"}) {
    EXPECT_EQ(Code(Put(path, put, "hello")), 400) << path;
  }
  EXPECT_THAT(ListDirectory(outside.path()).value(), ::testing::ElementsAre("below", "secret"));
  EXPECT_EQ(ReadFile(outside / "secret", 100).value().size(), 6u);
  EXPECT_TRUE(FileExists(outside / "below/secret"));
  EXPECT_TRUE(folder_.Temporaries().empty());
  // What is no link is served as ever, and the owner's own store follows his links.
  EXPECT_EQ(Code(ask("GET", "/run/kept")), 200);
  EXPECT_EQ(folder_.OpenDirStore()->Size("way/secret").value(), 6u);
}

TEST_F(StoreServerTest, TheTemporariesOfALinkAreNotWritten) {
  const TemporaryFolder outside;
  ASSERT_EQ(::symlink(outside.path().c_str(), (folder_ / ".tmp").c_str()), 0);
  const std::string put = "If-None-Match: *\r\nContent-Length: 5\r\n" + HashField("hello");
  EXPECT_EQ(Code(Put("/a", put, "hello")), 400);
  EXPECT_TRUE(ListDirectory(outside.path()).value().empty());
}

TEST_F(StoreServerTest, TheRootMayBeALink) {
  WriteRaw(folder_ / "a", "1");
  const TemporaryFolder other;
  ASSERT_EQ(::symlink(folder_.path().c_str(), (other / "root").c_str()), 0);
  for (const std::string& root : {other / "root", other / "root/"}) {
    const auto server = Serve(root, kToken);
    EXPECT_EQ(Connect(*server)->Size("a").value(), 1u);
    EXPECT_TRUE(Connect(*server)->PutIfAbsent("b/c", AsBytes("1")).ok());
    EXPECT_TRUE(Connect(*server)->Delete("b/c").ok());
  }
}

// Where a request ends is said once and clearly, or the connection ends with a 400: what a proxy in
// front takes for a body must never be our next request.
TEST_F(StoreServerTest, RequestsThatCanBeReadInTwoWays) {
  const std::string hidden = "GET /.metrics HTTP/1.1\r\nHost: x\r\n\r\n";
  const std::string put =
      "PUT /a HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer test-token\r\n"
      "If-None-Match: *\r\n" +
      HashField("hello");
  const std::string get = "GET / HTTP/1.1\r\n";
  for (const std::string& head :
       {put + "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n",
        put + "Content-Length: 5\r\nContent-Length: 6\r\n\r\n", put + "Content-Length: +5\r\n\r\n",
        put + "Content-Length: 0x5\r\n\r\n", put + "Content-Length : 5\r\n\r\n",
        put + "Content-Length:\r\n 5\r\n\r\n", put + "Transfer-Encoding: xchunked\r\n\r\n",
        get + "Host: x\n\r\n", get + "Host: x\r\n\n", get + "A: b\r\n c\r\n\r\n",
        get + "A b: c\r\n\r\n", std::string("GET http://h/a HTTP/1.1\r\n\r\n"),
        std::string("GET /a#b HTTP/1.1\r\n\r\n"), std::string("GET / HTTP/1.1\n\n")}) {
    const std::string answer = Raw(head + hidden);
    EXPECT_EQ(Code(answer), 400) << head;
    EXPECT_EQ(answer.find("HTTP/1.1", 1), std::string::npos) << head << answer;
  }
  ExpectNothingThere();
}

// Bodies that nobody reads, and those in chunks, end the connection with the answer.
TEST_F(StoreServerTest, NoBodyIsTakenForARequest) {
  const std::string hidden = "GET /.metrics HTTP/1.1\r\nHost: x\r\n\r\n";
  const std::string size = std::to_string(hidden.size());
  for (const std::string& head :
       {"GET / HTTP/1.1\r\nContent-Length: " + size + "\r\n\r\n",
        "POST /a HTTP/1.1\r\nContent-Length: " + size + "\r\n\r\n",
        "DELETE /a HTTP/1.1\r\nContent-Length: " + size + "\r\n\r\n",
        std::string("PUT /a HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n0x5;a=b\r\nhello\r\n"
                    "0\r\n\r\n")}) {
    const std::string answer = Raw(head + hidden);
    EXPECT_EQ(answer.find("HTTP/1.1", 1), std::string::npos) << head << answer;
  }
}

TEST_F(StoreServerTest, WritesNeedTheToken) {
  for (const char* const token : {"", "wrong", "test-toke", "test-token2"}) {
    const auto store = Connect(*server_, token);
    EXPECT_EQ(store->PutIfAbsent("a", AsBytes("1")).status().code(), StatusCode::kInvalidArgument);
    EXPECT_EQ(store->PutIfAbsent("a", Pattern(1, 3 << 20)).status().code(),
              StatusCode::kInvalidArgument);
    EXPECT_EQ(store->Delete("a").code(), StatusCode::kInvalidArgument);
    EXPECT_TRUE(store->List("").ok());
  }
  ExpectNothingThere();
  const auto reader = Serve(folder_.path(), "");
  EXPECT_THAT(Connect(*reader)->PutIfAbsent("a", AsBytes("1")).status().message(),
              HasSubstr("read-only"));
}

TEST_F(StoreServerTest, WhatOthersCanReach) {
  StoreServerOptions options;
  options.directory = folder_.path();
  options.listen = "0.0.0.0:0";
  EXPECT_EQ(StoreServer::Start(options).status().code(), StatusCode::kInvalidArgument);
  options.public_read = true;
  EXPECT_TRUE(StoreServer::Start(options).ok());
  options.public_read = false;
  options.token = kToken;
  const auto server = StoreServer::Start(options).value();
  HttpStore::Options client;
  client.url = "http://127.0.0.1:" + server->url().substr(server->url().rfind(':') + 1);
  EXPECT_EQ(HttpStore::Open(client).status().code(), StatusCode::kInvalidArgument);
  client.token = kToken;
  EXPECT_TRUE(HttpStore::Open(client).ok());
}

TEST_F(StoreServerTest, TagsRangesAndHeads) {
  const auto store = Connect(*server_);
  ASSERT_TRUE(store->PutIfAbsent("a", AsBytes("0123456789")).ok());
  const auto get = [&](const std::string& method, const std::string& fields) {
    return Raw(method + " /a HTTP/1.1\r\nHost: x\r\nConnection: close\r\n" + fields + "\r\n");
  };
  const std::string whole = get("GET", "");
  EXPECT_THAT(whole, ::testing::EndsWith("\r\n\r\n0123456789"));
  const std::size_t at = whole.find("ETag: \"");
  ASSERT_NE(at, std::string::npos);
  const std::string tag = whole.substr(at + 6, whole.find("\r\n", at) - at - 6);
  const std::string part = get("GET", "Range: bytes=2-4\r\nIf-Range: " + tag + "\r\n");
  EXPECT_EQ(Code(part), 206);
  EXPECT_THAT(part, HasSubstr("Content-Range: bytes 2-4/10\r\n"));
  EXPECT_THAT(part, ::testing::EndsWith("\r\n\r\n234"));
  EXPECT_EQ(Code(get("GET", "Range: bytes=2-4\r\nIf-Range: \"other\"\r\n")), 200);
  EXPECT_EQ(Code(get("GET", "Range: bytes=0-1,4-5\r\n")), 200);
  const std::string beyond = get("GET", "Range: bytes=10-\r\n");
  EXPECT_EQ(Code(beyond), 416);
  EXPECT_THAT(beyond, HasSubstr("Content-Range: bytes */10\r\n"));
  EXPECT_THAT(get("GET", "Range: bytes=-3\r\n"), ::testing::EndsWith("\r\n\r\n789"));
  const std::string head = get("HEAD", "");
  EXPECT_EQ(Code(head), 200);
  EXPECT_THAT(head, HasSubstr("Content-Length: 10\r\n"));
  EXPECT_THAT(head, ::testing::EndsWith("\r\n\r\n"));
  // What is no range, or several, is as if it had not been asked for.
  std::string many = "bytes=0-0";
  while (many.size() < 8000) many += ",1-1";
  for (const std::string& range :
       {std::string("bytes=99999999999999999999-"), std::string("bytes=0-99999999999999999999"),
        std::string("bytes=a-b"), std::string("bytes=1-b"), std::string("bytes=a-"),
        std::string("bytes=x"), std::string("bytes=5-2"), std::string("bytes="), std::string("x"),
        std::string("bytes=+1-2"), std::string("bytes= 1-2"), std::string(), many,
        std::string("bytes=0-0\r\nRange: bytes=1-1")}) {
    const std::string answer = get("GET", "Range: " + range + "\r\n");
    EXPECT_EQ(Code(answer), 200) << range;
    EXPECT_THAT(answer, ::testing::EndsWith("\r\n\r\n0123456789")) << range;
  }
  // What is no object has no ranges.
  for (const char* const path : {"/.metrics", "/"}) {
    const std::string answer =
        Raw("GET " + std::string(path) +
            " HTTP/1.1\r\nHost: x\r\nConnection: close\r\nRange: bytes=0-0\r\n\r\n");
    EXPECT_EQ(Code(answer), 200) << path;
    EXPECT_GT(answer.size() - answer.find("\r\n\r\n"), 10u) << path;
  }
  // Another object of the same name and size has another tag.
  ASSERT_TRUE(store->Delete("a").ok());
  ASSERT_TRUE(store->PutIfAbsent("a", AsBytes("9876543210")).ok());
  EXPECT_EQ(Code(get("GET", "Range: bytes=2-4\r\nIf-Range: " + tag + "\r\n")), 200);
}

TEST_F(StoreServerTest, OtherMethodsAndStatistics) {
  EXPECT_EQ(
      Code(Raw("POST /a HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: 0\r\n\r\n")),
      405);
  ASSERT_TRUE(Connect(*server_)->PutIfAbsent("l/payloads/x", AsBytes("12345")).ok());
  ASSERT_TRUE(Connect(*server_)->Get("l/payloads/x", 5).ok());
  const std::string metrics = Raw("GET /.metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
  EXPECT_THAT(metrics, HasSubstr("segue_store_sent_payload_bytes_total 5\n"));
  const StoreServerStatistics statistics = server_->statistics();
  EXPECT_EQ(statistics.sent_payload_bytes, 5u);
  EXPECT_EQ(statistics.received_bytes, 5u);
  EXPECT_GE(statistics.refused, 1u);
}

TEST(ParseRangeTest, WhatIsAsked) {
  ByteRange range;
  EXPECT_EQ(ParseRange("", 10, range), RangeKind::kWhole);
  EXPECT_EQ(ParseRange("lines=1-2", 10, range), RangeKind::kWhole);
  EXPECT_EQ(ParseRange("bytes=-", 10, range), RangeKind::kWhole);
  EXPECT_EQ(ParseRange("bytes=1-2-3", 10, range), RangeKind::kWhole);
  EXPECT_EQ(ParseRange("bytes=3-2", 10, range), RangeKind::kWhole);
  EXPECT_EQ(ParseRange("bytes=10-", 10, range), RangeKind::kBeyondEnd);
  EXPECT_EQ(ParseRange("bytes=0-0", 0, range), RangeKind::kBeyondEnd);
  EXPECT_EQ(ParseRange("bytes=-0", 10, range), RangeKind::kBeyondEnd);
  const auto part = [&](const char* text) {
    EXPECT_EQ(ParseRange(text, 10, range), RangeKind::kPart) << text;
    return std::pair(range.offset, range.size);
  };
  using Pair = std::pair<std::uint64_t, std::uint64_t>;
  EXPECT_EQ(part("bytes=0-0"), Pair(0, 1));
  EXPECT_EQ(part("bytes=9-"), Pair(9, 1));
  EXPECT_EQ(part("bytes=2-18446744073709551615"), Pair(2, 8));
  EXPECT_EQ(part("bytes=-20"), Pair(0, 10));
}

}  // namespace
}  // namespace segue
