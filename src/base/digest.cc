// SPDX-License-Identifier: Apache-2.0
//
// Linear digest, scalar: the specification that every faster variant equals.
#include "base/digest.h"

#include <algorithm>

#include "base/check.h"

namespace segue {
namespace {

std::uint32_t WordAt(ByteSpan block, std::size_t index) {
  std::uint32_t word = 0;
  const std::size_t offset = index * 4;
  std::memcpy(&word, block.data() + offset, std::min<std::size_t>(4, block.size() - offset));
  return word;
}

}  // namespace

Digest DigestBytes(std::uint64_t tensor, std::uint64_t offset, ByteSpan bytes) {
  SEGUE_CHECK(offset % kDigestBlockSize == 0);
  Digest total;
  for (std::uint64_t block = offset / kDigestBlockSize; !bytes.empty(); ++block) {
    const ByteSpan part = bytes.first(std::min(bytes.size(), kDigestBlockSize));
    bytes = bytes.subspan(part.size());
    for (unsigned lane = 0; lane < 2; ++lane) {
      std::uint64_t sum = 0;
      for (std::size_t i = 0; i < DivideUp(part.size(), 4); ++i) {
        sum += std::uint64_t{WordAt(part, i)} * kDigestWordKeys[lane][i];
      }
      total.lane[lane] += sum * DigestBlockKey(lane, tensor, block);
    }
  }
  return total;
}

std::string Digest::ToHex() const {
  std::byte text[16];
  for (int i = 0; i < 16; ++i) {
    text[i] = static_cast<std::byte>(lane[i / 8] >> (56 - 8 * (i % 8)));
  }
  return segue::ToHex(text);
}

std::optional<Digest> Digest::FromHex(std::string_view text) {
  std::byte bytes[16];
  if (!segue::FromHex(text, bytes)) return std::nullopt;
  Digest digest;
  for (int i = 0; i < 16; ++i) {
    digest.lane[i / 8] = digest.lane[i / 8] << 8 | std::to_integer<std::uint64_t>(bytes[i]);
  }
  return digest;
}

}  // namespace segue
