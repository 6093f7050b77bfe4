// SPDX-License-Identifier: Apache-2.0
//
// BLAKE3 against fixed vectors: byte i of an input is i mod 251, lengths around blocks, chunks and
// subtrees. tests/e2e/test_disk_delta.py holds it against another implementation.
#include "base/blake3.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace segue {
namespace {

struct Vector {
  std::size_t size;
  const char* hash;
};

constexpr Vector kVectors[] = {
    {0, "af1349b9f5f9a1a6a0404dea36dcc9499bcb25c9adc112b7cc9a93cae41f3262"},
    {1, "2d3adedff11b61f14c886e35afa036736dcd87a74d27b5c1510225d0f592e213"},
    {63, "e9bc37a594daad83be9470df7f7b3798297c3d834ce80ba85d6e207627b7db7b"},
    {64, "4eed7141ea4a5cd4b788606bd23f46e212af9cacebacdc7d1f4c6dc7f2511b98"},
    {65, "de1e5fa0be70df6d2be8fffd0e99ceaa8eb6e8c93a63f2d8d1c30ecb6b263dee"},
    {1023, "10108970eeda3eb932baac1428c7a2163b0e924c9a9e25b35bba72b28f70bd11"},
    {1024, "42214739f095a406f3fc83deb889744ac00df831c10daa55189b5d121c855af7"},
    {1025, "d00278ae47eb27b34faecf67b4fe263f82d5412916c1ffd97c8cb7fb814b8444"},
    {2048, "e776b6028c7cd22a4d0ba182a8bf62205d2ef576467e838ed6f2529b85fba24a"},
    {2049, "5f4d72f40d7a5f82b15ca2b2e44b1de3c2ef86c426c95c1af0b6879522563030"},
    {3072, "b98cb0ff3623be03326b373de6b9095218513e64f1ee2edd2525c7ad1e5cffd2"},
    {4096, "015094013f57a5277b59d8475c0501042c0b642e531b0a1c8f58d2163229e969"},
    {4097, "9b4052b38f1c5fc8b1f9ff7ac7b27cd242487b3d890d15c96a1c25b8aa0fb995"},
    {8192, "aae792484c8efe4f19e2ca7d371d8c467ffb10748d8a5a1ae579948f718a2a63"},
    {8193, "bab6c09cb8ce8cf459261398d2e7aef35700bf488116ceb94a36d0f5f1b7bc3b"},
    {31744, "62b6960e1a44bcc1eb1a611a8d6235b6b4b78f32e7abc4fb4c6cdcce94895c47"},
    {102400, "bc3e3d41a1146b069abffad3c0d44860cf664390afce4d9661f7902e7943e085"},
};

ByteVector Input(std::size_t size) {
  ByteVector bytes(size);
  for (std::size_t i = 0; i < size; ++i) bytes[i] = static_cast<std::byte>(i % 251);
  return bytes;
}

TEST(Blake3Test, FixedVectors) {
  for (const Vector& vector : kVectors) {
    EXPECT_EQ(ToHex(HashBlake3(Input(vector.size))), vector.hash) << vector.size;
  }
}

TEST(Blake3Test, PiecesDoNotMatter) {
  for (const Vector& vector : kVectors) {
    const ByteVector input = Input(vector.size);
    for (const std::size_t step : {1, 64, 1000, 1024, 4096, 5000}) {
      Blake3Hasher hasher;
      for (std::size_t i = 0; i < input.size(); i += step) {
        hasher.Add(ByteSpan(input).subspan(i, std::min(step, input.size() - i)));
      }
      EXPECT_EQ(ToHex(hasher.Finish()), vector.hash) << vector.size << " by " << step;
    }
  }
}

}  // namespace
}  // namespace segue
