// SPDX-License-Identifier: Apache-2.0
//
// SHA-256 (FIPS 180-4, by OpenSSL): the identity of plans, layouts and payload objects.
#pragma once

#include <array>
#include <memory>
#include <string>

#include "base/bytes.h"

namespace segue {

struct Sha256 {
  std::array<std::byte, 32> bytes{};

  bool operator==(const Sha256&) const = default;
  std::string ToHex() const { return segue::ToHex(bytes); }
  // Exactly 64 lower-case digits, or nothing.
  static std::optional<Sha256> FromHex(std::string_view text);
};

// Incremental hashing; Finish() may be called once.
class Sha256Hasher {
 public:
  Sha256Hasher();
  ~Sha256Hasher();
  Sha256Hasher(Sha256Hasher&&) noexcept;
  Sha256Hasher& operator=(Sha256Hasher&&) noexcept;

  void Add(ByteSpan bytes);
  Sha256 Finish();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

Sha256 HashSha256(ByteSpan bytes);

}  // namespace segue
