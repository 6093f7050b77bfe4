// SPDX-License-Identifier: Apache-2.0
//
// Bytes: hexadecimal text.
#include "base/bytes.h"

namespace segue {
namespace {

int DigitValue(char digit) {
  if (digit >= '0' && digit <= '9') return digit - '0';
  if (digit >= 'a' && digit <= 'f') return digit - 'a' + 10;
  return -1;
}

}  // namespace

std::string ToHex(ByteSpan bytes) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  text.reserve(bytes.size() * 2);
  for (const std::byte b : bytes) {
    text.push_back(kDigits[std::to_integer<unsigned>(b) >> 4]);
    text.push_back(kDigits[std::to_integer<unsigned>(b) & 15]);
  }
  return text;
}

bool FromHex(std::string_view text, MutableByteSpan target) {
  if (text.size() != target.size() * 2) return false;
  for (std::size_t i = 0; i < target.size(); ++i) {
    const int high = DigitValue(text[2 * i]);
    const int low = DigitValue(text[2 * i + 1]);
    if (high < 0 || low < 0) return false;
    target[i] = static_cast<std::byte>(high << 4 | low);
  }
  return true;
}

}  // namespace segue
