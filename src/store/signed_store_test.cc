// SPDX-License-Identifier: Apache-2.0
//
// A store behind keys: what is put through it is signed, what is read through it is proven, and
// nothing of it can be moved to another name.
#include "store/signed_store.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include "store/signed_object.h"
#include "store/test_support.h"

namespace segue {
namespace {

constexpr char kPrivate[] =
    "-----BEGIN PRIVATE KEY-----\n"
    "MC4CAQAwBQYDK2VwBCIEIEzNCJso/5banbbDRuwRTg9bijGfNaumJNqM9u1PuKb7\n"
    "-----END PRIVATE KEY-----\n";
constexpr char kPublic[] =
    "-----BEGIN PUBLIC KEY-----\n"
    "MCowBQYDK2VwAyEAPUAXw+hDiVqStwqnTRt+vJyYLM8uxJaMwM1V8Sr0Zgw=\n"
    "-----END PUBLIC KEY-----\n";
// The key of test 3 of RFC 8032, section 7.1.
constexpr char kOtherPublic[] =
    "-----BEGIN PUBLIC KEY-----\n"
    "MCowBQYDK2VwAyEA/FHNjmIYoaONpH7QAjDwWAgW7RO6MwOsXeuRFUiQgCU=\n"
    "-----END PUBLIC KEY-----\n";
constexpr char kName[] = "run/versions/0000000001.json";

class SignedStoreTest : public testing::Test {
 protected:
  void SetUp() override {
    Write("private", kPrivate);
    Write("public", kPublic);
    Write("other", kOtherPublic);
  }

  void Write(const std::string& name, std::string_view text) const {
    ASSERT_TRUE(WriteFileAtomic(folder_ / name, AsBytes(text)).ok());
    ASSERT_EQ(::chmod((folder_ / name).c_str(), 0600), 0);
  }

  std::unique_ptr<Store> Plain() const { return store_folder_.OpenDirStore(); }
  std::unique_ptr<Store> Signing() const {
    return WithKeys(Plain(), {.sign_key = folder_ / "private", .public_keys = {}}).value();
  }
  std::unique_ptr<Store> Reading(const std::vector<std::string>& keys) const {
    KeyFiles files;
    for (const std::string& key : keys) files.public_keys.push_back(folder_ / key);
    return WithKeys(Plain(), files).value();
  }
  std::string Stored(const std::string& name) const {
    return std::string(AsText(Plain()->Get(name, 1000).value()));
  }
  void PutPlain(const std::string& name, const std::string& text) const {
    ASSERT_EQ(Plain()->PutIfAbsent(name, AsBytes(text)).value(), PutOutcome::kCreated);
  }

  TemporaryFolder folder_;
  TemporaryFolder store_folder_;
};

TEST_F(SignedStoreTest, WhatIsPutIsSignedAndReadBack) {
  ASSERT_TRUE(Signing()->PutIfAbsent(kName, AsBytes("{\n  \"a\": 1\n}\n")).ok());
  const std::string stored = Stored(kName);
  const std::string head = "{\n  \"a\": 1,\n  \"signature\": \"";
  EXPECT_EQ(stored.substr(0, head.size()), head);
  EXPECT_EQ(stored.substr(head.size() + 128), "\"\n}\n");
  const auto read = Reading({"other", "public"})->Get(kName, 1000);
  ASSERT_TRUE(read.ok()) << read.status().ToString();
  EXPECT_EQ(AsText(read.value()), stored);
  EXPECT_EQ(AsText(Reading({"public"})->GetRange(kName, 2, 5).value()), "  \"a\"");
  EXPECT_TRUE(Signing()->Get(kName, 1000).ok());
}

TEST_F(SignedStoreTest, OtherKindsPassAsTheyAre) {
  const ByteVector payload = Pattern(1, 1000);
  ASSERT_TRUE(Signing()->PutIfAbsent("run/payloads/x", payload).ok());
  ASSERT_TRUE(Signing()->PutIfAbsent("run/versions/0000000001.gone", {}).ok());
  EXPECT_EQ(Reading({"public"})->Get("run/payloads/x", 1000).value(), payload);
  EXPECT_EQ(Reading({"public"})->Size("run/versions/0000000001.gone").value(), 0u);
  // A name that says JSON, around something else, would never be read again.
  EXPECT_EQ(Signing()->PutIfAbsent("run/x.json", payload).status().code(), StatusCode::kInternal);
}

TEST_F(SignedStoreTest, RefusesWhatNoneOfTheKeysHasSigned) {
  ASSERT_TRUE(Signing()->PutIfAbsent(kName, AsBytes("{\"a\": 1}")).ok());
  const auto code = [&](const std::vector<std::string>& keys, const std::string& name) {
    const Status status = Reading(keys)->Get(name, 1000).status();
    EXPECT_NE(status.message().find(name), std::string::npos) << status.message();
    return status.code();
  };
  EXPECT_EQ(code({"other"}, kName), StatusCode::kCorruption);
  PutPlain("run/lineage.json", "{\"a\": 1}\n");
  EXPECT_EQ(code({"public"}, "run/lineage.json"), StatusCode::kCorruption);
  PutPlain("run/empty.json", "");
  EXPECT_EQ(code({"public"}, "run/empty.json"), StatusCode::kCorruption);
  // Of another version, of another lineage.
  for (const std::string name : {"run/versions/0000000002.json", "ruN/versions/0000000001.json"}) {
    PutPlain(name, Stored(kName));
    EXPECT_EQ(code({"public"}, name), StatusCode::kCorruption);
  }
}

TEST_F(SignedStoreTest, EveryByteIsCovered) {
  ASSERT_TRUE(Signing()->PutIfAbsent(kName, AsBytes("{\"a\": 1}")).ok());
  const std::string stored = Stored(kName);
  const SigningKey key = SigningKey::Load(folder_ / "private").value();
  const PublicKey known = key.public_key();
  const auto verify = [&](std::string_view text) {
    return VerifyObject(std::span(&known, 1), kName, AsBytes(text)).ok();
  };
  EXPECT_TRUE(verify(stored));
  for (std::size_t i = 0; i < stored.size(); ++i) {
    std::string wrong = stored;
    wrong[i] = static_cast<char>(wrong[i] ^ 1);
    EXPECT_FALSE(verify(wrong)) << i;
    EXPECT_FALSE(verify(stored.substr(0, i))) << i;
  }
  EXPECT_FALSE(verify(stored + "\n"));
  EXPECT_FALSE(verify(" " + stored));
}

TEST_F(SignedStoreTest, WhoCannotSignDoesNotWriteBesideWhatIsSigned) {
  ASSERT_TRUE(Signing()->PutIfAbsent(kName, AsBytes("{\"a\": 1}")).ok());
  PutPlain("plain/lineage.json", "{\"a\": 1}\n");
  KeyFiles keys;
  for (int i = 0; i < 2; ++i) {  // A public key alone signs nothing.
    const auto store = WithWriterKeys(Plain(), keys).value();
    const Status status = store->Get(kName, 1000).status();
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    EXPECT_NE(status.message().find("--sign-key"), std::string::npos) << status.message();
    EXPECT_TRUE(store->PutIfAbsent("other/payloads/x", Pattern(1, 10)).ok());
    EXPECT_EQ(store->Get("plain/lineage.json", 1000).ok(), i == 0);
    keys.public_keys = {folder_ / "public"};
  }
  keys.sign_key = folder_ / "private";
  EXPECT_TRUE(WithWriterKeys(Plain(), keys).value()->Get(kName, 1000).ok());
}

TEST_F(SignedStoreTest, KeysThatCannotBeUsed) {
  KeyFiles keys;
  keys.public_keys = {folder_ / "private"};
  EXPECT_EQ(WithKeys(Plain(), keys).status().code(), StatusCode::kInvalidArgument);
  keys.public_keys.assign(17, folder_ / "public");
  EXPECT_EQ(WithKeys(Plain(), keys).status().code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(WithKeys(Plain(), {.sign_key = folder_ / "public", .public_keys = {}}).status().code(),
            StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace segue
