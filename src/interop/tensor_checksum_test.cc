// SPDX-License-Identifier: Apache-2.0
//
// Checksums against fixed vectors, made with the Python packages of their names (byte i of an input
// is i mod 251), in one piece and in several.
#include "interop/tensor_checksum.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace segue {
namespace {

constexpr ChecksumKind kKinds[] = {ChecksumKind::kXxh3, ChecksumKind::kBlake3,
                                   ChecksumKind::kAdler32};

struct Vector {
  std::size_t size;
  const char* checksum[3];
};

constexpr Vector kVectors[] = {
    {0,
     {"99aa06d3014798d86001c324468d497f",
      "af1349b9f5f9a1a6a0404dea36dcc9499bcb25c9adc112b7cc9a93cae41f3262", "00000001"}},
    {1,
     {"a6cd5e9392000f6ac44bdff4074eecdb",
      "2d3adedff11b61f14c886e35afa036736dcd87a74d27b5c1510225d0f592e213", "00010001"}},
    {16,
     {"72950631827607e2842812cc870dcae2",
      "a6a492965517a830cb75fdb713465aa465f2f098233896fea44c1d98268bf9e3", "02b80079"}},
    {17,
     {"685bc458b37d057fc06e233df7729217",
      "8462aa7be93b09fda7b93cf9f9cddb703f6dd2cc0c8edd5f9eee092edf8abf0c", "03410089"}},
    {128,
     {"14792fc3af88dc6c05321a0b64d67b41",
      "f17e570564b26578c33bb7f44643f539624b05df1a76c81f30acd548c44b45ef", "560b1fc1"}},
    {129,
     {"dd5e74ac6b45f54ebc30b63382b09a3b",
      "683aaae9f3c5ba37eaaf072aed0f9e30bac0865137bae68b1fde4ca2aebdcb12", "764c2041"}},
    {240,
     {"65b5be86da5540e7c92b68e16f83bbb6",
      "45e1a0dc23dbe51733d7269a3c0f519c2a63b0718835b2b537677eba734db0d8", "2ad57009"}},
    {241,
     {"1da1cb61bcb8a2a102e8cd95421c6d02",
      "749b36ae651c22e8567db692a6876e0ca4fd3daeb7aa8fa3ab2f642ccc69a8f6", "9bce70f9"}},
    {1000,
     {"18bf41bc8229e27733ef703fb2b20ed1",
      "b43670a52d1af24abdac5d2c3ed19ff4e62b60a618e823ad555888b1b0b91cff", "6cf4e66a"}},
    {100000,
     {"54182c58bbb1337c42c23aeead96750d",
      "d93c23eedaf165a7e0be908ba86f1a7a520d568d2d13cde787c8580c5c72cc54", "84cba994"}},
};

ByteVector Input(std::size_t size) {
  ByteVector bytes(size);
  for (std::size_t i = 0; i < size; ++i) bytes[i] = static_cast<std::byte>(i % 251);
  return bytes;
}

TEST(TensorChecksumTest, FixedVectors) {
  TensorHasher hasher;
  for (const Vector& vector : kVectors) {
    const ByteVector input = Input(vector.size);
    for (unsigned k = 0; k < 3; ++k) {
      EXPECT_EQ(HashTensor(kKinds[k], input).ToHex(kKinds[k]), vector.checksum[k]) << vector.size;
      hasher.Start(kKinds[k]);
      for (std::size_t i = 0; i < input.size(); i += 77) {
        hasher.Add(ByteSpan(input).subspan(i, std::min<std::size_t>(77, input.size() - i)));
      }
      hasher.Add({});
      EXPECT_EQ(hasher.Finish().ToHex(kKinds[k]), vector.checksum[k]) << vector.size;
    }
  }
}

TEST(TensorChecksumTest, TextThereAndBack) {
  for (unsigned k = 0; k < 3; ++k) {
    const std::string text = kVectors[4].checksum[k];
    const auto checksum = TensorChecksum::FromHex(kKinds[k], text);
    ASSERT_TRUE(checksum.has_value());
    EXPECT_EQ(*checksum, HashTensor(kKinds[k], Input(kVectors[4].size)));
    EXPECT_EQ(TensorChecksum::FromHex(kKinds[k], text + "00"), std::nullopt);
    EXPECT_EQ(TensorChecksum::FromHex(kKinds[k], text.substr(2)), std::nullopt);
    EXPECT_EQ(TensorChecksum::FromHex(kKinds[k], ""), std::nullopt);
    std::string upper = text;
    for (char& c : upper) c = static_cast<char>(std::toupper(c));
    ASSERT_NE(upper, text);
    EXPECT_EQ(TensorChecksum::FromHex(kKinds[k], upper), std::nullopt);
  }
}

TEST(TensorChecksumTest, Names) {
  for (const ChecksumKind kind : kKinds) {
    EXPECT_EQ(ChecksumKindFromName(ChecksumKindName(kind)), kind);
  }
  EXPECT_EQ(ChecksumKindFromName("md5"), std::nullopt);
  EXPECT_EQ(ChecksumKindFromName(""), std::nullopt);
}

}  // namespace
}  // namespace segue
