// SPDX-License-Identifier: Apache-2.0
//
// Ed25519: the first vectors of RFC 8032, section 7.1, as PEM files; keys that are refused.
#include "base/signature.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstdlib>
#include <string>

#include "base/file.h"

namespace segue {
namespace {

// Test 2 of RFC 8032: the secret key 4ccd089b...a6fb and its public key, in PKCS #8 and SPKI.
constexpr char kPrivate[] =
    "-----BEGIN PRIVATE KEY-----\n"
    "MC4CAQAwBQYDK2VwBCIEIEzNCJso/5banbbDRuwRTg9bijGfNaumJNqM9u1PuKb7\n"
    "-----END PRIVATE KEY-----\n";
constexpr char kPublic[] =
    "-----BEGIN PUBLIC KEY-----\n"
    "MCowBQYDK2VwAyEAPUAXw+hDiVqStwqnTRt+vJyYLM8uxJaMwM1V8Sr0Zgw=\n"
    "-----END PUBLIC KEY-----\n";
constexpr char kSignature[] =
    "92a009a9f0d4cab8720e820b5f642540a2b27b5416503f8fb3762223ebdb69da"
    "085ac1e43e15996e458f3613d0f11d8c387b2eaeb4302aeeb00d291612bb0c00";

class SignatureTest : public testing::Test {
 protected:
  void SetUp() override {
    path_ = testing::TempDir() + "/segue_key_XXXXXX";
    ASSERT_NE(::mkdtemp(path_.data()), nullptr);
  }
  void TearDown() override { EXPECT_TRUE(RemoveTree(path_).ok()); }

  std::string Write(const std::string& name, std::string_view text, mode_t mode = 0600) const {
    const std::string path = JoinPath(path_, name);
    EXPECT_TRUE(WriteFileAtomic(path, AsBytes(text)).ok());
    EXPECT_EQ(::chmod(path.c_str(), mode), 0);
    return path;
  }

  std::string path_;
};

TEST_F(SignatureTest, VectorOfTheStandard) {
  const auto key = SigningKey::Load(Write("private", kPrivate));
  ASSERT_TRUE(key.ok()) << key.status().ToString();
  const std::byte message[] = {std::byte{0x72}};
  const Signature signature = key.value().Sign(message);
  EXPECT_EQ(signature.ToHex(), kSignature);
  EXPECT_EQ(Signature::FromHex(kSignature), signature);
  const auto known = PublicKey::Load(Write("public", kPublic, 0644));
  ASSERT_TRUE(known.ok()) << known.status().ToString();
  EXPECT_TRUE(known.value().Verify(message, signature));
  EXPECT_TRUE(key.value().public_key().Verify(message, signature));
}

TEST_F(SignatureTest, EveryBitCounts) {
  const auto key = SigningKey::Load(Write("private", kPrivate));
  const std::string text = "what is signed";
  const Signature signature = key.value().Sign(AsBytes(text));
  const PublicKey known = key.value().public_key();
  for (std::size_t bit = 0; bit < 512; ++bit) {
    Signature wrong = signature;
    wrong.bytes[bit / 8] ^= static_cast<std::byte>(1u << bit % 8);
    EXPECT_FALSE(known.Verify(AsBytes(text), wrong)) << bit;
  }
  EXPECT_FALSE(known.Verify(AsBytes("what is signeD"), signature));
  EXPECT_FALSE(known.Verify({}, signature));
}

TEST_F(SignatureTest, KeysThatAreRefused) {
  const auto code = [](const auto& result) { return result.status().code(); };
  EXPECT_EQ(code(SigningKey::Load(JoinPath(path_, "nowhere"))), StatusCode::kNotFound);
  EXPECT_EQ(code(PublicKey::Load(JoinPath(path_, "nowhere"))), StatusCode::kNotFound);
  for (const mode_t mode : {0640, 0604, 0620, 0601}) {
    const auto key = SigningKey::Load(Write("open", kPrivate, mode));
    EXPECT_EQ(code(key), StatusCode::kInvalidArgument);
    EXPECT_NE(key.status().message().find("chmod 600"), std::string::npos);
  }
  EXPECT_EQ(code(SigningKey::Load(Write("a", kPublic))), StatusCode::kInvalidArgument);
  EXPECT_EQ(code(PublicKey::Load(Write("b", kPrivate))), StatusCode::kInvalidArgument);
  EXPECT_EQ(code(PublicKey::Load(Write("c", "no PEM"))), StatusCode::kInvalidArgument);
  // X25519 exchanges keys and signs nothing.
  EXPECT_EQ(code(PublicKey::Load(Write("d",
                                       "-----BEGIN PUBLIC KEY-----\n"
                                       "MCowBQYDK2VuAyEAPUAXw+hDiVqStwqnTRt+vJyYLM8uxJaMwM1V8Sr0"
                                       "Zgw=\n-----END PUBLIC KEY-----\n"))),
            StatusCode::kInvalidArgument);
}

TEST(SignatureTextTest, HexIsExact) {
  const std::string text(kSignature);
  EXPECT_EQ(Signature::FromHex(text.substr(1)), std::nullopt);
  EXPECT_EQ(Signature::FromHex(text + "0"), std::nullopt);
  std::string upper = text;
  upper[1] = 'A';
  EXPECT_EQ(Signature::FromHex(upper), std::nullopt);
}

}  // namespace
}  // namespace segue
