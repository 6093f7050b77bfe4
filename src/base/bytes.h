// SPDX-License-Identifier: Apache-2.0
//
// Bytes: spans, little-endian loads and stores at any alignment, checked size arithmetic, and a
// bounds-checked reader for formats. All arithmetic on numbers from outside goes through here.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace segue {

static_assert(std::endian::native == std::endian::little, "Segue's formats are little-endian.");

using ByteSpan = std::span<const std::byte>;
using MutableByteSpan = std::span<std::byte>;
using ByteVector = std::vector<std::byte>;

template <typename T>
T LoadLittle(const std::byte* source) {
  static_assert(std::is_trivially_copyable_v<T>);
  T value;
  std::memcpy(&value, source, sizeof(T));
  return value;
}

template <typename T>
void StoreLittle(std::byte* target, T value) {
  static_assert(std::is_trivially_copyable_v<T>);
  std::memcpy(target, &value, sizeof(T));
}

template <typename T>
void AppendLittle(ByteVector& target, T value) {
  const std::size_t offset = target.size();
  target.resize(offset + sizeof(T));
  StoreLittle(target.data() + offset, value);
}

inline void AppendBytes(ByteVector& target, ByteSpan bytes) {
  target.insert(target.end(), bytes.begin(), bytes.end());
}

inline ByteSpan AsBytes(std::string_view text) { return std::as_bytes(std::span(text)); }

inline std::string_view AsText(ByteSpan bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

inline std::optional<std::uint64_t> CheckedAdd(std::uint64_t a, std::uint64_t b) {
  std::uint64_t sum;
  if (__builtin_add_overflow(a, b, &sum)) return std::nullopt;
  return sum;
}

inline std::optional<std::uint64_t> CheckedMultiply(std::uint64_t a, std::uint64_t b) {
  std::uint64_t product;
  if (__builtin_mul_overflow(a, b, &product)) return std::nullopt;
  return product;
}

inline constexpr std::uint64_t DivideUp(std::uint64_t value, std::uint64_t divisor) {
  return value / divisor + (value % divisor != 0);
}

// floor(a * b / divisor) without overflow in between; the result must fit.
inline constexpr std::uint64_t MultiplyDivide(std::uint64_t a, std::uint64_t b,
                                              std::uint64_t divisor) {
  __extension__ using Wide = unsigned __int128;
  return static_cast<std::uint64_t>(Wide{a} * b / divisor);
}

// Reads a format front to back. Every read either succeeds or leaves ok() false for good, so a
// parser may read a whole record and test once.
class ByteReader {
 public:
  explicit ByteReader(ByteSpan bytes) : bytes_(bytes) {}

  template <typename T>
  T Read() {
    const ByteSpan field = ReadBytes(sizeof(T));
    return ok_ ? LoadLittle<T>(field.data()) : T{};
  }

  ByteSpan ReadBytes(std::uint64_t size) {
    if (!ok_ || size > bytes_.size() - offset_) {
      ok_ = false;
      return {};
    }
    const ByteSpan field = bytes_.subspan(offset_, size);
    offset_ += size;
    return field;
  }

  bool ok() const { return ok_; }
  std::size_t offset() const { return offset_; }
  std::size_t remaining() const { return ok_ ? bytes_.size() - offset_ : 0; }

 private:
  ByteSpan bytes_;
  std::size_t offset_ = 0;
  bool ok_ = true;
};

// Lower-case hexadecimal, two digits a byte.
std::string ToHex(ByteSpan bytes);
// Fills all of `target` from exactly 2 * target.size() lower-case digits; false otherwise.
bool FromHex(std::string_view text, MutableByteSpan target);

}  // namespace segue
