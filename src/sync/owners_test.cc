// SPDX-License-Identifier: Apache-2.0
//
// case G7: what owners hand in is added up, and what does not belong together is refused.
#include "sync/owners.h"

#include <gtest/gtest.h>

#include <chrono>
#include <functional>

#include "checkpoint/testing.h"

namespace segue {
namespace {

class OwnersTest : public testing::Test {
 protected:
  OwnersTest() {
    for (std::uint32_t owner = 0; owner < 3; ++owner) {
      options_[owner].version = 7;
      options_[owner].owner = owner;
      options_[owner].owner_count = 3;
      options_[owner].session = "a";
      options_[owner].owner_timeout_seconds = 0.2;
    }
  }
  static DeltaIdentity Identity(std::uint64_t part) {
    DeltaIdentity identity;
    identity.lineage = "default";
    identity.base_version = 6;
    identity.target_version = 7;
    identity.profile = "zstd";
    identity.base_digest = Digest{{part, 1}};
    identity.target_digest = Digest{{part, 2}};
    identity.changed_chunks = part;
    identity.changed_elements = 2 * part;
    return identity;
  }
  PayloadEntry Payload(std::uint32_t owner) const {
    PayloadEntry payload;
    payload.owner = owner;
    payload.size = 100;
    payload.object = object_name::Payload("default", 7, owner, 3, payload.sha256);
    return payload;
  }
  // To the rounds that are open. Nobody makes a version of it: Unavailable, in the end.
  Status HandIn(std::uint32_t owner, const DeltaIdentity& identity) {
    options_[owner].owner_timeout_seconds = 0.01;
    return OwnerExchange(*store_, options_[owner]).HandInUntilVisible(identity, Payload(owner));
  }
  // What owner 0 makes of what is handed in to its round by `hand_in`.
  Status Collect(const std::function<void()>& hand_in, DeltaIdentity& identity,
                 std::vector<PayloadEntry>& payloads) {
    OwnerExchange exchange(*store_, options_[0]);
    SEGUE_RETURN_IF_ERROR(exchange.OpenRound());
    hand_in();
    return exchange.Collect(identity, payloads);
  }

  test::TemporaryDirectory directory_;
  std::unique_ptr<Store> store_ = OpenStore(directory_.File("store"), true).value();
  PublishOptions options_[3];
};

TEST_F(OwnersTest, AddsUp) {
  DeltaIdentity identity = Identity(1);
  std::vector<PayloadEntry> payloads = {Payload(0)};
  const auto hand_in = [&] {
    EXPECT_EQ(HandIn(1, Identity(10)).code(), StatusCode::kUnavailable);
    EXPECT_EQ(HandIn(2, Identity(100)).code(), StatusCode::kUnavailable);
  };
  const Status status = Collect(hand_in, identity, payloads);
  ASSERT_TRUE(status.ok()) << status.ToString();
  EXPECT_EQ(payloads.size(), 3u);
  EXPECT_EQ(identity.changed_chunks, 111u);
  EXPECT_EQ(identity.changed_elements, 222u);
  EXPECT_EQ(identity.base_digest, (Digest{{111, 3}}));
  EXPECT_EQ(identity.target_digest, (Digest{{111, 6}}));
  std::vector<std::string> warnings;
  OwnerExchange(*store_, options_[0]).RemoveRecords(warnings);
  EXPECT_TRUE(warnings.empty());
  EXPECT_TRUE(store_->List(object_name::OwnerFolder("default", 7, "a")).value().empty());
}

TEST_F(OwnersTest, TheSameTwiceIsFine) {
  OwnerExchange exchange(*store_, options_[0]);
  ASSERT_TRUE(exchange.OpenRound().ok());
  EXPECT_EQ(HandIn(1, Identity(10)).code(), StatusCode::kUnavailable);
  EXPECT_EQ(HandIn(1, Identity(10)).code(), StatusCode::kUnavailable);
  const Status other = HandIn(1, Identity(11));
  EXPECT_EQ(other.code(), StatusCode::kInvalidArgument);
  EXPECT_NE(other.message().find("--session"), std::string::npos);
}

TEST_F(OwnersTest, OfAnotherStep) {
  DeltaIdentity other = Identity(10);
  other.target_layout = HashSha256(AsBytes("other"));
  DeltaIdentity identity = Identity(1);
  std::vector<PayloadEntry> payloads;
  const Status status = Collect([&] { (void)HandIn(1, other); }, identity, payloads);
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << status.ToString();
}

// Records are for a step of one base alone.
TEST_F(OwnersTest, OfAnotherBase) {
  DeltaIdentity other = Identity(10);
  other.base_version = 5;
  DeltaIdentity identity = Identity(1);
  std::vector<PayloadEntry> payloads;
  const Status status = Collect([&] { (void)HandIn(1, other); }, identity, payloads);
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << status.ToString();
}

// What was handed in to a round is taken in that round alone.
TEST_F(OwnersTest, Rounds) {
  OwnerExchange first(*store_, options_[0]);
  ASSERT_TRUE(first.OpenRound().ok());
  for (const std::uint32_t owner : {1u, 2u}) {
    const Status status =
        OwnerExchange(*store_, options_[owner]).HandInUntilVisible(Identity(10), Payload(owner));
    EXPECT_EQ(status.code(), StatusCode::kUnavailable) << status.ToString();
  }
  DeltaIdentity identity = Identity(1);
  std::vector<PayloadEntry> payloads = {Payload(0)};
  // Another attempt of owner 0, which has nothing of its own.
  OwnerExchange second(*store_, options_[0]);
  ASSERT_TRUE(second.OpenRound().ok());
  EXPECT_EQ(second.Collect(identity, payloads).code(), StatusCode::kUnavailable);
  // The first round's records are there all the same, and it closes when it has them.
  const Status status = first.Collect(identity, payloads);
  EXPECT_TRUE(status.ok()) << status.ToString();
  EXPECT_EQ(payloads.size(), 3u);
  const auto names = store_->List(object_name::OwnerFolder("default", 7, "a"));
  for (const std::string& name : names.value()) {
    EXPECT_FALSE(object_name::ParseRound(name)) << name;
  }
}

// Nothing is handed in unasked.
TEST_F(OwnersTest, NoRoundIsOpen) {
  const Status status =
      OwnerExchange(*store_, options_[1]).HandInUntilVisible(Identity(10), Payload(1));
  EXPECT_EQ(status.code(), StatusCode::kUnavailable) << status.ToString();
  EXPECT_TRUE(store_->List(object_name::OwnerFolder("default", 7, "a")).value().empty());
}

// A record under the name of a round that it is not of: never believed.
TEST_F(OwnersTest, RecordUnderAnotherRoundsName) {
  OwnerExchange first(*store_, options_[0]);
  ASSERT_TRUE(first.OpenRound().ok());
  const std::string folder = object_name::OwnerFolder("default", 7, "a");
  const auto round = object_name::ParseRound(store_->List(folder).value().front());
  ASSERT_TRUE(round.has_value());
  OwnerRecord record;
  record.identity = Identity(10);
  record.owner_count = 3;
  record.payload = Payload(1);
  record.round = "0123456789abcdef";
  const std::string name = object_name::Owner("default", 7, "a", 1, 3, *round);
  ASSERT_TRUE(store_->PutIfAbsent(name, AsBytes(record.ToJson())).ok());
  DeltaIdentity identity = Identity(1);
  std::vector<PayloadEntry> payloads = {Payload(0)};
  EXPECT_EQ(first.Collect(identity, payloads).code(), StatusCode::kInvalidArgument);
}

// One deadline for all, however many are missing.
TEST_F(OwnersTest, Missing) {
  const auto begin = std::chrono::steady_clock::now();
  DeltaIdentity identity = Identity(1);
  std::vector<PayloadEntry> payloads;
  const Status status = Collect([&] { (void)HandIn(1, Identity(10)); }, identity, payloads);
  EXPECT_EQ(status.code(), StatusCode::kUnavailable);
  EXPECT_NE(status.message().find("owner 2 of 3"), std::string::npos) << status.message();
  EXPECT_GE(std::chrono::steady_clock::now() - begin, std::chrono::milliseconds(200));
}

TEST_F(OwnersTest, OneOwnerWaitsForNobody) {
  PublishOptions alone;
  OwnerExchange exchange(*store_, alone);
  DeltaIdentity identity = Identity(1);
  std::vector<PayloadEntry> payloads;
  std::vector<std::string> warnings;
  EXPECT_TRUE(exchange.Collect(identity, payloads).ok());
  exchange.RemoveRecords(warnings);
  EXPECT_TRUE(payloads.empty() && warnings.empty());
}

}  // namespace
}  // namespace segue
