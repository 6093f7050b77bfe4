// SPDX-License-Identifier: Apache-2.0
//
// case G7: what owners hand in is added up, and what does not belong together is refused.
#include "sync/owners.h"

#include <gtest/gtest.h>

#include <chrono>

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
  Status HandIn(std::uint32_t owner, const DeltaIdentity& identity) {
    return OwnerExchange(*store_, options_[owner]).HandIn(identity, Payload(owner));
  }

  test::TemporaryDirectory directory_;
  std::unique_ptr<Store> store_ = OpenStore(directory_.File("store"), true).value();
  PublishOptions options_[3];
};

TEST_F(OwnersTest, AddsUp) {
  ASSERT_TRUE(HandIn(1, Identity(10)).ok());
  ASSERT_TRUE(HandIn(2, Identity(100)).ok());
  OwnerExchange exchange(*store_, options_[0]);
  DeltaIdentity identity = Identity(1);
  std::vector<PayloadEntry> payloads = {Payload(0)};
  const Status status = exchange.Collect(identity, payloads);
  ASSERT_TRUE(status.ok()) << status.ToString();
  EXPECT_EQ(payloads.size(), 3u);
  EXPECT_EQ(identity.changed_chunks, 111u);
  EXPECT_EQ(identity.changed_elements, 222u);
  EXPECT_EQ(identity.base_digest, (Digest{{111, 3}}));
  EXPECT_EQ(identity.target_digest, (Digest{{111, 6}}));
  std::vector<std::string> warnings;
  exchange.RemoveRecords(warnings);
  EXPECT_TRUE(warnings.empty());
  EXPECT_TRUE(store_->List(object_name::OwnerFolder("default", 7, "a")).value().empty());
}

TEST_F(OwnersTest, TheSameTwiceIsFine) {
  ASSERT_TRUE(HandIn(1, Identity(10)).ok());
  EXPECT_TRUE(HandIn(1, Identity(10)).ok());
  const Status other = HandIn(1, Identity(11));
  EXPECT_EQ(other.code(), StatusCode::kInvalidArgument);
  EXPECT_NE(other.message().find("--session"), std::string::npos);
}

TEST_F(OwnersTest, OfAnotherStep) {
  DeltaIdentity other = Identity(10);
  other.target_layout = HashSha256(AsBytes("other"));
  ASSERT_TRUE(HandIn(1, other).ok());
  DeltaIdentity identity = Identity(1);
  std::vector<PayloadEntry> payloads;
  const Status status = OwnerExchange(*store_, options_[0]).Collect(identity, payloads);
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << status.ToString();
}

// One deadline for all, however many are missing.
TEST_F(OwnersTest, Missing) {
  const auto begin = std::chrono::steady_clock::now();
  ASSERT_TRUE(HandIn(1, Identity(10)).ok());
  DeltaIdentity identity = Identity(1);
  std::vector<PayloadEntry> payloads;
  const Status status = OwnerExchange(*store_, options_[0]).Collect(identity, payloads);
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
