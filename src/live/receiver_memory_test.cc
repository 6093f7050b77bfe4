// SPDX-License-Identifier: Apache-2.0
//
// A receiver whose machine runs out of memory or of threads: an update that cannot be prepared has
// failed, the version held serves on, and the next one, with memory again, is taken.
#include <gtest/gtest.h>

#include <exception>
#include <memory>
#include <new>
#include <string>
#include <system_error>
#include <utility>

#include "live/forwarding_environment.h"
#include "live/testing.h"
#include "segue/receiver.h"
#include "store/forwarding_store.h"
#include "sync/testing.h"

namespace segue {
namespace {

using test::PublishOf;

enum class Lack { kNothing, kThreads, kMemoryForThreads, kMemory };

void RunOut() { std::rethrow_exception(std::make_exception_ptr(std::bad_alloc())); }

class PoorStore final : public ForwardingStore {
 public:
  PoorStore(std::unique_ptr<Store> inner, const Lack& lack)
      : ForwardingStore(std::move(inner)), lack_(lack) {}

  Result<ByteVector> Get(const std::string& name, std::uint64_t size_max) override {
    if (lack_ == Lack::kMemory) RunOut();
    return ForwardingStore::Get(name, size_max);
  }

 private:
  const Lack& lack_;
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

  Lack lack = Lack::kNothing;
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

}  // namespace
}  // namespace segue
