// SPDX-License-Identifier: Apache-2.0
//
// Snappy and LZ4 raw blocks. Both libraries bound their reads and writes; what is checked here is
// that the stated sizes are the ones the format promises.
#include <lz4.h>
#include <snappy.h>

#include <string>

#include "base/check.h"
#include "codec/block_codec.h"

namespace segue {
namespace {

const char* Chars(ByteSpan bytes) { return reinterpret_cast<const char*>(bytes.data()); }
char* Chars(MutableByteSpan bytes) { return reinterpret_cast<char*>(bytes.data()); }

Status WrongSize(const char* codec, std::uint64_t expected, std::uint64_t found) {
  return Corruption(std::string(codec) + " block decodes to " + std::to_string(found) +
                    " bytes, expected " + std::to_string(expected));
}

}  // namespace

std::size_t SnappyBound(std::size_t size) { return snappy::MaxCompressedLength(size); }

std::size_t Lz4Bound(std::size_t size) {
  SEGUE_CHECK(size <= LZ4_MAX_INPUT_SIZE);
  return static_cast<std::size_t>(LZ4_compressBound(static_cast<int>(size)));
}

std::size_t SnappyCompress(ByteSpan source, MutableByteSpan target) {
  SEGUE_CHECK(target.size() >= SnappyBound(source.size()));
  std::size_t written = 0;
  snappy::RawCompress(Chars(source), source.size(), Chars(target), &written);
  return written;
}

std::size_t Lz4Compress(ByteSpan source, MutableByteSpan target) {
  SEGUE_CHECK(source.size() <= LZ4_MAX_INPUT_SIZE && target.size() >= Lz4Bound(source.size()));
  const int capacity = LZ4_compressBound(static_cast<int>(source.size()));
  const int written =
      LZ4_compress_default(Chars(source), Chars(target), static_cast<int>(source.size()), capacity);
  SEGUE_CHECK(written > 0);
  return static_cast<std::size_t>(written);
}

Status SnappyDecompress(ByteSpan source, MutableByteSpan target) {
  std::size_t size = 0;
  if (!snappy::GetUncompressedLength(Chars(source), source.size(), &size)) {
    return Corruption("Snappy block has no readable length");
  }
  if (size != target.size()) return WrongSize("Snappy", target.size(), size);
  if (!snappy::RawUncompress(Chars(source), source.size(), Chars(target))) {
    return Corruption("Snappy block of " + std::to_string(source.size()) + " bytes is malformed");
  }
  return {};
}

Status Lz4Decompress(ByteSpan source, MutableByteSpan target) {
  if (source.size() > LZ4_MAX_INPUT_SIZE || target.size() > LZ4_MAX_INPUT_SIZE) {
    return Corruption("LZ4 block of " + std::to_string(source.size()) +
                      " bytes is over the limit of " + std::to_string(LZ4_MAX_INPUT_SIZE));
  }
  const int written =
      LZ4_decompress_safe(Chars(source), Chars(target), static_cast<int>(source.size()),
                          static_cast<int>(target.size()));
  if (written < 0) {
    return Corruption("LZ4 block of " + std::to_string(source.size()) + " bytes is malformed");
  }
  if (static_cast<std::size_t>(written) != target.size()) {
    return WrongSize("LZ4", target.size(), static_cast<std::uint64_t>(written));
  }
  return {};
}

}  // namespace segue
