// SPDX-License-Identifier: Apache-2.0
//
// Tar headers: POSIX ustar (IEEE Std 1003.1, pax), with GNU's base-256 form for sizes of 8 GiB and
// more. Only what docs/format.md names is accepted.
#include <algorithm>
#include <cstring>

#include "store/archive.h"

namespace segue {
namespace {

struct Field {
  std::size_t offset;
  std::size_t size;
};
constexpr Field kName = {0, 100}, kMode = {100, 8}, kOwner = {108, 8}, kGroup = {116, 8},
                kSize = {124, 12}, kTime = {136, 12}, kChecksum = {148, 8}, kType = {156, 1},
                kMagic = {257, 8}, kPrefix = {345, 155};
constexpr std::uint64_t kOctalSizeMax = (1ull << 33) - 1;

std::string TextOf(ByteSpan block, Field field) {
  const std::string_view text = AsText(block.subspan(field.offset, field.size));
  return std::string(text.substr(0, text.find('\0')));
}

// Octal digits, then spaces or zero bytes.
Result<std::uint64_t> OctalOf(ByteSpan block, Field field, const char* what) {
  std::uint64_t value = 0;
  std::size_t i = 0;
  const std::string_view text = AsText(block.subspan(field.offset, field.size));
  while (i < text.size() && text[i] == ' ') ++i;
  const std::size_t first = i;
  for (; i < text.size() && text[i] >= '0' && text[i] <= '7'; ++i) {
    value = value << 3 | static_cast<std::uint64_t>(text[i] - '0');
  }
  const bool ended = std::all_of(text.begin() + static_cast<std::ptrdiff_t>(i), text.end(),
                                 [](char c) { return c == ' ' || c == '\0'; });
  if (i > first && ended) return value;
  return Corruption(std::string("tar header has a ") + what + " that is no octal number");
}

Result<std::uint64_t> SizeOf(ByteSpan block) {
  const ByteSpan field = block.subspan(kSize.offset, kSize.size);
  if ((field[0] & std::byte{0x80}) == std::byte{0}) return OctalOf(block, kSize, "size");
  // Base 256, big-endian; the first four bytes would be above 2^64.
  if (field[0] != std::byte{0x80} || std::any_of(field.begin() + 1, field.begin() + 4,
                                                 [](std::byte b) { return b != std::byte{}; })) {
    return Corruption("tar header has a size above 2^64");
  }
  std::uint64_t value = 0;
  for (std::size_t i = 4; i < field.size(); ++i)
    value = value << 8 | std::to_integer<unsigned>(field[i]);
  return value;
}

// Sum of the bytes, the checksum's own counted as spaces.
std::uint64_t ChecksumOf(ByteSpan block) {
  std::uint64_t sum = 0;
  for (std::size_t i = 0; i < block.size(); ++i) {
    const bool own = i >= kChecksum.offset && i < kChecksum.offset + kChecksum.size;
    sum += own ? ' ' : std::to_integer<unsigned>(block[i]);
  }
  return sum;
}

void PutText(MutableByteSpan block, Field field, std::string_view text) {
  std::memcpy(block.data() + field.offset, text.data(), text.size());
}

void PutOctal(MutableByteSpan block, Field field, std::uint64_t value) {
  for (std::size_t i = field.size - 1; i-- > 0; value >>= 3) {
    block[field.offset + i] = static_cast<std::byte>('0' + (value & 7));
  }
}

}  // namespace

Result<TarHeader> ParseTarHeader(ByteSpan block) {
  const std::string_view magic = AsText(block.subspan(kMagic.offset, kMagic.size));
  if (!magic.starts_with("ustar")) return Corruption("tar header does not say 'ustar'");
  SEGUE_ASSIGN_OR_RETURN(const std::uint64_t checksum, OctalOf(block, kChecksum, "checksum"));
  if (checksum != ChecksumOf(block)) return Corruption("tar header has a wrong checksum");
  TarHeader header;
  header.name = TextOf(block, kName);
  // GNU's own variant uses the prefix for other things.
  const std::string prefix =
      magic == std::string_view("ustar\00000", 8) ? TextOf(block, kPrefix) : "";
  if (!prefix.empty()) header.name = prefix + "/" + header.name;
  SEGUE_ASSIGN_OR_RETURN(header.size, SizeOf(block));
  const char type = AsText(block)[kType.offset];
  header.is_folder = type == '5';
  if (type == '0' || type == '\0' || type == '5') return header;
  return Corruption("tar entry '" + header.name + "' is neither a regular file nor a folder");
}

Result<ByteVector> MakeTarHeader(const std::string& name, std::uint64_t size) {
  std::string prefix;
  std::string rest = name;
  if (name.size() > kName.size) {
    const std::size_t slash = name.find('/', name.size() - kName.size - 1);
    if (slash > kPrefix.size) {  // Or there is none.
      return InvalidArgument("object name '" + name + "' is too long for a tar archive");
    }
    prefix = name.substr(0, slash);
    rest = name.substr(slash + 1);
  }
  ByteVector block(kTarBlockSize);
  PutText(block, kName, rest);
  PutText(block, kPrefix, prefix);
  PutOctal(block, kMode, 0644);
  PutOctal(block, kOwner, 0);
  PutOctal(block, kGroup, 0);
  PutOctal(block, kTime, 0);
  if (size <= kOctalSizeMax) {
    PutOctal(block, kSize, size);
  } else {
    block[kSize.offset] = std::byte{0x80};
    for (std::size_t i = kSize.size; i-- > 4; size >>= 8) {
      block[kSize.offset + i] = static_cast<std::byte>(size);
    }
  }
  PutText(block, kType, "0");
  PutText(block, kMagic, std::string_view("ustar\00000", 8));
  PutOctal(block, {kChecksum.offset, kChecksum.size - 1}, ChecksumOf(block));
  block[kChecksum.offset + kChecksum.size - 1] = std::byte{' '};
  return block;
}

}  // namespace segue
