// SPDX-License-Identifier: Apache-2.0
//
// A receiver over a store whose server says nothing any more: who aborts, closes or gives up does
// not wait for that server, and the receiver that lives on takes the next version.
#include <gtest/gtest.h>

#include <atomic>
#include <charconv>
#include <chrono>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "base/file.h"
#include "live/receiver_testing.h"
#include "segue/give_up.h"
#include "segue/receiver.h"
#include "store/testing.h"

namespace segue {

// Of store/testing.h, for its servers alone.
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(StoreConformance);

namespace {

using Clock = std::chrono::steady_clock;

// libcurl looks about once a second whether to go on.
constexpr double kEndSecondsMax = 3.0;

// Serves a directory as `segue store` does; objects whose name has `silent` in it keep it silent
// until the test has had enough.
class FallingSilent {
 public:
  explicit FallingSilent(std::string root)
      : root_(std::move(root)),
        server_([this](const std::string& request) { return Answer(request); }) {}
  ~FallingSilent() { Speak(); }

  std::string url() const { return server_.url(); }
  void FallSilentAt(const std::string& part) {
    const std::lock_guard lock(mutex_);
    silent_ = part;
  }
  void Speak() {
    FallSilentAt("");
    while (asked_) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  // Until a request waits for an answer that does not come.
  bool AwaitAsked() const {
    const auto until = Clock::now() + std::chrono::seconds(20);
    while (!asked_ && Clock::now() < until)
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    return asked_;
  }

 private:
  bool IsSilentAt(const std::string& path) const {
    const std::lock_guard lock(mutex_);
    return !silent_.empty() && path.find(silent_) != std::string::npos;
  }

  std::string Answer(const std::string& request) {
    const std::size_t begin = request.find('/');
    const std::string path = request.substr(begin, request.find(' ', begin) - begin);
    while (IsSilentAt(path)) {
      asked_ = true;
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    asked_ = false;
    if (path.ends_with('/')) return Listing(root_ + path);
    if (!FileExists(root_ + path)) return ScriptedServer::Whole("404 None", "");
    const std::string whole(AsText(ReadFile(root_ + path, 1u << 30).value()));
    if (request.starts_with("HEAD")) {
      return "HTTP/1.1 200 OK\r\nContent-Length: " + std::to_string(whole.size()) + "\r\n\r\n";
    }
    const std::string label = "Range: bytes=";
    const std::size_t range = request.find(label);
    if (range == std::string::npos) return ScriptedServer::Whole("200 OK", whole);
    return Part(whole, request.data() + range + label.size(), request.data() + request.size());
  }

  static std::string Part(const std::string& whole, const char* text, const char* end) {
    std::size_t first = 0;
    std::size_t last = 0;
    const auto [dash, error] = std::from_chars(text, end, first);
    (void)std::from_chars(dash + 1, end, last);
    return ScriptedServer::Whole("206 Part", whole.substr(first, last - first + 1),
                                 "Content-Range: bytes " + std::to_string(first) + "-" +
                                     std::to_string(last) + "/" + std::to_string(whole.size()) +
                                     "\r\n");
  }

  static std::string Listing(const std::string& folder) {
    std::string objects;
    std::string folders;
    std::error_code error;
    for (const auto& entry : std::filesystem::directory_iterator(folder, error)) {
      std::string& names = entry.is_directory() ? folders : objects;
      const std::string name = entry.path().filename();
      if (name.starts_with('.')) continue;
      names += (names.empty() ? "\"" : ",\"") + name + "\"";
    }
    return ScriptedServer::Whole("200 OK",
                                 R"({"objects":[)" + objects + R"(],"folders":[)" + folders + "]}");
  }

  const std::string root_;
  mutable std::mutex mutex_;
  std::string silent_;
  std::atomic<bool> asked_{false};
  ScriptedServer server_;  // Last: its thread uses the above.
};

class ReceiverSilenceTest : public test::ReceiverFixture {
 protected:
  ReceiverSilenceTest() : ReceiverFixture("silence") { Advance(1); }

  ReceiverOptions FromServer() const {
    ReceiverOptions options = Options();
    options.store = server_.url();
    return options;
  }

  // At version 1, with 2 on offer.
  void Open() {
    auto opened = Receiver::Open(FromServer());
    ASSERT_TRUE(opened.ok()) << opened.status().ToString();
    receiver_ = std::move(opened).value();
    Advance(2);
  }

  static void ExpectEndsSoon(const std::function<void()>& call) {
    const auto begun = Clock::now();
    call();
    EXPECT_LT(std::chrono::duration<double>(Clock::now() - begun).count(), kEndSecondsMax);
  }

  FallingSilent server_{store_};
  std::unique_ptr<Receiver> receiver_;
};

TEST_F(ReceiverSilenceTest, AnAbortEndsAFetch) {
  Open();
  for (const std::string part : {"/payloads/", "/versions"}) {
    server_.FallSilentAt(part);
    ASSERT_TRUE(receiver_->Prepare({.session = "quiet"}).ok());
    ASSERT_TRUE(server_.AwaitAsked());
    ExpectEndsSoon([&] {
      const Status aborted = receiver_->Abort("quiet");
      EXPECT_TRUE(aborted.ok()) << aborted.ToString();
    });
    EXPECT_EQ(receiver_->status().state, ReceiverState::kAborted);
    EXPECT_TRUE(receiver_->status().ready);
    server_.Speak();
  }
  const auto updated = receiver_->Update({.session = "next"});
  ASSERT_TRUE(updated.ok()) << updated.status().ToString();
  ExpectLive(2);
}

TEST_F(ReceiverSilenceTest, TheDestructorEndsAFetch) {
  Open();
  server_.FallSilentAt("/payloads/");
  ASSERT_TRUE(receiver_->Prepare({.session = "quiet"}).ok());
  ASSERT_TRUE(server_.AwaitAsked());
  ExpectEndsSoon([&] { receiver_.reset(); });
}

TEST_F(ReceiverSilenceTest, TheEndOfAFollowerEndsItsLookAndItsUpdate) {
  for (const std::string part : {"/versions", "/payloads/"}) {
    for (const bool is_released : {false, true}) {
      Open();
      server_.FallSilentAt(part);
      ASSERT_TRUE(receiver_->Follow(std::chrono::milliseconds(5)).ok());
      ASSERT_TRUE(server_.AwaitAsked());
      ExpectEndsSoon([&] {
        if (is_released) {
          EXPECT_TRUE(receiver_->Release().ok());
        }
        receiver_.reset();
      });
      server_.Speak();
    }
  }
}

// Somebody else's prepare is not the follower's to give up.
TEST_F(ReceiverSilenceTest, AFollowerThatIsReplacedLeavesAPrepareAlone) {
  Open();
  server_.FallSilentAt("/payloads/");
  ASSERT_TRUE(receiver_->Prepare({.session = "own"}).ok());
  ASSERT_TRUE(server_.AwaitAsked());
  ASSERT_TRUE(receiver_->Follow(std::chrono::milliseconds(5)).ok());
  ASSERT_TRUE(receiver_->Follow(std::chrono::milliseconds(500)).ok());
  server_.Speak();
  const Status prepared = receiver_->WaitPrepared();
  EXPECT_TRUE(prepared.ok()) << prepared.ToString();
}

TEST_F(ReceiverSilenceTest, GivingUpEndsWhatOthersWaitFor) {
  Open();
  server_.FallSilentAt("/");
  Status listed;
  std::jthread other([&] { listed = receiver_->Versions().status(); });
  ASSERT_TRUE(server_.AwaitAsked());
  ExpectEndsSoon([&] {
    receiver_->GiveUpStore();
    other.join();
  });
  EXPECT_EQ(listed.code(), StatusCode::kUnavailable) << listed.ToString();
  ExpectEndsSoon([&] {
    EXPECT_EQ(receiver_->Update({.session = "late"}).status().code(), StatusCode::kUnavailable);
    EXPECT_EQ(receiver_->Rebuild(0).code(), StatusCode::kUnavailable);
  });
  EXPECT_TRUE(receiver_->status().ready);
  ExpectLive(1);
}

TEST_F(ReceiverSilenceTest, ACallerGivesUpAnOpening) {
  server_.FallSilentAt("/");
  std::atomic<bool> ends{false};
  std::jthread key([&] {
    EXPECT_TRUE(server_.AwaitAsked());
    ends = true;
  });
  ExpectEndsSoon([&] {
    const GiveUpScope scope([&] { return ends.load(); });
    EXPECT_EQ(Receiver::Open(FromServer()).status().code(), StatusCode::kUnavailable);
  });
}

}  // namespace
}  // namespace segue
