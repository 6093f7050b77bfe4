// SPDX-License-Identifier: Apache-2.0
//
// Linear digest: 128 bits over the bytes of a model, as two independent lanes modulo 2^64. It is
// linear in the values, so digests of parts add up, and the difference between two versions follows
// from the changed positions alone. It guards against faults, not forgery. docs/format.md,
// "Digest", is normative; the functions here are the specification in code, device/host has the
// fast ones.
//
// A tensor's bytes are read as little-endian 32-bit words (zero-padded at the end), 1024 words to a
// block. A word's key is word_key[lane][index in block] * block_key(lane, tensor, block).
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/bytes.h"
#include "base/random.h"

namespace segue {

inline constexpr std::size_t kDigestBlockWords = 1024;
inline constexpr std::size_t kDigestBlockSize = kDigestBlockWords * 4;

struct Digest {
  std::uint64_t lane[2] = {0, 0};

  bool operator==(const Digest&) const = default;
  Digest& operator+=(const Digest& other) {
    lane[0] += other.lane[0];
    lane[1] += other.lane[1];
    return *this;
  }
  Digest& operator-=(const Digest& other) {
    lane[0] -= other.lane[0];
    lane[1] -= other.lane[1];
    return *this;
  }
  friend Digest operator+(Digest a, const Digest& b) { return a += b; }
  friend Digest operator-(Digest a, const Digest& b) { return a -= b; }

  // 32 lower-case digits: lane 0, then lane 1, each as one big-endian number.
  std::string ToHex() const;
  static std::optional<Digest> FromHex(std::string_view text);
};

namespace digest_internal {
consteval std::array<std::uint32_t, kDigestBlockWords> MakeWordKeys(std::uint64_t lane) {
  std::array<std::uint32_t, kDigestBlockWords> keys{};
  for (std::uint64_t i = 0; i < kDigestBlockWords; ++i) {
    keys[i] = static_cast<std::uint32_t>(Mix64((lane + 1) << 32 | i)) | 1u;
  }
  return keys;
}
}  // namespace digest_internal

// Odd, so that every change inside one word changes the digest.
alignas(64) inline constexpr std::array<std::uint32_t, kDigestBlockWords> kDigestWordKeys[2] = {
    digest_internal::MakeWordKeys(0), digest_internal::MakeWordKeys(1)};

// Odd 64-bit key of block `block` of the tensor at `tensor` in the plan's order.
inline std::uint64_t DigestBlockKey(unsigned lane, std::uint64_t tensor, std::uint64_t block) {
  return Mix64(Mix64(tensor << 1 | lane) + block) | 1u;
}

// Digests of single elements of one tensor, all its other bytes counting as zero. Quick for
// elements in ascending order: the keys of the last block are kept.
class ElementDigester {
 public:
  explicit ElementDigester(std::uint64_t tensor) : tensor_(tensor) {}

  // The element's `width` bytes are `value`, little-endian; its first byte is at `offset` of the
  // tensor, a multiple of `width`.
  Digest operator()(std::uint64_t offset, std::uint64_t value, unsigned width) {
    MoveTo(offset / kDigestBlockSize);
    const std::size_t word = offset % kDigestBlockSize / 4;
    Digest digest;
    Add(value << (8 * (offset & 3)) & 0xffffffffu, word, digest);
    if (width == 8) Add(value >> 32, word + 1, digest);
    return digest;
  }

 private:
  void MoveTo(std::uint64_t block) {
    if (block == block_) return;
    block_ = block;
    for (unsigned lane = 0; lane < 2; ++lane) key_[lane] = DigestBlockKey(lane, tensor_, block);
  }
  void Add(std::uint64_t word, std::size_t index, Digest& digest) const {
    digest.lane[0] += word * kDigestWordKeys[0][index] * key_[0];
    digest.lane[1] += word * kDigestWordKeys[1][index] * key_[1];
  }

  std::uint64_t tensor_;
  std::uint64_t block_ = ~std::uint64_t{0};
  std::uint64_t key_[2] = {};
};

// Digest of `bytes`, which begin at byte `offset` (a multiple of kDigestBlockSize) of the tensor.
Digest DigestBytes(std::uint64_t tensor, std::uint64_t offset, ByteSpan bytes);

}  // namespace segue
