// SPDX-License-Identifier: Apache-2.0
//
// Clients that send slowly, too much, or nothing at all. What must hold: none of them stays longer
// than the limits say, none holds up another, and a request that came whole is answered as ever.
#include "server/connections.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <exception>
#include <memory>
#include <new>
#include <string>
#include <thread>
#include <vector>

#include "server/http_listener.h"

namespace segue {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;
using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr milliseconds kRequest{400};
// Far beyond every limit here, far below a test's patience.
constexpr milliseconds kLong{20'000};

class Client {
 public:
  explicit Client(int port) : socket_(::socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = ::htonl(INADDR_LOOPBACK);
    address.sin_port = ::htons(static_cast<std::uint16_t>(port));
    EXPECT_EQ(::connect(socket_, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
  }
  ~Client() { ::close(socket_); }
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  bool Send(const std::string& text) const {
    return ::send(socket_, text.data(), text.size(), MSG_NOSIGNAL) ==
           static_cast<ssize_t>(text.size());
  }

  // Until the server has closed, or `text` is there.
  std::string Read(const std::string& text = "\nnever\n") const {
    std::string answer;
    char piece[4096];
    const auto end = Clock::now() + kLong;
    while (answer.find(text) == std::string::npos && Clock::now() < end) {
      if (!Waits(milliseconds(50))) continue;
      const ssize_t got = ::recv(socket_, piece, sizeof(piece), 0);
      if (got <= 0) return answer;
      answer.append(piece, static_cast<std::size_t>(got));
    }
    return answer;
  }

  // Whether something can be read, or the end, within `time`.
  bool Waits(milliseconds time) const {
    pollfd poll{socket_, POLLIN, 0};
    return ::poll(&poll, 1, static_cast<int>(time.count())) > 0;
  }

 private:
  const int socket_;
};

class ConnectionsTest : public ::testing::Test {
 protected:
  ~ConnectionsTest() override { listener_.Stop(); }

  void Start(ConnectionLimits limits) {
    listener_.SetLimits(limits);
    listener_.http().Get("/now", [](const httplib::Request&, httplib::Response& response) {
      response.set_content("hello", "text/plain");
    });
    listener_.http().Get("/later", [this](const httplib::Request&, httplib::Response& response) {
      ++answering_;
      while (!go_) std::this_thread::sleep_for(milliseconds(1));
      response.set_content("hello", "text/plain");
    });
    listener_.http().Post("/echo", [](const httplib::Request& request, httplib::Response& response,
                                      const httplib::ContentReader& content) {
      std::string body;
      (void)request;
      if (content([&](const char* data, std::size_t size) {
            body.append(data, size);
            return true;
          })) {
        response.set_content(body, "text/plain");
      }
    });
    ASSERT_TRUE(listener_.Start(ListenAddress::Parse("127.0.0.1:0").value()).ok());
    port_ = ListenAddress::Parse(listener_.url().substr(7)).value().port;
  }

  static ConnectionLimits Limits(unsigned connections, bool body_too = true) {
    return {.connections = connections,
            .idle = kLong,
            .request = kRequest,
            .body_too = body_too,
            .silence = kLong};
  }

  std::unique_ptr<Client> Connect() const { return std::make_unique<Client>(port_); }

  // Sends `piece` again and again until the server has had enough; what it says then, and when.
  std::string Dribble(const Client& client, const std::string& piece) const {
    while (client.Send(piece) && !client.Waits(milliseconds(20))) {
    }
    return client.Read();
  }

  HttpListener listener_;
  std::atomic<int> answering_{0};
  std::atomic<bool> go_{false};
  int port_ = 0;
};

constexpr const char* kGet = "GET /now HTTP/1.1\r\nHost: x\r\n\r\n";

TEST_F(ConnectionsTest, ManyRequestsOnOneConnection) {
  Start(Limits(1));
  const auto client = Connect();
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(client->Send(kGet));
    EXPECT_THAT(client->Read("hello"), StartsWith("HTTP/1.1 200"));
  }
  // Two that come in one piece.
  ASSERT_TRUE(client->Send(std::string(kGet) + "GET /now HTTP/1.1\r\nConnection: close\r\n\r\n"));
  const std::string both = client->Read();
  EXPECT_NE(both.find("hello"), both.rfind("hello")) << both;
}

// In a handler it is told; outside of one the connection ends. Either way others are served on.
TEST_F(ConnectionsTest, MemoryThatRunsOutEndsNoServer) {
  const auto run_out = [](const httplib::Request&, httplib::Response&) {
    std::rethrow_exception(std::make_exception_ptr(std::bad_alloc()));
  };
  listener_.http().Get("/out", run_out);
  listener_.http().set_error_handler([](const httplib::Request& request, httplib::Response&) {
    if (request.path != "/out") std::rethrow_exception(std::make_exception_ptr(std::bad_alloc()));
  });
  Start(Limits(4));
  const auto told = Connect();
  ASSERT_TRUE(told->Send("GET /out HTTP/1.1\r\nHost: x\r\n\r\n"));
  const std::string answer = told->Read("participants");
  EXPECT_THAT(answer, StartsWith("HTTP/1.1 503 "));
  EXPECT_THAT(answer, HasSubstr("\"code\":\"resource_exhausted\""));
  const auto cut = Connect();
  ASSERT_TRUE(cut->Send("GET /nothing HTTP/1.1\r\nHost: x\r\n\r\n"));
  EXPECT_EQ(cut->Read(), "");
  const auto other = Connect();
  ASSERT_TRUE(other->Send(kGet));
  EXPECT_THAT(other->Read("hello"), StartsWith("HTTP/1.1 200 OK"));
}

TEST_F(ConnectionsTest, HeadThatNeverEnds) {
  Start(Limits(4));
  const auto client = Connect();
  ASSERT_TRUE(client->Send("GET /now HTTP/1.1\r\n"));
  const auto began = Clock::now();
  EXPECT_THAT(Dribble(*client, "X: y\r\n"), StartsWith("HTTP/1.1 408"));
  EXPECT_GE(Clock::now() - began, kRequest - milliseconds(50));
  EXPECT_LT(Clock::now() - began, kLong / 2);
}

TEST_F(ConnectionsTest, BodyThatNeverEnds) {
  Start(Limits(4));
  const auto client = Connect();
  ASSERT_TRUE(client->Send("POST /echo HTTP/1.1\r\nContent-Length: 100000\r\n\r\n"));
  EXPECT_THAT(Dribble(*client, "x"), StartsWith("HTTP/1.1 408"));
}

// Large bodies have limits of their own (object_service.cc): the head alone has a deadline.
TEST_F(ConnectionsTest, BodyWithoutDeadline) {
  Start(Limits(4, /*body_too=*/false));
  const auto client = Connect();
  ASSERT_TRUE(client->Send("POST /echo HTTP/1.1\r\nContent-Length: 3\r\n\r\n"));
  for (const char* const piece : {"a", "b", "c"}) {
    std::this_thread::sleep_for(kRequest);
    ASSERT_TRUE(client->Send(piece));
  }
  EXPECT_THAT(client->Read("abc"), StartsWith("HTTP/1.1 200"));
}

TEST_F(ConnectionsTest, HeadOfManyLines) {
  Start(Limits(4));
  const auto client = Connect();
  std::string head = "GET /now HTTP/1.1\r\n";
  for (int i = 0; i < 3000; ++i) head += "X-Field-Of-Some-Length: value\r\n";
  client->Send(head);
  EXPECT_THAT(client->Read(), StartsWith("HTTP/1.1 431"));
}

// Refused as soon as it is whole, and nothing that follows is looked at.
TEST_F(ConnectionsTest, HeadsThatAreNotSound) {
  Start(Limits(4));
  for (const char* const head :
       {"GET /now HTTP/1.1\n\n", "GET http://h/now HTTP/1.1\r\n\r\n", "\r\n",
        "POST /echo HTTP/1.1\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
        "POST /echo HTTP/1.1\r\nContent-Length: +0\r\n\r\n",
        "GET /now HTTP/1.1\r\nA : b\r\n\r\n"}) {
    const auto client = Connect();
    ASSERT_TRUE(client->Send(std::string(head) + kGet));
    const std::string answer = client->Read();
    EXPECT_THAT(answer, StartsWith("HTTP/1.1 400 ")) << head;
    EXPECT_EQ(answer.find("HTTP/1.1", 1), std::string::npos) << head << answer;
  }
}

// The library reads sizes of chunks leniently, and no body where it expects none: whatever it takes
// for the end, the connection ends there.
TEST_F(ConnectionsTest, BodiesAfterWhichNothingIsRead) {
  Start(Limits(4));
  for (const std::string head :
       {"POST /echo HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
        "POST /echo HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n0x5;a=b\r\nhello\r\n0\r\n\r\n",
        "GET /now HTTP/1.1\r\nContent-Length: 33\r\n\r\n",
        "GET /now HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n"}) {
    const auto client = Connect();
    ASSERT_TRUE(client->Send(head + kGet));
    const std::string answer = client->Read();
    EXPECT_THAT(answer, HasSubstr("hello")) << head;
    EXPECT_EQ(answer.find("HTTP/1.1", 1), std::string::npos) << head << answer;
  }
  // A body of a stated size leaves the connection open.
  const auto client = Connect();
  ASSERT_TRUE(
      client->Send(std::string("POST /echo HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc") + kGet));
  EXPECT_THAT(client->Read("hello"), HasSubstr("abcHTTP/1.1 200"));
}

// A body that was not read is not taken for a request.
TEST_F(ConnectionsTest, AnswerWithoutTheBody) {
  listener_.http().set_pre_routing_handler(
      [](const httplib::Request&, httplib::Response& response) {
        response.status = 403;
        response.set_content("no", "text/plain");
        ConnectionServer::EndAfterAnswer();
        return httplib::Server::HandlerResponse::Handled;
      });
  Start(Limits(4));
  const auto client = Connect();
  const std::string body = kGet;
  ASSERT_TRUE(client->Send("POST /echo HTTP/1.1\r\nContent-Length: " + std::to_string(body.size()) +
                           "\r\n\r\n" + body));
  const std::string answer = client->Read();
  EXPECT_THAT(answer, StartsWith("HTTP/1.1 403"));
  EXPECT_EQ(answer.find("HTTP/1.1", 1), std::string::npos) << answer;
}

// More of them than connections: each new one takes the place of who has waited longest.
TEST_F(ConnectionsTest, SilentClientsHoldNobodyUp) {
  Start(Limits(4));
  std::vector<std::unique_ptr<Client>> silent(40);
  for (auto& client : silent) {
    client = Connect();
    ASSERT_TRUE(client->Send("GET /now HT"));
  }
  const auto began = Clock::now();
  for (int i = 0; i < 8; ++i) {
    const auto client = Connect();
    ASSERT_TRUE(client->Send(kGet));
    EXPECT_THAT(client->Read("hello"), StartsWith("HTTP/1.1 200"));
  }
  // Without that they would wait until all the others are late.
  EXPECT_LT(Clock::now() - began, kRequest * 2);
}

TEST_F(ConnectionsTest, WhoIsBeingAnsweredStays) {
  Start(Limits(2));
  const auto first = Connect();
  const auto second = Connect();
  const std::string later = "GET /later HTTP/1.1\r\n\r\n";
  ASSERT_TRUE(first->Send(later));
  ASSERT_TRUE(second->Send(later));
  while (answering_ < 2) std::this_thread::sleep_for(milliseconds(1));
  const auto third = Connect();
  ASSERT_TRUE(third->Send(kGet));
  EXPECT_FALSE(third->Waits(kRequest * 2));
  go_ = true;
  for (const Client* const client : {first.get(), second.get(), third.get()}) {
    EXPECT_THAT(client->Read("hello"), HasSubstr("hello"));
  }
}

TEST_F(ConnectionsTest, StopWaitsForNobodyWhoIsSilent) {
  Start(Limits(4));
  const auto idle = Connect();
  ASSERT_TRUE(idle->Send(kGet));
  EXPECT_THAT(idle->Read("hello"), HasSubstr("hello"));
  const auto began = Clock::now();
  listener_.Stop();
  EXPECT_LT(Clock::now() - began, kLong / 2);
}

}  // namespace
}  // namespace segue
