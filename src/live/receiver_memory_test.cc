// SPDX-License-Identifier: Apache-2.0
//
// A receiver whose machine runs out of memory or of threads: an update that cannot be prepared has
// failed, the version held serves on, and the next one, with memory again, is taken. Wherever in an
// update or a rebuild memory runs out, the receiver lives, comes to an end of it, and no gate stays
// closed that a retry would not open.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <exception>
#include <functional>
#include <memory>
#include <new>
#include <string>
#include <system_error>
#include <thread>
#include <utility>

#include "base/failing_new.h"
#include "live/forwarding_environment.h"
#include "live/receiver_testing.h"
#include "live/testing.h"
#include "segue/engine.h"
#include "segue/receiver.h"
#include "store/forwarding_store.h"
#include "sync/testing.h"

namespace segue {
namespace {

using test::PublishOf;

enum class Lack { kNothing, kThreads, kMemoryForThreads, kMemory, kStore };

void RunOut() { std::rethrow_exception(std::make_exception_ptr(std::bad_alloc())); }

class PoorStore final : public ForwardingStore {
 public:
  PoorStore(std::unique_ptr<Store> inner, const std::atomic<Lack>& lack)
      : ForwardingStore(std::move(inner)), lack_(lack) {}

  Result<ByteVector> Get(const std::string& name, std::uint64_t size_max) override {
    if (lack_ == Lack::kMemory) RunOut();
    return ForwardingStore::Get(name, size_max);
  }
  Result<std::vector<std::string>> List(const std::string& prefix) override {
    if (lack_ == Lack::kStore) return Unavailable("the store is away");
    return ForwardingStore::List(prefix);
  }

 private:
  const std::atomic<Lack>& lack_;
};

class PoorEnvironment final : public ForwardingEnvironment {
 public:
  PoorEnvironment() : ForwardingEnvironment(SystemLiveEnvironment()) {}

  std::unique_ptr<Device> MakeDevice(unsigned threads) override {
    return SystemLiveEnvironment().MakeDevice(threads);
  }
  Result<std::unique_ptr<LiveWeights>> OpenWeights(const std::string& name) override {
    return SystemLiveEnvironment().OpenWeights(name);
  }
  Result<std::unique_ptr<LiveWeights>> CreateWeights(const std::string& name, const Plan& plan,
                                                     const std::string& lineage) override {
    return SystemLiveEnvironment().CreateWeights(name, plan, lineage);
  }
  std::unique_ptr<BackgroundTask> Start(TaskPriority priority, Body body) override {
    if (lack == Lack::kThreads) {
      std::rethrow_exception(std::make_exception_ptr(
          std::system_error(std::make_error_code(std::errc::resource_unavailable_try_again))));
    }
    if (lack == Lack::kMemoryForThreads) RunOut();
    return ForwardingEnvironment::Start(priority, std::move(body));
  }
  Result<std::unique_ptr<Store>> OpenStore(const std::string& url, bool create) override {
    SEGUE_ASSIGN_OR_RETURN(auto store, ForwardingEnvironment::OpenStore(url, create));
    return std::unique_ptr<Store>(std::make_unique<PoorStore>(std::move(store), lack));
  }

  std::atomic<Lack> lack{Lack::kNothing};
};

TEST(ReceiverMemoryTest, AnUpdateThatCannotBePreparedHasFailed) {
  const test::TemporaryDirectory directory;
  test::MiniTrainer trainer{directory.path()};
  const std::string store = directory.File("store");
  const test::SegmentName name{"memory"};
  trainer.Step(1, 500);
  ASSERT_TRUE(Publish(PublishOf(store, trainer.Directory(0), trainer.Directory(1))).ok());
  ReceiverOptions options;
  options.store = store;
  options.checkpoint = trainer.Directory(0);
  options.name = name;
  options.catch_up = false;
  PoorEnvironment environment;
  const auto receiver = ReceiverInternals::Open(options, environment);
  ASSERT_TRUE(receiver.ok()) << receiver.status().ToString();
  for (const Lack lack : {Lack::kThreads, Lack::kMemoryForThreads, Lack::kMemory}) {
    environment.lack = lack;
    const Status failed = receiver.value()->Update({.session = "poor"}).status();
    EXPECT_EQ(failed.code(), StatusCode::kResourceExhausted) << failed.ToString();
    EXPECT_EQ(receiver.value()->status().state, ReceiverState::kFailed);
    EXPECT_EQ(receiver.value()->status().version, 0u);
    EXPECT_TRUE(receiver.value()->status().ready);
  }
  environment.lack = Lack::kNothing;
  const Status updated = receiver.value()->Update({.session = "rich"}).status();
  EXPECT_TRUE(updated.ok()) << updated.ToString();
  EXPECT_EQ(receiver.value()->status().version, 1u);
}

class NoMemoryTest : public test::ReceiverFixture {
 protected:
  NoMemoryTest() : ReceiverFixture("no-memory") {
    Advance(1);
    ReceiverOptions options = Options();
    options.version = 0;
    options.threads = options.background_threads = 1;
    receiver_ = Receiver::Open(options).value();
  }

  // Whether it went through all of `call` without an allocation that failed.
  bool Suffices(long allocations, const std::function<Status()>& call) {
    const test::NewFailsAfter failing(allocations);
    try {
      (void)call();
    } catch (const std::bad_alloc&) {  // As a request's, which is answered with 503.
    }
    return !test::NewFailsAfter::has_failed();
  }

  // With memory again: whatever is left half way is ended, engines step, and the next update goes.
  void ExpectRecovers(const std::string& session) {
    (void)receiver_->WaitPrepared();
    switch (receiver_->status().state) {
      case ReceiverState::kPrepared:
      case ReceiverState::kApplied:
        EXPECT_TRUE(receiver_->Apply(session).ok());
        EXPECT_TRUE(receiver_->Resume(session).ok());
        break;
      case ReceiverState::kPoisoned: EXPECT_TRUE(receiver_->Rebuild(0).ok()); break;
      default: break;
    }
    const ReceiverStatus status = receiver_->status();
    EXPECT_TRUE(status.ready) << status.message;
    ExpectLive(status.version);
    const Status rebuilt = status.version == 0 ? Status() : receiver_->Rebuild(0);
    EXPECT_TRUE(rebuilt.ok()) << rebuilt.ToString();
    ExpectLive(0);
  }

  // Every allocation at the beginning and the end, and some in between.
  void ForEachLack(const std::function<Status(const std::string& session)>& call) {
    long all = 0;
    while (!Suffices(all, [&] { return call("all-" + std::to_string(all)); })) {
      ExpectRecovers("all-" + std::to_string(all));
      ASSERT_FALSE(HasFailure()) << "after " << all << " allocations";
      all += all < 40 ? 1 : 1 + all / 24;
    }
    ExpectRecovers("all-" + std::to_string(all));
    EXPECT_GT(all, 200);
    // The count of threads varies a little.
    for (long allocations = std::max(all - all / 12, 0L); allocations < all; allocations += 1) {
      const std::string session = "last-" + std::to_string(allocations);
      (void)Suffices(allocations, [&] { return call(session); });
      ExpectRecovers(session);
      ASSERT_FALSE(HasFailure()) << "after " << allocations << " allocations";
    }
  }

  std::unique_ptr<Receiver> receiver_;
};

TEST_F(NoMemoryTest, AnUpdateEndsAndNoGateStaysClosed) {
  ForEachLack(
      [&](const std::string& session) { return receiver_->Update({.session = session}).status(); });
}

TEST_F(NoMemoryTest, ARebuildEndsAndNoGateStaysClosed) {
  ForEachLack([&](const std::string&) { return receiver_->Rebuild(0); });
}

// A rebuild that memory failed midway is begun again by the follower, for as long as it takes.
class RebuildAgainTest : public NoMemoryTest {
 protected:
  RebuildAgainTest() {
    receiver_.reset();
    ReceiverOptions options = Options();
    options.catch_up = false;
    receiver_ = ReceiverInternals::Open(options, environment_).value();
    for (long allocations = 0; receiver_->status().state != ReceiverState::kPoisoned;
         ++allocations) {
      EXPECT_FALSE(Suffices(allocations, [&] { return receiver_->Rebuild(std::nullopt); }));
    }
  }

  bool Comes(const std::function<bool(const ReceiverStatus&)>& what) {
    const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (!what(receiver_->status())) {
      if (std::chrono::steady_clock::now() > until) return false;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return true;
  }
  static bool Tells(const ReceiverStatus& status) {
    return status.message.find("the follower rebuilds again (") != std::string::npos;
  }

  PoorEnvironment environment_;
};

// Who follows no more does not say that he does.
TEST_F(RebuildAgainTest, AFollowerThatCannotBeStartedIsARefusal) {
  environment_.lack = Lack::kStore;
  ASSERT_TRUE(receiver_->Follow(std::chrono::milliseconds(1)).ok());
  EXPECT_TRUE(Comes(Tells));
  for (const Lack lack : {Lack::kThreads, Lack::kMemoryForThreads}) {
    environment_.lack = lack;
    const Status refused = receiver_->Follow(std::chrono::milliseconds(1));
    EXPECT_EQ(refused.code(), StatusCode::kResourceExhausted) << refused.ToString();
    EXPECT_FALSE(Tells(receiver_->status())) << receiver_->status().message;
  }
  environment_.lack = Lack::kNothing;
  ASSERT_TRUE(receiver_->Follow(std::chrono::milliseconds(1)).ok());
  EXPECT_TRUE(Comes([](const ReceiverStatus& status) { return status.ready; }));
}

TEST_F(RebuildAgainTest, ByTheFollowerAlone) {
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_EQ(receiver_->status().state, ReceiverState::kPoisoned);
  EXPECT_FALSE(Tells(receiver_->status())) << receiver_->status().message;
  ASSERT_TRUE(receiver_->Follow(std::chrono::milliseconds(1)).ok());
  EXPECT_TRUE(Comes([](const ReceiverStatus& status) { return status.ready; }));
  EXPECT_EQ(receiver_->status().message, "");
  ExpectLive(1);
}

TEST_F(RebuildAgainTest, AndTheStatusSaysSo) {
  environment_.lack = Lack::kStore;
  ASSERT_TRUE(receiver_->Follow(std::chrono::milliseconds(1)).ok());
  EXPECT_TRUE(Comes(Tells)) << receiver_->status().message;
  EXPECT_TRUE(Comes([](const ReceiverStatus& status) {
    return status.message.find("rebuilds again (3 failed so far)") != std::string::npos;
  })) << receiver_->status().message;
  EXPECT_FALSE(receiver_->status().ready);
  EXPECT_EQ(receiver_->status().failure, StatusCode::kTainted);
  environment_.lack = Lack::kNothing;
  EXPECT_TRUE(Comes([](const ReceiverStatus& status) { return status.ready; }));
  ExpectLive(1);
}

}  // namespace
}  // namespace segue
