// SPDX-License-Identifier: Apache-2.0
//
// Goal: SHA-256 gives the published values (FIPS 180-4 examples), however the bytes are cut.
#include "base/hash.h"

#include <gtest/gtest.h>

#include <string>

namespace segue {
namespace {

TEST(HashTest, PublishedVectors) {
  EXPECT_EQ(HashSha256({}).ToHex(),
            "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(HashSha256(AsBytes("abc")).ToHex(),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(HashSha256(AsBytes("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq")).ToHex(),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  EXPECT_EQ(HashSha256(AsBytes(std::string(1'000'000, 'a'))).ToHex(),
            "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

TEST(HashTest, CutsDoNotMatter) {
  const std::string text(1000, 'q');
  const Sha256 whole = HashSha256(AsBytes(text));
  for (const std::size_t cut : {0, 1, 63, 64, 65, 999, 1000}) {
    Sha256Hasher hasher;
    hasher.Add(AsBytes(text).first(cut));
    hasher.Add(AsBytes(text).subspan(cut));
    EXPECT_EQ(hasher.Finish(), whole) << cut;
  }
}

TEST(HashTest, HexRoundTripsAndIsStrict) {
  const Sha256 hash = HashSha256(AsBytes("abc"));
  EXPECT_EQ(Sha256::FromHex(hash.ToHex()), hash);
  EXPECT_EQ(Sha256::FromHex(hash.ToHex().substr(1)), std::nullopt);
  EXPECT_EQ(Sha256::FromHex(hash.ToHex() + "00"), std::nullopt);
  EXPECT_EQ(Sha256::FromHex(std::string(64, 'A')), std::nullopt);
}

TEST(HashTest, HasherMoves) {
  Sha256Hasher first;
  first.Add(AsBytes("ab"));
  Sha256Hasher second = std::move(first);
  second.Add(AsBytes("c"));
  EXPECT_EQ(second.Finish(), HashSha256(AsBytes("abc")));
}

}  // namespace
}  // namespace segue
