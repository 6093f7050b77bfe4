// SPDX-License-Identifier: Apache-2.0
//
// Any bytes as a Snappy block, LZ4 block or Zstd frame that claims a size: a decoder refuses or
// fills exactly its target, the same each time, and writes nowhere else. The same bytes as content
// must survive each codec.
#include <algorithm>
#include <cstdint>

#include "base/check.h"
#include "codec/block_codec.h"

namespace segue {
namespace {

constexpr std::size_t kSizeMax = 1 << 16;

Status Decode(int codec, ByteSpan source, MutableByteSpan target) {
  static ZstdDecompressor zstd;
  switch (codec) {
    case 0: return SnappyDecompress(source, target);
    case 1: return Lz4Decompress(source, target);
    case 2: return zstd.Decompress(source, target, ZstdChecksum::kOptional);
    default: return zstd.Decompress(source, target, ZstdChecksum::kRequired);
  }
}

ByteVector Encode(int codec, ByteSpan source) {
  static ZstdCompressor zstd;
  ByteVector packed(
      std::max({SnappyBound(source.size()), Lz4Bound(source.size()), ZstdBound(source.size())}));
  switch (codec) {
    case 0: packed.resize(SnappyCompress(source, packed)); break;
    case 1: packed.resize(Lz4Compress(source, packed)); break;
    case 2: packed.resize(zstd.Compress(source, packed).value()); break;
    default: packed.resize(zstd.Compress(source, packed, ZstdContent::kEntropy).value());
  }
  return packed;
}

void CheckDecoder(int codec, ByteSpan source, std::size_t size) {
  ByteVector target(size, std::byte{0xee});
  const Status status = Decode(codec, source, target);
  if (!status.ok()) {
    SEGUE_CHECK(!status.message().empty());
    return;
  }
  // Nothing of what the target held before shows through.
  ByteVector again(size, std::byte{0x11});
  SEGUE_CHECK(Decode(codec, source, again).ok() && again == target);
  // No other size is taken.
  ByteVector longer(size + 1);
  SEGUE_CHECK(!Decode(codec, source, longer).ok());
}

void CheckRoundTrip(int codec, ByteSpan content) {
  const ByteVector packed = Encode(codec, content);
  ByteVector target(content.size());
  SEGUE_CHECK(Decode(codec, packed, target).ok());
  SEGUE_CHECK(std::equal(content.begin(), content.end(), target.begin(), target.end()));
}

}  // namespace
}  // namespace segue

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 3) return 0;
  const int codec = data[0] % 4;
  const std::size_t claimed = (std::size_t{data[1]} | std::size_t{data[2]} << 8) % segue::kSizeMax;
  const segue::ByteSpan bytes = std::as_bytes(std::span(data, size)).subspan(3);
  segue::CheckDecoder(codec, bytes, claimed);
  segue::CheckRoundTrip(codec, bytes);
  return 0;
}
