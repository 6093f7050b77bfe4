// SPDX-License-Identifier: Apache-2.0
//
// Store waits: the call that runs for longest counts, from its own begin, until it returns.
#include "server/store_waits.h"

#include <gtest/gtest.h>

#include <optional>
#include <thread>

#include "sync/testing.h"

namespace segue {
namespace {

using std::chrono::milliseconds;

TEST(StoreWaitsTest, TheOldestCallCountsWhileItRuns) {
  StoreWaits waits;
  EXPECT_EQ(waits.Longest(), StoreWaits::Clock::duration::zero());
  std::optional<StoreWaits::Call> first(std::in_place, waits);
  std::this_thread::sleep_for(milliseconds(300));
  const StoreWaits::Call second(waits);
  EXPECT_GE(waits.Longest(), milliseconds(300));
  first.reset();
  EXPECT_LT(waits.Longest(), milliseconds(300));
}

// Looks at the waits from inside each call.
class AskingStore final : public ForwardingStore {
 public:
  AskingStore(std::shared_ptr<Store> inner, const StoreWaits& waits)
      : ForwardingStore(std::move(inner)), waits_(waits) {}
  Result<ByteVector> Get(const std::string&, std::uint64_t) override { return Seen(); }
  Result<ByteVector> GetRange(const std::string&, std::uint64_t, std::uint64_t) override {
    return Seen();
  }
  Result<std::uint64_t> Size(const std::string&) override { return Seen(); }
  Result<std::vector<std::string>> List(const std::string&) override { return Seen(); }
  Result<std::vector<std::string>> ListFolders(const std::string&) override { return Seen(); }

 private:
  Status Seen() const {
    std::this_thread::sleep_for(milliseconds(1));
    return waits_.Longest() >= milliseconds(1) ? NotFound("seen") : Internal("not seen");
  }

  const StoreWaits& waits_;
};

TEST(StoreWaitsTest, EveryReadOfAStoreIsSeen) {
  const test::TemporaryDirectory directory;
  const auto waits = std::make_shared<StoreWaits>();
  std::shared_ptr<Store> real = OpenStore(directory.path(), /*create=*/true).value();
  WaitedStore store(std::make_shared<AskingStore>(std::move(real), *waits), waits);
  EXPECT_EQ(store.Get("a", 1).status().code(), StatusCode::kNotFound);
  EXPECT_EQ(store.GetRange("a", 0, 1).status().code(), StatusCode::kNotFound);
  EXPECT_EQ(store.Size("a").status().code(), StatusCode::kNotFound);
  EXPECT_EQ(store.List("a").status().code(), StatusCode::kNotFound);
  EXPECT_EQ(store.ListFolders("a").status().code(), StatusCode::kNotFound);
  EXPECT_EQ(waits->Longest(), StoreWaits::Clock::duration::zero());
}

}  // namespace
}  // namespace segue
